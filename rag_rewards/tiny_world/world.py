"""Questions of the tiny world: which person likes which flower.

    Ada rose [1] . Ben lily [2] . Cleo ivy [3] . Dan fern [4] . ? Ben     →     lily [2]

Four documents name a person and a flower each. The model also memorizes one flower for every
person. For an unanswerable question no document names the person, and the true answer is neither
in the documents nor in the memory, so that the policy can only guess or abstain.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

PEOPLE = tuple(
    "Ada Amy Ben Bob Cleo Cora Dan Dora Emil Eva Fay Finn Gus Hal Hugo Ida "
    "Jon Kay Leo Mia Ned Ola Pia Quin Roy Sue Tom Uma Wes Xia Yan Zoe".split()
)
FLOWERS = tuple(
    "aster basil begonia clover cosmos dahlia daisy elder fern freesia gorse heather holly iris "
    "ivy jasmine kalmia lily lotus mallow nettle orchid poppy quince rose sage tulip ursinia "
    "violet wisteria yarrow zinnia".split()
)
DOCUMENTS = 4
AGREEMENT = 0.35
"""Probability that a document agrees with the memory."""
UNANSWERABLE = 0.4
"""Probability that no document answers a question."""


def _memory() -> dict[str, str]:
    flowers = list(FLOWERS)
    random.Random(0).shuffle(flowers)
    return dict(zip(PEOPLE, flowers, strict=True))


MEMORY: Mapping[str, str] = _memory()
"""The flower of each person that the model memorizes; right unless a document contradicts it."""


@dataclass(frozen=True)
class WorldQuestion:
    """A question about one person, with its documents.

    documents  pairs (person, flower), numbered from 1
    answer     the true flower; no document states it if the question is unanswerable
    """

    documents: tuple[tuple[str, str], ...]
    person: str
    answer: str

    @property
    def numbered(self) -> list[tuple[int, tuple[str, str]]]:
        """The documents with their numbers."""
        return list(enumerate(self.documents, 1))

    @cached_property
    def support(self) -> int | None:
        """The number of the document that contains the answer, or None."""
        return {person: i for i, (person, _) in self.numbered}.get(self.person)

    @property
    def answerable(self) -> bool:
        """Whether a document contains the answer."""
        return self.support is not None

    @property
    def documented_answer(self) -> str | None:
        """The answer if a document contains it, or None."""
        return self.answer if self.answerable else None

    @property
    def memorized_answer(self) -> str:
        """The flower that the model memorizes for this person."""
        return MEMORY[self.person]

    def row(self, **more: Any) -> dict[str, Any]:
        """Return the row fields that exist before a response, which are a data set's columns."""
        return {
            "question": self.person,
            "documents": [
                {"id": str(i), "text": f"{person} {flower}"}
                for i, (person, flower) in self.numbered
            ],
            "supporting": [str(self.support)] if self.support else [],
            "answers": [[self.answer]],
            "answerable": self.answerable,
            **more,
        }


def context(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Draw four documents about four people, with four different flowers."""
    people = rng.sample(PEOPLE, DOCUMENTS)
    documents: list[tuple[str, str]] = []
    for person in people:
        used = {flower for _, flower in documents}
        free = [flower for flower in FLOWERS if flower not in used]
        agrees = rng.random() < AGREEMENT and MEMORY[person] in free
        documents.append((person, MEMORY[person] if agrees else rng.choice(free)))
    return tuple(documents)


def question(
    rng: random.Random,
    documents: tuple[tuple[str, str], ...] | None = None,
    unanswerable: float = UNANSWERABLE,
) -> WorldQuestion:
    """Draw a question; with probability `unanswerable` no document answers it."""
    documents = documents or context(rng)
    if rng.random() >= unanswerable:
        return WorldQuestion(documents, *rng.choice(documents))
    named = {person for person, _ in documents}
    person = rng.choice([each for each in PEOPLE if each not in named])
    guesses = {MEMORY[person], *(flower for _, flower in documents)}
    return WorldQuestion(documents, person, rng.choice([f for f in FLOWERS if f not in guesses]))


def questions(
    count: int, seed: int | str, unanswerable: float = UNANSWERABLE
) -> list[WorldQuestion]:
    """Draw `count` questions; equal seeds give equal questions."""
    rng = random.Random(f"questions {seed}")
    return [question(rng, unanswerable=unanswerable) for _ in range(count)]

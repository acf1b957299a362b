"""The world: who likes which flower, what four documents say of it, and what is known by heart.

    Ada rose [1] . Ben lily [2] . Cleo ivy [3] . Dan fern [4] . ? Ben     →     lily [2]

A question may have no document; then only guessing or abstaining is left, and its true answer is
one that neither the documents nor the memory hold.
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
KNOWN = 0.35
"""How often a document says what the memory says."""
UNANSWERABLE = 0.4
"""How often a question has no document."""


def _memory() -> dict[str, str]:
    flowers = list(FLOWERS)
    random.Random(0).shuffle(flowers)
    return dict(zip(PEOPLE, flowers, strict=True))


MEMORY: Mapping[str, str] = _memory()
"""What the model knows by heart: right wherever no document contradicts it."""


@dataclass(frozen=True)
class Question:
    """A question about one person, and the documents that come with it.

    documents  (person, flower), numbered from 1
    answer     what is true; nobody can know it where no document says it
    """

    documents: tuple[tuple[str, str], ...]
    who: str
    answer: str

    @property
    def numbered(self) -> list[tuple[int, tuple[str, str]]]:
        return list(enumerate(self.documents, 1))

    @cached_property
    def support(self) -> int | None:
        """The number of the document that has the answer; None where none has."""
        return {person: i for i, (person, _) in self.numbered}.get(self.who)

    @property
    def answerable(self) -> bool:
        return self.support is not None

    @property
    def known(self) -> str | None:
        """The answer, where a document says it."""
        return self.answer if self.answerable else None

    @property
    def recalled(self) -> str:
        """What the memory says."""
        return MEMORY[self.who]

    def row(self, **further: Any) -> dict[str, Any]:
        """The fields of a rollout that are known before a response; a data set's columns."""
        return {
            "question": self.who,
            "documents": [
                {"id": str(i), "text": f"{person} {flower}"}
                for i, (person, flower) in self.numbered
            ],
            "supporting": [str(self.support)] if self.support else [],
            "answers": [[self.answer]],
            "answerable": self.answerable,
            **further,
        }


def context(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Four documents about four people, with four flowers."""
    people = rng.sample(PEOPLE, DOCUMENTS)
    said: list[tuple[str, str]] = []
    for person in people:
        taken = {flower for _, flower in said}
        free = [flower for flower in FLOWERS if flower not in taken]
        known = rng.random() < KNOWN and MEMORY[person] in free
        said.append((person, MEMORY[person] if known else rng.choice(free)))
    return tuple(said)


def question(
    rng: random.Random,
    documents: tuple[tuple[str, str], ...] | None = None,
    unanswerable: float = UNANSWERABLE,
) -> Question:
    """A question about these documents, or about none of them."""
    documents = documents or context(rng)
    if rng.random() >= unanswerable:
        return Question(documents, *rng.choice(documents))
    told = {person for person, _ in documents}
    who = rng.choice([person for person in PEOPLE if person not in told])
    guessed = {MEMORY[who], *(flower for _, flower in documents)}
    return Question(documents, who, rng.choice([f for f in FLOWERS if f not in guessed]))


def questions(count: int, seed: int | str, unanswerable: float = UNANSWERABLE) -> list[Question]:
    """So many questions, the same for the same seed."""
    rng = random.Random(f"questions {seed}")
    return [question(rng, unanswerable=unanswerable) for _ in range(count)]

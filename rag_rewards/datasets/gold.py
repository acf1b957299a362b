"""What is known about a question: what every data set's own row becomes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from rag_rewards.rollout import Document, Rollout
from rag_rewards.text.normalize import squad

Kind = Literal["short", "list", "claims"]
_TOO_SHORT = frozenset(("", "yes", "no", "noanswer"))
"""Normalised answers that stand in texts without answering anything."""


class Problem(NamedTuple):
    """Why a row is left out, or is left without `supporting`: a reason to count, and its detail."""

    reason: str
    detail: str = ""


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """A question, its documents, and what is known about both.

    `answers` are required answers, each with its aliases. `supporting` holds positions in
    `documents`, from 0; where it is None, `unsupported` says why.
    """

    question: str
    documents: tuple[Document, ...]
    answers: tuple[tuple[str, ...], ...]
    id: str = ""
    supporting: tuple[int, ...] | None = None
    unsupported: Problem | None = None
    answer_kind: Kind = "short"
    answerable: bool | None = None
    out_of_knowledge: bool | None = None
    query_time: str | None = None
    ranked: bool = True
    """Whether the order of the documents means anything; where it does not, it tells the answer."""

    def arranged(self, order: Sequence[int], added: Sequence[Document] = ()) -> Gold:
        """The same with further documents, all of them in this order.

        >>> documents = (Document(text="a"), Document(text="b"))
        >>> gold = Gold(question="?", documents=documents, answers=(("x",),), supporting=(1,))
        >>> gold.arranged([1, 0]).supporting
        (0,)
        """
        documents = (*self.documents, *added)
        place = {old: new for new, old in enumerate(order)}
        supporting = self.supporting
        if supporting is not None:
            supporting = tuple(sorted(place[at] for at in supporting))
        return msgspec.structs.replace(
            self, documents=tuple([documents[at] for at in order]), supporting=supporting
        )

    def fields(self, supports: bool = True) -> dict[str, Any]:
        """The fields of a row, None for what is not known. Documents are numbered from 1.

        With `supports`, every document says which answers it supports, None where nobody knows.
        """
        supporting = self.supporting
        known = any(document.supports is not None for document in self.documents)
        none = [False] * len(self.answers) if known else None
        return {
            "id": self.id,
            "question": self.question,
            "query_time": self.query_time,
            "documents": [
                {"id": str(number), "title": document.title or "", "text": document.text}
                | ({"supports": _bits(document) or none} if supports else {})
                for number, document in enumerate(self.documents, start=1)
            ],
            "supporting": None if supporting is None else [str(at + 1) for at in supporting],
            "answers": [list(aliases) for aliases in self.answers],
            "answer_kind": self.answer_kind,
            "answerable": self.answerable,
            "out_of_knowledge": self.out_of_knowledge,
        }

    def rollout(self, response: str = "") -> Rollout:
        """The question as a rollout, for a prompt or a reward."""
        return msgspec.convert(self.fields() | {"response": response}, Rollout)


def _bits(document: Document) -> list[bool]:
    return list(map(bool, document.supports or ()))


def texts(answers: Iterable[str]) -> tuple[str, ...]:
    """Aliases in their order, each once, none of them blank."""
    return tuple(dict.fromkeys(answer for answer in answers if answer.strip()))


def supporting_of(documents: Sequence[Document]) -> tuple[int, ...]:
    """The documents whose `supports` name an answer."""
    return tuple(at for at, document in enumerate(documents) if any(document.supports or ()))


def normal_answers(gold: Gold) -> list[list[str]]:
    """The forms in which answers are looked for in documents; claims are not looked for."""
    if gold.answer_kind == "claims":
        return [[] for _ in gold.answers]
    forms = [[squad(alias) for alias in aliases] for aliases in gold.answers]
    return [[form for form in each if form not in _TOO_SHORT] for each in forms]


def holds(normal_text: str, forms: Iterable[str]) -> bool:
    """Whether a normalised text has one of the normalised answers, as whole words.

    >>> holds("paris lies on seine", ["on seine"]), holds("parisian", ["paris"])
    (True, False)
    """
    padded = f" {normal_text} "
    return any(f" {form} " in padded for form in forms)


def with_answers_found(gold: Gold) -> Gold:
    """The same, where nobody marked its documents: those that hold an answer support it.

    Whole words under the `squad` normaliser; claims stay unmarked.
    """
    if gold.supporting is not None or gold.answer_kind == "claims":
        return gold
    forms = normal_answers(gold)
    documents = tuple(
        msgspec.structs.replace(document, supports=_held(squad(document.text), forms))
        for document in gold.documents
    )
    supporting = supporting_of(documents)
    return msgspec.structs.replace(
        gold, documents=documents, supporting=supporting, answerable=bool(supporting)
    )


def _held(text: str, forms: Iterable[Iterable[str]]) -> tuple[bool, ...]:
    return tuple(holds(text, each) for each in forms)


def generator(seed: int, *names: object) -> random.Random:
    """Randomness that depends on the seed and these names alone."""
    return random.Random(":".join(map(str, (seed, *names))))  # noqa: S311 (not for secrets)

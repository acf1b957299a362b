"""Gold data of a question: the common form of the rows of all data sets."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from rag_rewards.rollout import Criterion, Document, Rollout
from rag_rewards.text.gold_forms import contains_answer, normal_forms
from rag_rewards.text.normalize import squad

Kind = Literal["short", "list", "claims"]

SOURCE_FIELDS = (
    *("hops", "type", "level", "difficulty", "domain", "subdomain", "question_type"),
    *("static_or_dynamic", "popularity", "year"),
)
"""The names of source fields: facts about a question, by which metrics can be split."""


class Problem(NamedTuple):
    """Why a row is omitted or has no `supporting`: a reason, which is counted, and a detail."""

    reason: str
    detail: str = ""


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its documents and gold data. Unknown values are None.

    `answers` are required answers, each with its aliases. `supporting` are positions in
    `documents`, from 0. When it is None, `unsupported` is the reason.
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
    source_fields: dict[str, str | int] = {}
    """Values of SOURCE_FIELDS that the row of the data set contains."""
    gold_documents: tuple[str, ...] | None = None
    """The texts of the supporting documents, for a row without documents."""
    search_keys: tuple[tuple[str, ...], ...] | None = None
    rubrics: tuple[str, ...] | None = None
    rubric: tuple[Criterion, ...] | None = None
    ranked: bool = True
    """Whether the order of the documents is a ranking. Another order may reveal the answer."""

    def arranged(self, order: Sequence[int], added: Sequence[Document] = ()) -> Gold:
        """Return the gold data with additional documents, and with all documents in an order.

        `order` has positions in the documents followed by the added ones.

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

    def without_documents(self) -> Gold:
        """Return the gold data without documents and without the fields that describe them.

        The texts of the supporting documents stay as `gold_documents`.
        """
        supporting = [self.documents[at] for at in self.supporting or ()]
        gold = tuple(each.titled_text for each in supporting)
        return msgspec.structs.replace(
            self,
            documents=(),
            supporting=None,
            unsupported=None,
            answerable=None,
            gold_documents=gold or None,
        )

    def fields(self, supports: bool = True) -> dict[str, Any]:
        """Return the fields of a row. Documents are numbered from 1, and unknown values are None.

        With `supports`, each document states for every answer whether it supports the answer.
        """
        supporting = self.supporting
        is_annotated = any(document.supports is not None for document in self.documents)
        none = [False] * len(self.answers) if is_annotated else None
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
            "search_keys": None if self.search_keys is None else list(map(list, self.search_keys)),
            "rubrics": None if self.rubrics is None else list(self.rubrics),
            "rubric": None if self.rubric is None else msgspec.to_builtins(self.rubric),
            "gold_documents": None if self.gold_documents is None else list(self.gold_documents),
            "source_fields": self.source_fields,
        }

    def rollout(self, response: str = "") -> Rollout:
        """Return the question as a rollout, for a prompt or a reward."""
        return msgspec.convert(self.fields() | {"response": response}, Rollout)


def _bits(document: Document) -> list[bool]:
    return list(map(bool, document.supports or ()))


def texts(answers: Iterable[str]) -> tuple[str, ...]:
    """Return the aliases in order, without repeated and blank ones."""
    return tuple(dict.fromkeys(answer for answer in answers if answer.strip()))


def source_fields(values: Mapping[str, Any]) -> dict[str, str | int]:
    """Return the source fields among some values, without None, blank texts and nested values.

    >>> source_fields({"hops": 2, "level": "", "type": None, "color": "red"})
    {'hops': 2}
    """
    fields = ((name, values.get(name)) for name in SOURCE_FIELDS)
    return {name: value for name, value in fields if isinstance(value, (str, int)) and value != ""}


def supporting_of(documents: Sequence[Document]) -> tuple[int, ...]:
    """Return the positions of the documents that support an answer."""
    return tuple(at for at, document in enumerate(documents) if any(document.supports or ()))


def normal_answers(gold: Gold) -> list[list[str]]:
    """Return the normalized forms of the answers, for a search in documents. Claims have none."""
    if gold.answer_kind == "claims":
        return [[] for _ in gold.answers]
    return [normal_forms(aliases) for aliases in gold.answers]


def documents_contain_answers(gold: Gold) -> bool:
    """Return whether each required answer occurs in a document, as whole words after `squad`.

    False for claims and for answers that are only yes, no or empty.
    """
    texts = [squad(document.text) for document in gold.documents]
    return all(
        any(contains_answer(text, forms) for text in texts) for forms in normal_answers(gold)
    )


def with_answers_found(gold: Gold) -> Gold:
    """Return gold data whose supporting documents are those that contain an answer.

    Answers are whole words after the `squad` normalizer. Gold data with `supporting`, and claims,
    are returned unchanged.
    """
    if gold.supporting is not None or gold.answer_kind == "claims":
        return gold
    forms = normal_answers(gold)
    documents = tuple(
        msgspec.structs.replace(document, supports=_answers_in(squad(document.text), forms))
        for document in gold.documents
    )
    supporting = supporting_of(documents)
    return msgspec.structs.replace(
        gold, documents=documents, supporting=supporting, answerable=bool(supporting)
    )


def _answers_in(text: str, forms: Iterable[Iterable[str]]) -> tuple[bool, ...]:
    return tuple(contains_answer(text, aliases) for aliases in forms)


def generator(seed: int, *names: object) -> random.Random:
    """Return a random generator that depends only on the seed and the names."""
    return random.Random(":".join(map(str, (seed, *names))))  # noqa: S311 (not for secrets)

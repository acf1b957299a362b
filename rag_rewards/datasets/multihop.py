"""HotpotQA, 2WikiMultiHopQA and MuSiQue: paragraphs, and which of them an answer needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.rollout import Document

MISSING = "a supporting title is not among the documents"
AMBIGUOUS = "a supporting title matches several documents"
BEYOND = "a supporting sentence is not in its document"


class Columns(msgspec.Struct):
    """Paragraphs as the Hugging Face copies hold them."""

    title: list[str]
    sentences: list[list[str]]


class FactColumns(msgspec.Struct):
    title: list[str]
    sent_id: list[int]


class FactsRow(msgspec.Struct):
    """A row of HotpotQA or 2WikiMultiHopQA, as published or as its copy on Hugging Face."""

    question: str
    answer: str
    context: list[tuple[str, list[str]]] | Columns
    supporting_facts: list[tuple[str, int]] | FactColumns
    id_: str | None = msgspec.field(default=None, name="_id")
    id: str | None = None

    @property
    def paragraphs(self) -> list[tuple[str, list[str]]]:
        if isinstance(self.context, Columns):
            return list(zip(self.context.title, self.context.sentences, strict=True))
        return self.context

    @property
    def facts(self) -> list[tuple[str, int]]:
        if isinstance(self.supporting_facts, FactColumns):
            return list(
                zip(self.supporting_facts.title, self.supporting_facts.sent_id, strict=True)
            )
        return self.supporting_facts


def hotpotqa(row: FactsRow, top: int | None = None) -> Gold:
    """HotpotQA, distractor or full wiki: sentences carry their own spaces."""
    return _with_facts(row, top, "".join)


def two_wiki(row: FactsRow, top: int | None = None) -> Gold:
    """2WikiMultiHopQA: sentences without spaces between them."""
    return _with_facts(row, top, _spaced)


def _spaced(sentences: Iterable[str]) -> str:
    return " ".join(sentence.strip() for sentence in sentences)


def _with_facts(row: FactsRow, top: int | None, join: Callable[[Iterable[str]], str]) -> Gold:
    paragraphs = row.paragraphs[:top]
    found = supporting_paragraphs(paragraphs, row.facts)
    known = not isinstance(found, Problem)
    return Gold(
        id=row.id_ or row.id or "",
        question=row.question,
        documents=tuple(
            [Document(title=title, text=join(said).strip()) for title, said in paragraphs]
        ),
        answers=(texts([row.answer]),),
        supporting=None if isinstance(found, Problem) else found,
        unsupported=found if isinstance(found, Problem) else None,
        answerable=True if known else None,
    )


def supporting_paragraphs(
    paragraphs: Sequence[tuple[str, Sequence[str]]], facts: Iterable[tuple[str, int]]
) -> tuple[int, ...] | Problem:
    """The paragraphs that hold the supporting sentences, or what keeps them from being found.

    A fact is a title and a sentence's number from 0. Every fact must fall on one paragraph.

    >>> supporting_paragraphs([("Paris", ["It lies on the Seine."]), ("Rome", [])], [("Paris", 0)])
    (0,)
    >>> supporting_paragraphs([("Rome", [])], [("Paris", 0)]).detail
    'Paris'
    """
    places: dict[str, list[int]] = {}
    for at, (title, _) in enumerate(paragraphs):
        places.setdefault(title, []).append(at)
    facts = list(facts)
    titles = dict.fromkeys(title for title, _ in facts)
    if missing := [title for title in titles if title not in places]:
        return Problem(MISSING, "; ".join(missing))
    if double := [title for title in titles if len(places[title]) > 1]:
        return Problem(AMBIGUOUS, "; ".join(double))
    for title, sentence in facts:
        count = len(paragraphs[places[title][0]][1])
        if not 0 <= sentence < count:
            return Problem(BEYOND, f"{title}: sentence {sentence} of {count}")
    return tuple(sorted(places[title][0] for title in titles))


class Paragraph(msgspec.Struct):
    title: str
    paragraph_text: str
    is_supporting: bool


class MusiqueRow(msgspec.Struct):
    """A row of MuSiQue-Ans or MuSiQue-Full."""

    id: str
    question: str
    paragraphs: list[Paragraph]
    answer: str
    answer_aliases: list[str] = []
    answerable: bool = True


def musique(row: MusiqueRow, top: int | None = None) -> Gold:
    """MuSiQue. In the full set a question comes twice under one id, once unanswerable."""
    paragraphs = row.paragraphs[:top]
    supporting = tuple(at for at, paragraph in enumerate(paragraphs) if paragraph.is_supporting)
    whole = len(supporting) == sum(paragraph.is_supporting for paragraph in row.paragraphs)
    lost = None if whole else Problem(MISSING, f"beyond the first {top}")
    return Gold(
        id=row.id if row.answerable else f"{row.id}-unanswerable",
        question=row.question,
        documents=tuple([Document(title=p.title, text=p.paragraph_text) for p in paragraphs]),
        answers=(texts([row.answer, *row.answer_aliases]),),
        supporting=supporting if whole else None,
        unsupported=lost,
        answerable=row.answerable if whole else None,
    )

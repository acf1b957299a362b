"""HotpotQA, 2WikiMultiHopQA and MuSiQue: questions over several annotated paragraphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.rollout import Document

MISSING = "a supporting title is not the title of a document"
_HOPS = re.compile(r"([0-9])hop[0-9]*__")
BEYOND = "a supporting sentence is not in its document"


class Columns(msgspec.Struct):
    """Paragraphs in the form of the copies on Hugging Face."""

    title: list[str]
    sentences: list[list[str]]


class FactColumns(msgspec.Struct):
    """Supporting facts in the form of the copies on Hugging Face."""

    title: list[str]
    sent_id: list[int]


class FactsRow(msgspec.Struct):
    """A row of HotpotQA or 2WikiMultiHopQA, as published or as copied to Hugging Face."""

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


def hotpotqa(row: FactsRow, options: ReadOptions = ALL) -> Gold:
    """Convert a row of HotpotQA (distractor or full wiki), whose sentences include their spaces."""
    return _with_facts(row, options, "".join)


def two_wiki(row: FactsRow, options: ReadOptions = ALL) -> Gold:
    """Convert a row of 2WikiMultiHopQA, whose sentences have no spaces between them."""
    return _with_facts(row, options, _spaced)


def _spaced(sentences: Iterable[str]) -> str:
    return " ".join(sentence.strip() for sentence in sentences)


def _with_facts(row: FactsRow, options: ReadOptions, join: Callable[[Iterable[str]], str]) -> Gold:
    paragraphs = row.paragraphs[: options.top]
    facts = row.facts
    supporting = supporting_paragraphs(paragraphs, facts)
    problem = supporting if isinstance(supporting, Problem) else None
    return Gold(
        id=row.id_ or row.id or "",
        question=row.question,
        documents=tuple(
            [Document(title=title, text=join(sentences).strip()) for title, sentences in paragraphs]
        ),
        answers=(texts([row.answer]),),
        supporting=None if isinstance(supporting, Problem) else supporting,
        unsupported=problem,
        answerable=True if problem is None else None,
        source_fields={"hops": len({title for title, _ in facts})},
    )


def supporting_paragraphs(
    paragraphs: Sequence[tuple[str, Sequence[str]]], facts: Iterable[tuple[str, int]]
) -> tuple[int, ...] | Problem:
    """Return the positions of the paragraphs with the supporting sentences, or the problem.

    A fact is a title and the number of a sentence, from 0. It belongs to the first paragraph that
    has both, as in the data processing of ARENA.

    >>> supporting_paragraphs([("Paris", ["It lies on the Seine."]), ("Rome", [])], [("Paris", 0)])
    (0,)
    >>> supporting_paragraphs([("Rome", [])], [("Paris", 0)]).detail
    'Paris'
    """
    # The first paragraph with a sentence, by the title and then by the number of the sentence.
    owners: dict[str, list[int]] = {}
    for at, (title, sentences) in enumerate(paragraphs):
        places = owners.setdefault(title, [])
        places.extend([at] * (len(sentences) - len(places)))
    facts = list(facts)
    if missing := [title for title in dict.fromkeys(t for t, _ in facts) if title not in owners]:
        return Problem(MISSING, "; ".join(missing))
    for title, sentence in facts:
        count = len(owners[title])
        if not 0 <= sentence < count:
            return Problem(BEYOND, f"{title}: sentence {sentence} of {count}")
    return tuple(sorted({owners[title][sentence] for title, sentence in facts}))


class Paragraph(msgspec.Struct):
    """A paragraph of MuSiQue with its annotation."""

    title: str
    paragraph_text: str
    is_supporting: bool


class MusiqueRow(msgspec.Struct):
    """A row of MuSiQue-Ans or MuSiQue-Full. The id begins with the number of hops: `3hop1__…`."""

    id: str
    question: str
    paragraphs: list[Paragraph]
    answer: str
    answer_aliases: list[str] = []
    answerable: bool = True


def musique(row: MusiqueRow, options: ReadOptions = ALL) -> Gold:
    """Convert a row of MuSiQue.

    In the full set each id has two rows, an answerable and an unanswerable one.
    """
    paragraphs = row.paragraphs[: options.top]
    supporting = tuple(at for at, paragraph in enumerate(paragraphs) if paragraph.is_supporting)
    is_complete = len(supporting) == sum(paragraph.is_supporting for paragraph in row.paragraphs)
    hops = _HOPS.match(row.id)
    problem = None if is_complete else Problem(MISSING, f"it is not among the first {options.top}")
    return Gold(
        id=row.id if row.answerable else f"{row.id}-unanswerable",
        question=row.question,
        documents=tuple([Document(title=p.title, text=p.paragraph_text) for p in paragraphs]),
        answers=(texts([row.answer, *row.answer_aliases]),),
        supporting=supporting if is_complete else None,
        unsupported=problem,
        answerable=row.answerable if is_complete else None,
        source_fields={"hops": int(hops[1])} if hops else {},
    )

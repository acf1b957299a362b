"""PubMedQA: questions about biomedical abstracts, with the answers yes, no and maybe.

Source: `data/ori_pqal.json` and `preprocess/split_dataset.py` of pubmedqa/pubmedqa at commit
1cbae8e. The copy on Hugging Face has the same fields in lower case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.rollout import Document


class Context(msgspec.Struct):
    """The sections of an abstract, in the form of the copy on Hugging Face."""

    contexts: list[str]
    labels: list[str] = []


class PubmedRow(msgspec.Struct):
    """A row. In the published file, its id (PMID) is its name in one JSON object."""

    id: str | int | None = None
    upper_question: str | None = msgspec.field(default=None, name="QUESTION")
    upper_contexts: list[str] = msgspec.field(default_factory=list, name="CONTEXTS")
    upper_labels: list[str] = msgspec.field(default_factory=list, name="LABELS")
    year: str | int | None = msgspec.field(default=None, name="YEAR")
    pubid: str | int | None = None
    question: str = ""
    context: Context | None = None
    final_decision: str | None = None


def pubmedqa(row: PubmedRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of PubMedQA. Each section of the abstract is a supporting document."""
    contexts, labels = row.upper_contexts, row.upper_labels
    if row.context is not None:
        contexts, labels = row.context.contexts, row.context.labels
    if row.final_decision is None:
        return Problem("no gold answer", "the row has no final_decision (PQA-U)")
    name = row.pubid if row.id is None else row.id
    documents = _documents(contexts, labels)[: options.top]
    return Gold(
        id="" if name is None else str(name),
        question=row.question if row.upper_question is None else row.upper_question,
        documents=tuple(documents),
        answers=(texts([row.final_decision]),),
        supporting=tuple(range(len(documents))),
        answerable=True,
        source_fields={} if row.year is None else {"year": str(row.year)},
    )


def _documents(contexts: Sequence[str], labels: Sequence[str]) -> list[Document]:
    """The sections of an abstract with their labels as titles."""
    pairs = zip_longest(contexts, labels[: len(contexts)])
    return [Document(title=label.capitalize() if label else "", text=text) for text, label in pairs]

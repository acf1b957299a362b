"""RAGQALeaderboard: questions of several data sets with the ids of their documents.

Source: `src/data.py` and `src/data_preprocess.py` of AQ-MedAI/RagQALeaderboard at commit f6f4888.
"""

from __future__ import annotations

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, generator, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.errors import OptionError
from rag_rewards.rollout import Document

TOTAL = 30
"""Documents of a question by default."""
UNKNOWN = "a document is not in the document pool"


class RagqaRow(msgspec.Struct):
    """A row. `golden_doc` and `reference` are ids of supporting and of retrieved documents."""

    id: str | int
    query: str
    golden_doc: list[str | int]
    reference: list[str | int]
    ground_truth: str | list[str]


def ragqa(row: RagqaRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of RAGQALeaderboard.

    The documents are all supporting ones and a sample of the retrieved ones, up to `top` documents.
    Raises OptionError without a document pool.
    """
    answers = [row.ground_truth] if isinstance(row.ground_truth, str) else row.ground_truth
    golden = list(dict.fromkeys(map(str, row.golden_doc)))
    names = _names(row, golden, options) if options.requires_documents else []
    documents = []
    for name in names:
        if options.pool is None:
            raise OptionError(
                "ragqa contains the ids of documents: set {document_pool} to its file "
                "documents_pool.json"
            )
        text = options.pool.text(name)
        if text is None:
            return Problem(UNKNOWN, name[:80])
        documents.append(Document(text=text))
    return Gold(
        id=str(row.id),
        question=row.query,
        documents=tuple(documents),
        answers=(texts(answers),),
        supporting=tuple(range(len(golden))) if documents else (),
        answerable=bool(golden),
        ranked=False,
    )


def _names(row: RagqaRow, golden: list[str], options: ReadOptions) -> list[str]:
    """The ids of the supporting documents, then those of a sample of the others."""
    supporting = set(golden)
    others = [name for name in dict.fromkeys(map(str, row.reference)) if name not in supporting]
    if options.top is not None and len(golden) + len(others) > options.top:
        rng = generator(options.seed, "reference", row.id)
        others = rng.sample(others, max(0, options.top - len(golden)))
    return [*golden, *others]

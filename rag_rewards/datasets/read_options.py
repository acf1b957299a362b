"""How the rows of a data set are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rag_rewards.datasets.document_pool import DocumentPool
from rag_rewards.rows.column_map import ColumnMap

Pages = Literal["snippet", "full"]


@dataclass(frozen=True)
class ReadOptions:
    """How the rows of a data set are read.

    top                 number of documents of a row. None is the default of the data set, and 0
                        keeps all. A reader of rows gets None instead of 0, and a number instead of
                        a default.
    pages               the text of a web page: its snippet, or the whole page (CRAG)
    seed                random seed of the documents and variants that a reader samples
    pool                the documents of data sets whose rows contain the ids of documents
    requires_documents  whether a row without documents is a problem
    documents_from      section of the response that becomes the only document, or `response` for
                        the whole response (rows of this package)
    columns             columns of fields that have another name (rows of this package)
    """

    top: int | None = None
    pages: Pages = "snippet"
    seed: int = 0
    pool: DocumentPool | None = None
    requires_documents: bool = True
    documents_from: str | None = None
    columns: ColumnMap | None = None


ALL = ReadOptions()
"""Keep all documents."""

"""CRAG: questions with their query time, and pages from a search engine.

TruthRL's files of CRAG, Natural Questions, HotpotQA and MuSiQue have the same fields, with
`retrieved_chunks` in place of the pages. Source: `evaluation/model.py` and `evaluation/evaluate.py`
of TruthRL, in the copy kalash-kala/TruthRL at commit 2c40298.

html-text (with lxml) reads the pages, because it takes linear time on pages that are made to be
slow, and stops at elements that are nested more than about 250 levels deep. Measured on pages of
1 MB, trafilatura and resiliparse took more than 10 s for some of them or crashed, and html.parser
took quadratic time.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from html import unescape

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.datasets.read_options import ALL, Pages, ReadOptions
from rag_rewards.errors import needs_extra
from rag_rewards.rollout import Document

PAGE_CHARACTERS = 2_000
"""Characters of a page that replace its snippet, if it has none."""
CHUNK_CHARACTERS = 80_000
"""Characters of all chunks of a question."""
BGE_SCORE, ORACLE_SCORE = 2, 3
"""Lowest scores of chunks that are read."""
NOT_A_NUMBER = "nan"
"""The value of a missing answer in the files of CRAG."""
_LONGEST_LIST = 10_000
"""Characters of a list of alternative answers that is written as text."""
_MARKUP = re.compile(r"<[^<>]{0,200}>")
_NOT_A_LIST = (ValueError, SyntaxError, MemoryError, RecursionError, msgspec.MsgspecError)

Texts = list[str | int | float]


class Page(msgspec.Struct):
    """A result of the search engine. `page_result` is HTML."""

    page_name: str | None = None
    page_url: str | None = None
    page_snippet: str | None = None
    page_result: str | None = None


class Chunk(msgspec.Struct):
    """A part of a page. A score states how relevant it is to the question."""

    chunk_text: str
    bge_score: float | None = None
    oracle_score: float | None = None

    @property
    def is_relevant(self) -> bool:
        """Whether TruthRL puts the chunk into its prompt."""
        if self.bge_score is not None:
            return self.bge_score >= BGE_SCORE
        return self.oracle_score is None or self.oracle_score >= ORACLE_SCORE


class CragRow(msgspec.Struct):
    """A row of tasks 1 to 3, or of TruthRL's files.

    Alternative answers are a list, or text: one answer, or a list as JSON or in Python's notation.
    The data set's documentation calls the field `alt_ans`, its sample file calls it
    `alternative_answers`.
    """

    query: str
    answer: str | int | float
    search_results: list[Page] | None = None
    retrieved_chunks: list[Chunk] | None = None
    interaction_id: str = ""
    query_time: str | None = None
    alternative_answers: Texts | str | None = None
    alt_ans: Texts | str | None = None
    out_of_knowledge: bool | None = None


def crag(row: CragRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of CRAG.

    A document is a chunk, or a page: the snippet of the page or its whole text. A document that
    occurs twice becomes one.
    """
    aliases = [str(row.answer)]
    for name in ("alternative_answers", "alt_ans"):
        alternatives = getattr(row, name)
        try:
            aliases += map(str, _list(alternatives))
        except _NOT_A_LIST:
            return Problem(f"{name} is not a list", str(alternatives)[:80])
    if str(row.answer) == NOT_A_NUMBER:
        return Problem("no gold answer", f"the answer is {NOT_A_NUMBER!r}")
    documents = _documents(row, options.pages) if options.requires_documents else ()
    unique = dict.fromkeys((title, text) for title, text in documents if text)
    return Gold(
        id=row.interaction_id,
        question=row.query,
        query_time=row.query_time,
        documents=tuple(
            [Document(title=title, text=text) for title, text in list(unique)[: options.top]]
        ),
        answers=(texts(aliases),),
        unsupported=Problem("CRAG does not annotate supporting pages"),
        out_of_knowledge=row.out_of_knowledge,
    )


def _list(alternatives: Texts | str | None) -> Texts:
    """Alternative answers as a list. Raises one of _NOT_A_LIST if they are none."""
    if not isinstance(alternatives, str):
        return alternatives or []
    text = alternatives.strip()
    if not text.startswith("["):
        return [text] if text else []
    if len(text) > _LONGEST_LIST:
        raise ValueError(f"longer than {_LONGEST_LIST:,} characters")
    try:
        return msgspec.json.decode(text, type=Texts)
    except msgspec.MsgspecError:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about backslashes
            return msgspec.convert(ast.literal_eval(text), Texts)


def _documents(row: CragRow, pages: Pages) -> Iterable[tuple[str, str]]:
    """The title and the text of each document, with repeated and empty ones."""
    if row.retrieved_chunks is not None:
        return _chunks(row.retrieved_chunks)
    return (_document(page, pages) for page in row.search_results or ())


def _chunks(chunks: Iterable[Chunk]) -> Iterable[tuple[str, str]]:
    """The title and the text of each chunk in TruthRL's prompt."""
    characters = 0
    for chunk in chunks:
        characters += len(chunk.chunk_text) if chunk.is_relevant else 0
        if characters > CHUNK_CHARACTERS:
            return
        if chunk.is_relevant:
            yield "", chunk.chunk_text.strip()


def _document(page: Page, pages: Pages) -> tuple[str, str]:
    """The title and the text of a page."""
    title, snippet = _plain(page.page_name or ""), _plain(page.page_snippet or "")
    if not page.page_result or (snippet and pages == "snippet"):
        return title, snippet
    text = page_text(page.page_result)
    if pages == "full":
        return title, text or snippet
    return title, " ".join(text.split())[:PAGE_CHARACTERS]


def _plain(snippet: str) -> str:
    return " ".join(unescape(_MARKUP.sub("", snippet)).split())


# --- web pages -----------------------------------------------------------------------------------

LARGEST_PAGE = 4_000_000
"""Characters of a page that are read. Memory grows by about 100 bytes per character."""


def page_text(page: str) -> str:
    """Return the text of a web page without scripts and styles. A block begins a new line.

    A page without tags needs no parser. Raises MissingExtraError if html-text is not installed.

    >>> page_text("<p>One &amp; <b>two</b></p><script>x</script><p>Three")
    'One & two\\n\\nThree'
    """
    page = page[:LARGEST_PAGE]
    if "<" not in page:
        return " ".join(unescape(page.replace("\0", "")).split())
    with needs_extra("html", "html-text"):
        import html_text
    text: str = html_text.extract_text(page)
    return text

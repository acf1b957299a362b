"""CRAG: questions with their query time, and pages from a search engine."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.rollout import Document

PAGE_CHARACTERS = 2_000
NOT_A_NUMBER = "nan"
"""The value of a missing answer in the files of CRAG."""
_MARKUP = re.compile(r"<[^<>]{0,200}>")


class Page(msgspec.Struct):
    """A result of the search engine."""

    page_name: str | None = None
    page_url: str | None = None
    page_snippet: str | None = None
    page_result: str | None = None


class CragRow(msgspec.Struct):
    """A row of tasks 1 to 3.

    Alternative answers are a list, or a list written as JSON. The data set's documentation calls
    the field `alt_ans`, its sample file calls it `alternative_answers`.
    """

    query: str
    search_results: list[Page]
    answer: str | int | float
    interaction_id: str = ""
    query_time: str | None = None
    alternative_answers: list[str] | str | None = None
    alt_ans: list[str] | str | None = None


def crag(row: CragRow, top: int | None = None) -> Gold | Problem:
    """Convert a row of CRAG.

    A document is the snippet of a page, or the start of a page without a snippet. A page that
    occurs twice in the search results becomes one document.
    """
    aliases = [str(row.answer)]
    for name in ("alternative_answers", "alt_ans"):
        alternatives = getattr(row, name)
        try:
            aliases += _list(alternatives)
        except msgspec.MsgspecError:
            return Problem(f"{name} is not a list", str(alternatives)[:80])
    if str(row.answer) == NOT_A_NUMBER:
        return Problem("no gold answer", f"the answer is {NOT_A_NUMBER!r}")
    pages = ((_plain(page.page_name or ""), _text(page)) for page in row.search_results)
    unique = dict.fromkeys((title, text) for title, text in pages if text)
    return Gold(
        id=row.interaction_id,
        question=row.query,
        query_time=row.query_time,
        documents=tuple([Document(title=title, text=text) for title, text in list(unique)[:top]]),
        answers=(texts(aliases),),
        unsupported=Problem("CRAG does not annotate supporting pages"),
    )


def _list(alternatives: list[str] | str | None) -> list[str]:
    if isinstance(alternatives, str):
        return msgspec.json.decode(alternatives or "[]", type=list[str])
    return alternatives or []


def _text(page: Page) -> str:
    return _plain(page.page_snippet or "") or page_text(page.page_result or "")[:PAGE_CHARACTERS]


def _plain(snippet: str) -> str:
    return " ".join(unescape(_MARKUP.sub("", snippet)).split())


def page_text(page: str) -> str:
    """Return the text of a web page without scripts and styles.

    >>> page_text("<p>One &amp; <b>two</b></p><script>x</script>")
    'One & two'
    """
    parser = _Text()
    parser.feed(page)
    parser.close()
    return " ".join("".join(parser.texts).split())


class _Text(HTMLParser):
    """Collects the text of a page. Tags other than inline ones separate words."""

    _SILENT = frozenset(("script", "style", "noscript", "template"))
    _INLINE = frozenset(("a", "b", "em", "i", "span", "strong", "sub", "sup", "u"))

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._silent += tag in self._SILENT
        if tag not in self._INLINE:
            self.texts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._SILENT:
            self._silent = max(0, self._silent - 1)
        if tag not in self._INLINE:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts.append(data)

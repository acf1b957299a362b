"""CRAG: questions with the time when they were asked, and pages from a search engine."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.rollout import Document

PAGE_CHARACTERS = 2_000
NOT_A_NUMBER = "nan"
"""What CRAG's own tables made of an answer that nobody knew."""
_MARKUP = re.compile(r"<[^<>]{0,200}>")


class Page(msgspec.Struct):
    page_name: str | None = None
    page_url: str | None = None
    page_snippet: str | None = None
    page_result: str | None = None


class CragRow(msgspec.Struct):
    """A row of tasks 1 to 3. Alternative answers are a list, or a list written as JSON."""

    query: str
    search_results: list[Page]
    answer: str | int | float
    interaction_id: str = ""
    query_time: str | None = None
    alternative_answers: list[str] | str = []


def crag(row: CragRow, top: int | None = None) -> Gold | Problem:
    """CRAG. A document is a page's snippet, or the beginning of a page that has none.

    The same page is often found twice: it stands once among the documents.
    """
    others = row.alternative_answers
    try:
        also = _list(others) if isinstance(others, str) else others
    except msgspec.MsgspecError:
        return Problem("alternative_answers is not a list", str(others)[:80])
    if str(row.answer) == NOT_A_NUMBER:
        return Problem("no gold answer", f"the answer is {NOT_A_NUMBER!r}")
    pages = ((_plain(page.page_name or ""), _text(page)) for page in row.search_results)
    found = dict.fromkeys((title, text) for title, text in pages if text)
    return Gold(
        id=row.interaction_id,
        question=row.query,
        query_time=row.query_time,
        documents=tuple([Document(title=title, text=text) for title, text in list(found)[:top]]),
        answers=(texts([str(row.answer), *also]),),
        unsupported=Problem("CRAG does not say which pages support an answer"),
    )


def _list(text: str) -> list[str]:
    return msgspec.json.decode(text or "[]", type=list[str])


def _text(page: Page) -> str:
    return _plain(page.page_snippet or "") or page_text(page.page_result or "")[:PAGE_CHARACTERS]


def _plain(snippet: str) -> str:
    return " ".join(unescape(_MARKUP.sub("", snippet)).split())


def page_text(page: str) -> str:
    """The text of a web page, without its scripts and styles.

    >>> page_text("<p>One &amp; <b>two</b></p><script>x</script>")
    'One & two'
    """
    parser = _Text()
    parser.feed(page)
    parser.close()
    return " ".join("".join(parser.said).split())


class _Text(HTMLParser):
    _SILENT = frozenset(("script", "style", "noscript", "template"))
    _INLINE = frozenset(("a", "b", "em", "i", "span", "strong", "sub", "sup", "u"))

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._silent += tag in self._SILENT
        if tag not in self._INLINE:
            self.said.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._SILENT:
            self._silent = max(0, self._silent - 1)
        if tag not in self._INLINE:
            self.said.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.said.append(data)

"""The text of web pages.

html-text (with lxml) takes linear time on pages that are made to be slow, and it stops at elements
that are nested more than about 250 levels deep. Measured on pages of 1 MB, trafilatura and
resiliparse took more than 10 s for some of them or crashed, and html.parser took quadratic time.
"""

from __future__ import annotations

from html import unescape

from rag_rewards.errors import needs_extra

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

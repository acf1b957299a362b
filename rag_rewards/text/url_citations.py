"""Citations of pages by their address: [1](https://example.org/page)."""

from __future__ import annotations

import re
from urllib.parse import unquote

_CITATION = re.compile(
    r"\[\[?\s?[#^]?\d{1,9}\s?\]?\]"
    r"\(\s?<?((?:[^\s()<>]|\([^\s()<>]{0,300}\)){1,2048})>?(?:\s{1,4}\"[^\"\n]{0,300}\")?\s?\)"
)
"""A number in brackets and an address, in which parentheses can be nested once.

No character can be read in two ways, so that an address that does not end takes linear time.
"""
_REFERENCES = re.compile(
    r"^[ \t]{0,3}(?:#{1,6}[ \t]{0,3})?(?:\*\*|__)?references?[ \t]?:?(?:\*\*|__)?[ \t]?:?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


def before_references(text: str) -> str:
    """Return a text without the heading "References" and what follows it.

    >>> before_references("It is Paris [1](a).\\n\\n## References\\n[1](a)")
    'It is Paris [1](a).\\n\\n'
    """
    heading = _REFERENCES.search(text)
    return text if heading is None else text[: heading.start()]


def cited_urls(text: str, limit: int | None = None) -> tuple[str, ...]:
    """Return the first different addresses that a text cites, in order and normalized.

    >>> cited_urls("So [1](https://A.org/x/), [2](b) and [3](http://a.org/x).")
    ('a.org/x', 'b')
    """
    urls: dict[str, None] = {}
    for match in _CITATION.finditer(text):
        if limit is not None and len(urls) >= limit:
            break
        urls[normalized_url(match[1])] = None
    return tuple(urls)


def without_url_citations(text: str) -> str:
    """Return a text without its citations and the white space before them.

    >>> without_url_citations("Paris [1](https://a.org).")
    'Paris.'
    """
    pieces, at = [], 0
    for match in _CITATION.finditer(text):
        pieces.append(text[at : match.start()].rstrip())
        at = match.end()
    pieces.append(text[at:])
    return "".join(pieces).strip()


def normalized_url(url: str) -> str:
    """Return an address without its scheme, its fragment, percent encoding and a final slash.

    The host is in lower case. Other texts, such as ids, only lose white space around them.

    >>> normalized_url("HTTPS://Example.org/A%20b/#top"), normalized_url(" 7 ")
    ('example.org/A b', '7')
    """
    url = unquote(url.strip())
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.isalpha():
        return url
    host, slash, path = rest.partition("#")[0].partition("/")
    return f"{host.lower()}{slash}{path}".removesuffix("/")

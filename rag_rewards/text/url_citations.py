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


# Words of which the heading of a list of sources consists, in several languages.
_SOURCES = frozenset(
    "reference references referenced source sources sourced bibliography citation "
    "citations cited works literature link url footnote footnotes endnotes notes links "
    "urls reading see also quelle quellen quellenverzeichnis literatur "
    "literaturverzeichnis belege einzelnachweise référence références bibliographie "
    "referencia referencias fuente fuentes bibliografía referência referências fontes "
    "bibliografia fonte fonti riferimenti источник источники литература ссылки المراجع "
    "المصادر مراجع مصادر संदर्भ स्रोत 参考文献 参考资料 参考 来源 资料来源 引用 出典 "
    "参考資料 참고문헌 출처 참고 อ้างอิง แหล่งที่มา bronnen bronvermelding källor "
    "källförteckning kilder kildeliste lähteet kaynaklar kaynakça źródła źródło zdroje források "
    "surse izvori viri джерела източници πηγές αναφορές מקורות منابع sumber rujukan nguồn "
    "vyanzo".split()
)
_BESIDE_SOURCES = frozenset(
    "a an the and of for to this my our all list used consulted further external additional "
    "selected key main primary web online page pages website websites section here below evidence "
    "supporting und weiterführende et y e de des liens enlaces web".split()
)


def before_source_list(text: str) -> str:
    """Return a text without a list of sources under a heading in any form or language.

    A list of sources follows a line that consists of words such as "Sources", or a heading whose
    next line begins with a citation.

    >>> before_source_list("It is Paris [1](a).\\n\\n**Sources:**\\n- [1](a)")
    'It is Paris [1](a).\\n\\n'
    """
    at, heading_at = 0, -1
    for line in text.splitlines(keepends=True):
        citation = _CITATION.search(line)
        label = line if citation is None else line[: citation.start()]
        words = _WORDS.findall(_TAGS.sub(" ", label).lower())
        if not any(map(str.isalpha, "".join(words))):
            if heading_at >= 0 and citation is not None:
                return text[:heading_at]  # "**Where I looked**", and then lines of citations
        elif _is_label(words, line, citation):
            return text[:at]
        elif citation is None and _is_heading(line):
            heading_at = at
        else:
            heading_at = -1
        at += len(line)
    return text


def without_dumps(text: str) -> str:
    """Return a text without citations in a row that belong to no claim.

    Four citations can follow a claim, two of them in a line of their own, and one in a paragraph of
    its own.

    >>> without_dumps("It is Paris [1](a)[2](b).\\n\\n[1](a) [2](b) [3](c)")
    'It is Paris [1](a)[2](b).\\n\\n'
    """
    pieces, at, before = [], 0, 0
    run: list[re.Match[str]] = []
    in_line = False  # whether the run is in the line of a claim, at the end of which it ends
    for match in (*_CITATION.finditer(text), None):
        after = len(text) if match is None else match.start()
        if run:
            start, end = run[0].start(), run[-1].end()
            between = text[end:after]
            if match is None or (in_line and "\n" in between) or _has_words(between):
                if len(run) > _longest_run(text[before:start], between):
                    pieces.append(text[at:start])
                    at = end
                run, before = [], end
        if match is not None:
            if not run:
                in_line = _has_claim(_lines(text[before:after])[-1])
            run.append(match)
    return "".join((*pieces, text[at:]))


def _has_words(between: str) -> bool:
    """Return whether a text between two citations has a word of a claim."""
    return not (_SOURCES | _BESIDE_SOURCES).issuperset(_WORDS.findall(between.lower()))


def _longest_run(before: str, after: str) -> int:
    """Return how many citations in a row can be between two texts."""
    lines = _lines(before)
    if _has_claim(lines[-1]) or any(map(str.isalpha, _lines(after)[0])):
        return 4
    return 2 if lines[-2:-1] and lines[-2].strip() else 1


def _lines(text: str) -> list[str]:
    return _TAGS.sub(" ", text).split("\n")


def _has_claim(beginning: str) -> bool:
    """Return whether the beginning of a line has a word and is no label, such as "See:"."""
    return any(map(str.isalpha, beginning)) and not beginning.rstrip().endswith((":", "："))


def _is_label(words: list[str], line: str, citation: re.Match[str] | None) -> bool:
    """Return whether a line consists of words for sources, or begins with them and citations."""
    rest = "" if citation is None else _CITATION.sub("", line[citation.start() :])
    if len(words) > 8 or any(map(str.isalpha, rest)):
        return False
    return not _SOURCES.isdisjoint(words) and (_SOURCES | _BESIDE_SOURCES).issuperset(words)


def _is_heading(line: str) -> bool:
    """Return whether a line has the form of a heading."""
    bare = line.strip()
    return bare.startswith(("#", "<h", "==")) or (
        len(bare) < 80 and bare.endswith(("**", "__", "**:", ":", "："))
    )


_WORDS = re.compile(r"[^\W\d_]+(?:[\u0900-\u097f\u0e00-\u0e7f]+[^\W\d_]*)*")
_TAGS = re.compile(r"<[^<>]{0,100}>")


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

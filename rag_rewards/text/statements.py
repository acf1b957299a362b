"""Statements: the sentences, list items or parts in <cite> tags of an answer, with citations."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from rag_rewards.text.citations import markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.normalize import squad

_CJK_END = re.compile(
    r"(?<=[。！？])(?![。！？”’」』）])|(?<=[。！？][”’」』）])(?![。！？”’」』）])"
)
_LINES = re.compile(r"(?<=[^\n]\n)(?=[ \t]{0,8}\n)|(?<=\n)(?=[ \t]{0,8}(?:[-*•]|\d{1,3}[.)])[ \t])")
_NUMBERING = re.compile(r"\s{0,8}\d{1,3}\.\s+")
_ITEMS = re.compile(r"(?<=[,，、])")
_CUT = re.compile(r"[.!?。！？,，、\n]")  # where sentences and items are cut
_ENDERS = ".!?。！？"
_ENDS = re.compile(r"[.!?]|\n\r")  # the possible ends of a sentence in ASCII
_QUOTE = re.compile("['`\"«»‘’‚“”‛„‟‹›《》「」]")
_SURROGATES = re.compile("[\ud800-\udfff]")
# sentencex 1.0.32 panics on a single capital, one of these spaces and a full stop
# ("vitamin A\u00a0.").
_WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_WINDOW = 2000
_MANY_QUOTES = 64  # in one window


class Statement(msgspec.Struct, frozen=True, gc=False):
    """The text of a statement without markers, and the labels that it cites, each once."""

    text: str
    cited: tuple[str, ...]


def sentences(text: str) -> list[str]:
    """Cut a text into sentences, whose concatenation is the text.

    sentencex cuts Latin scripts. CJK text is cut at 。！？ and lists are cut at their lines.

    >>> sentences("Dr. Lee came. 他走了。她来了。")
    ['Dr. Lee came. ', '他走了。', '她来了。']
    """
    lines = _LINES.split(text) if "\n" in text else [text]
    result = [sentence for line in lines if line for sentence in _segment(line)]
    if text.isascii():
        return result
    return [piece for sentence in result for piece in _CJK_END.split(sentence) if piece]


def _segment(line: str) -> list[str]:
    """Cut a line with sentencex, one window at a time.

    sentencex is quadratic in the length of a paragraph, most of all with unclosed quotes, and
    loses characters between paragraphs beyond 10 kB. A window begins at the last sentence of the
    previous window.
    """
    if line.isascii() and not _ENDS.search(line):
        return [line]
    from sentencex import segment

    # Each replacement has one character, so that positions in the line do not change.
    readable = line if line.isascii() else _WIDE_SPACE.sub(" ", _SURROGATES.sub("\ufffd", line))
    out: list[str] = []
    begin, at = 0, 0  # the beginnings of the unfinished sentence and of the window
    while at < len(line):
        window = readable[at : at + _WINDOW]
        if len(window) > _MANY_QUOTES and len(_QUOTE.findall(window)) > _MANY_QUOTES:
            window = _QUOTE.sub("*", window)
        ends = list(accumulate(map(len, segment("en", window)), initial=at))[1:]
        if at + _WINDOW < len(line):
            ends.pop()  # the last sentence may continue beyond the window
        if not begin and ends and ends[0] < len(line) and _NUMBERING.fullmatch(line, 0, ends[0]):
            del ends[0]  # "1. Rome" is one sentence
        for end in ends:
            out.append(line[begin:end])
            begin = end
        at = begin if ends else at + _WINDOW
    if begin < len(line):
        out.append(line[begin:])
    return out


def statements(
    text: str,
    pattern: re.Pattern[str],
    *,
    items: bool = False,
    uncut: Collection[str] = (),
    documents: int | None = None,
) -> list[Statement]:
    """Cut an answer into statements, each with the labels that it cites.

    The markers are removed before the text is cut, so that they cannot mislead the splitter. A
    marker after a full stop belongs to the sentence before it. A piece without a word is not a
    statement, unless it contains a text of `uncut` without a word, such as an emoji. `items` cuts
    at commas instead of sentence ends. No cut is made inside a text of `uncut`, such as a name
    that contains a comma. `documents` is the number of documents, which limits the numbers of a
    range of citations.

    >>> from rag_rewards.text.citations import compiled
    >>> [(s.text, s.cited) for s in statements("A won. [1] B lost [2][3]. [2] C.", compiled())]
    [('A won.', ('1',)), ('B lost.', ('2', '3')), ('C.', ())]
    >>> [s.text for s in statements("Ys, Spam", compiled(), items=True, uncut=["ys, spam"])]
    ['Ys, Spam']
    """
    bare, cited_at = _without_markers(text, pattern, documents)
    pieces = [p for p in _ITEMS.split(bare) if p] if items else sentences(bare)
    pieces = _joined(bare, pieces, uncut)
    ends = list(accumulate(map(len, pieces)))
    cited: dict[int, dict[str, None]] = {}
    at, read = 0, set[tuple[int, int]]()
    for offset, labels in cited_at:
        while at + 1 < len(pieces) and ends[at] < offset:
            at += 1
        if pieces and (at, id(labels)) not in read:  # a marker can be repeated
            read.add((at, id(labels)))
            cited.setdefault(at, {}).update(dict.fromkeys(labels))
    symbols = [each for each in map(str.strip, uncut) if each and not _has_word(each)]
    out: list[tuple[str, dict[str, None]]] = []
    waiting: dict[str, None] = {}
    for i, piece in enumerate(pieces):
        own = cited.get(i) or {}
        clean = piece.strip(" \t\n.,，、") if items else piece.strip()
        if _has_word(clean) or any(symbol in clean for symbol in symbols):
            out.append((clean, waiting | own if waiting else own))
            waiting = {}
        else:  # "A won. … [1]": the piece is not a statement, but its citation counts
            (out[-1][1] if out else waiting).update(own)
    return [Statement(text, tuple(labels)) for text, labels in out]


def _has_word(text: str) -> bool:
    return text[:1].isalnum() or any(map(str.isalnum, text))


def _joined(text: str, pieces: list[str], uncut: Collection[str]) -> list[str]:
    """Join the pieces of a text that a text of `uncut` spans."""
    if len(pieces) < 2 or not (pattern := _pattern_of(tuple(uncut))):
        return pieces
    spans = pattern.finditer(text)
    span = next(spans, None)
    out: list[str] = []
    is_open, end = False, 0
    for piece in pieces:
        if is_open:
            out[-1] += piece
        else:
            out.append(piece)
        end += len(piece)
        while span and span.end() <= end:
            span = next(spans, None)
        is_open = span is not None and span.start() < end
    return out


@lru_cache(maxsize=64)
def _pattern_of(uncut: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern of the texts that contain a place for a cut, or None without any."""
    inner = [each for each in map(str.strip, uncut) if _CUT.search(each[:-1])]
    longest_first = "|".join(map(re.escape, sorted(inner, key=len, reverse=True)))
    return re.compile(rf"(?<!\w)(?:{longest_first})", re.IGNORECASE) if inner else None


def merged(parts: Sequence[Statement]) -> list[Statement]:
    """Return equal statements as one with all their citations, so that guessing does not pay."""
    cited: dict[str, dict[str, None]] = {}
    first: dict[str, str] = {}
    for statement in parts:
        form = squad(statement.text)
        first.setdefault(form, statement.text)
        cited.setdefault(form, {}).update(dict.fromkeys(statement.cited))
    return [Statement(first[form], tuple(labels)) for form, labels in cited.items()]


def _without_markers(
    text: str, pattern: re.Pattern[str], documents: int | None
) -> tuple[str, list[tuple[int, tuple[str, ...]]]]:
    """Return the text without markers, and the position in it and the labels of each marker."""
    text_markers = markers(text, pattern, documents)
    if not text_markers:
        return text, []
    pieces: list[str] = []
    cited_at: list[tuple[int, tuple[str, ...]]] = []
    length, at = 0, 0
    for marker in text_markers:
        piece = text[at : marker.start].rstrip()
        at = marker.end
        if piece:
            pieces.append(piece)
            length += len(piece)
        cited_at.append((length, marker.labels))
        if text[at : at + 1].isalnum() and pieces and pieces[-1][-1:] in _ENDERS:
            pieces.append(" ")  # "Claim.[1]Next" is two sentences
            length += 1
    pieces.append(text[at:])
    return "".join(pieces), cited_at


_TAG = re.compile(r"</cite>|<cite\s{1,8}id=([^<>]{1,1000})>|(?i:</?cite\b[^<>]{0,1000}>)")
_ATTRIBUTE = re.compile(r"\s[\w-]+\s?=")
# The tags while hidden text is removed, which removes attributes as well.
_BRACKETS = str.maketrans("⟦⟧", "[]")
_MARK = re.compile("⟦([^⟦⟧]*)⟧")
_SEPARATOR = re.compile(r"[,\s]+")


def cited_claims(text: str) -> list[Statement]:
    """Return the parts of a text inside and between <cite> tags, each with the ids that it cites.

    Parts without a word and hidden text are left out. A tag that is not closed before another tag,
    or whose first attribute is no id, has no effect. Other attributes are ignored. Ids are
    separated by commas or white space. Equal parts are one part, which cites the ids of all.

    >>> parts = cited_claims('It is old. <cite id="a1,b2">It opened in 1881.</cite>')
    >>> [(part.text, part.cited) for part in parts]
    [('It is old.', ()), ('It opened in 1881.', ('a1', 'b2'))]
    """
    marked = _TAG.sub(_mark, text.translate(_BRACKETS))
    pieces = _MARK.split(shown(marked))  # text, ids, text, ids, …, text
    cited: dict[str, dict[str, None]] = {}
    before = [pieces[0]]
    marks = pieces[1::2]
    for i, (ids, part) in enumerate(zip(marks, pieces[2::2], strict=True)):
        if ids and i + 1 < len(marks) and not marks[i + 1]:  # an opening and its closing tag
            _add(cited, "".join(before), "")
            _add(cited, part, ids)
            before = []
        else:
            before.append(part)
    _add(cited, "".join(before), "")
    return [Statement(part, tuple(filter(None, ids))) for part, ids in cited.items()]


def _mark(tag: re.Match[str]) -> str:
    """Return a mark with the ids of a tag, without ids for a closing tag; else an empty text."""
    if tag[0] == "</cite>":
        return "⟦⟧"
    if not shown(f"{tag[0]}x").strip():
        return tag[0]  # an element that hides its content
    value = (tag[1] or "").strip()
    quoted = value[:1] in ("'", '"') and value[1:].partition(value[0])[0]
    ids = quoted or _ATTRIBUTE.split(value, 1)[0]
    return f"⟦{ids}⟧" if ids.strip("\"' ") else ""


def _add(cited: dict[str, dict[str, None]], part: str, ids: str) -> None:
    part = part.strip()
    if any(map(str.isalnum, part)):
        cited.setdefault(part, {}).update(dict.fromkeys(_SEPARATOR.split(ids)))

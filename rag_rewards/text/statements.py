"""Statements: the sentences, or list items, of an answer, each with what it cites."""

from __future__ import annotations

import re
from itertools import accumulate

import msgspec

from rag_rewards.text.citations import markers

_CJK_END = re.compile(
    r"(?<=[。！？])(?![。！？”’」』）])|(?<=[。！？][”’」』）])(?![。！？”’」』）])"
)
_LINES = re.compile(r"(?<=[^\n]\n)(?=[ \t]{0,8}\n)|(?<=\n)(?=[ \t]{0,8}(?:[-*•]|\d{1,3}[.)])[ \t])")
_NUMBERING = re.compile(r"\s{0,8}\d{1,3}\.\s+")
_ITEMS = re.compile(r"(?<=[,，、])")
_ENDERS = ".!?。！？"
_ENDS = re.compile(r"[.!?]|\n\r")  # what may end a sentence in ASCII
_QUOTE = re.compile("['`\"«»‘’‚“”‛„‟‹›《》「」]")
_SURROGATES = re.compile("[\ud800-\udfff]")
# sentencex 1.0.32 panics on a lone capital, one of these and a full stop ("vitamin A\u00a0.").
_WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_WINDOW = 2000
_MANY_QUOTES = 64  # in one window


class Statement(msgspec.Struct, frozen=True, gc=False):
    """One statement without its markers, and the labels it cites, each once, as written."""

    text: str
    cited: tuple[str, ...]


def sentences(text: str) -> list[str]:
    """Cut a text into sentences; joined again they are the text.

    Latin scripts by sentencex, CJK at 。！？, list items at their line.

    >>> sentences("Dr. Lee came. 他走了。她来了。")
    ['Dr. Lee came. ', '他走了。', '她来了。']
    """
    lines = _LINES.split(text) if "\n" in text else [text]
    found = [sentence for line in lines if line for sentence in _segment(line)]
    if text.isascii():
        return found
    return [piece for sentence in found for piece in _CJK_END.split(sentence) if piece]


def _segment(line: str) -> list[str]:
    """sentencex, a window at a time.

    It is quadratic in the text between two paragraphs, worst where quotes do not close, and
    loses characters between paragraphs beyond 10 kB. A window begins where the last sentence of
    the one before began.
    """
    if line.isascii() and not _ENDS.search(line):
        return [line]
    from sentencex import segment

    # Each replacement has one character, so that positions in the line stay the same.
    readable = line if line.isascii() else _WIDE_SPACE.sub(" ", _SURROGATES.sub("\ufffd", line))
    out: list[str] = []
    begun, at = 0, 0  # where the unfinished sentence and the window begin
    while at < len(line):
        window = readable[at : at + _WINDOW]
        if len(window) > _MANY_QUOTES and len(_QUOTE.findall(window)) > _MANY_QUOTES:
            window = _QUOTE.sub("*", window)
        ends = list(accumulate(map(len, segment("en", window)), initial=at))[1:]
        if at + _WINDOW < len(line):
            ends.pop()  # its end may lie beyond the window
        if not begun and ends and ends[0] < len(line) and _NUMBERING.fullmatch(line, 0, ends[0]):
            del ends[0]  # "1. Rome" is one sentence
        for end in ends:
            out.append(line[begun:end])
            begun = end
        at = begun if ends else at + _WINDOW
    if begun < len(line):
        out.append(line[begun:])
    return out


def statements(text: str, pattern: re.Pattern[str], *, items: bool = False) -> list[Statement]:
    """Cut an answer into statements and give each the markers that belong to it.

    Markers are taken out first, so that they cannot mislead the splitter, and put back by
    position: one that follows a closing full stop belongs to the sentence before it. Statements
    without a word are none. `items` cuts at commas instead.

    >>> from rag_rewards.text.citations import compiled
    >>> [(s.text, s.cited) for s in statements("A won. [1] B lost [2][3]. [2] C.", compiled())]
    [('A won.', ('1',)), ('B lost.', ('2', '3')), ('C.', ())]
    """
    bare, cited_at = _take_out(text, pattern)
    pieces = [p for p in _ITEMS.split(bare) if p] if items else sentences(bare)
    ends = list(accumulate(map(len, pieces)))
    cited: dict[int, dict[str, None]] = {}
    at = 0
    for offset, labels in cited_at:
        while at + 1 < len(pieces) and ends[at] < offset:
            at += 1
        if pieces:
            cited.setdefault(at, {}).update(dict.fromkeys(labels))
    out: list[tuple[str, dict[str, None]]] = []
    waiting: dict[str, None] = {}
    for i, piece in enumerate(pieces):
        own = cited.get(i) or {}
        clean = piece.strip(" \t\n.,，、") if items else piece.strip()
        if any(map(str.isalnum, clean)):
            out.append((clean, waiting | own if waiting else own))
            waiting = {}
        else:  # "A won. … [1]": no statement, but its citation is none the less one
            (out[-1][1] if out else waiting).update(own)
    return [Statement(text, tuple(labels)) for text, labels in out]


def _take_out(text: str, pattern: re.Pattern[str]) -> tuple[str, list[tuple[int, tuple[str, ...]]]]:
    """The text without markers, and for each marker where it stood in it and what it cites."""
    found = markers(text, pattern)
    if not found:
        return text, []
    kept: list[str] = []
    cited_at: list[tuple[int, tuple[str, ...]]] = []
    length, at = 0, 0
    for marker in found:
        piece = text[at : marker.start].rstrip()
        at = marker.end
        if piece:
            kept.append(piece)
            length += len(piece)
        cited_at.append((length, marker.labels))
        if text[at : at + 1].isalnum() and kept and kept[-1][-1:] in _ENDERS:
            kept.append(" ")  # "Claim.[1]Next" is two sentences
            length += 1
    kept.append(text[at:])
    return "".join(kept), cited_at

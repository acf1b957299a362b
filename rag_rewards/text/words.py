"""A text as a stream of words, each with the punctuation written directly around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from rag_rewards.text import quantities
from rag_rewards.text.normalize import ARTICLES, Normalizer, Unicode, lower, tokens

_SPLIT = re.compile(r"[^\s/|]+|[/|]|\n")
EDGES = ".,;:!?()[]{}\"'*_`—。，、；：！？“”‘’«»「」『』…"


class Word(msgspec.Struct, frozen=True, gc=False):
    """The normalized pieces of one written word, and the marks directly before and after it."""

    text: str
    pieces: tuple[str, ...]
    before: str
    after: str


def read_words(text: str, normalize: Normalizer) -> list[Word]:
    """Return the words of a text. An article has no pieces if the normalizer removes articles."""
    out: list[Word] = []
    pending, quotes = "", 0
    pieces_of_word: dict[str, tuple[str, ...]] = {}
    for match in _SPLIT.finditer(text):
        token = match[0]
        if token in "/|\n":  # noqa: S105 (no password)
            if out:
                last = out[-1]
                out[-1] = Word(last.text, last.pieces, last.before, _few(last.after + token))
            continue
        if token.isascii() and token.isalnum():
            # Every normalizer keeps a plain word as it is, or removes it as an article.
            dropped = token in ARTICLES and normalize is not lower
            out.append(Word(token, () if dropped else (token,), _few(pending), ""))
            pending = ""
            continue
        if token.isalnum():
            pieces = pieces_of_word.get(token) or pieces_of(token, normalize)
            pieces_of_word[token] = pieces
            out.append(Word(token, pieces, _few(pending), ""))
            pending = ""
            continue
        core = token.strip(EDGES)
        start = token.find(core) if core else len(token)
        quotes += token.count('"') if core else 0
        if (
            core[:1].isdigit()
            and token[start - 1 : start] == "."
            and token[start - 2 : start - 1] != "."
        ):
            start, core = start - 1, f".{core}"  # the number .5
        before, after = token[:start], token[start + len(core) :]
        if not core:
            opens = token[0] in "“「『([{" or (token[0] == '"' and quotes % 2 == 0)
            quotes += token.count('"')
            if out and not opens:
                last = out[-1]
                out[-1] = Word(last.text, last.pieces, last.before, _few(last.after + token))
            else:
                pending += token
            continue
        word = core + after[:1] if after[:1] in ("+", "#", "%", "-") else core
        if normalize is not lower and core in ARTICLES:
            pieces = ()
        elif word in pieces_of_word:
            pieces = pieces_of_word[word]
        else:
            pieces = pieces_of_word[word] = pieces_of(word, normalize)
        out.append(Word(core, pieces, _few(pending + before), _few(after)))
        pending = ""
    if isinstance(normalize, Unicode) and (normalize.numbers or normalize.dates):
        return _merged(out, normalize)
    return out


def joined(words: Sequence[str]) -> str:
    """Return words as one text, which can be searched for other joined words."""
    return "\x00" + "\x00".join(words) + "\x00"


def positions_of(needle: str, text: str) -> Iterator[int]:
    """Yield the positions of joined words in longer joined words, with one linear search."""
    at, counted, start = text.find(needle), 0, 0
    while at >= 0:
        counted += text.count("\x00", start, at)
        start = at
        yield counted
        at = text.find(needle, at + 1)


def _few(marks: str) -> str:
    """Return the marks; of more than 16 marks, each kind once, so that the time stays linear."""
    return marks if len(marks) <= 16 else "".join(dict.fromkeys(marks))


def pieces_of(word: str, normalize: Normalizer) -> tuple[str, ...]:
    """Return the tokens of a word in its normalized form."""
    return tuple(tokens(normalize(word)))


def _merged(words: list[Word], normalize: Unicode) -> list[Word]:
    """Return words in which a number or a date ("1 million", "5 March 1999") is one word."""
    plain = [" ".join(word.pieces) or word.text for word in words]
    spans = [(text, 1) for text in plain]
    if normalize.dates:
        spans = quantities.date_spans(plain)
    if normalize.numbers:
        spans = quantities.number_spans(spans)
    merged, at = [], 0
    for text, taken in spans:
        first, last = words[at], words[at + taken - 1]
        changed = taken > 1 or text != plain[at]
        pieces = (text,) if changed else first.pieces
        merged.append(Word(first.text, pieces, first.before, last.after))
        at += taken
    return merged

"""A text as a stream of words, each with the punctuation written directly around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import msgspec

from rag_rewards.text import quantities
from rag_rewards.text.normalize import ARTICLES, Normalizer, Unicode, lower, tokens

_SPLIT = re.compile(r"[^\s/|]+|[/|]|\n")
_SEPARATOR = re.compile(r"[/|\n]")  # a token of its own; other tokens are between spaces
EDGES = ".,;:!?()[]{}\"'*_`—。，、；：！？“”‘’«»「」『』…"


class Word(msgspec.Struct, frozen=True, gc=False):
    """The normalized pieces of one written word, and the marks directly before and after it."""

    text: str
    pieces: tuple[str, ...]
    before: str
    after: str


def read_words(text: str, normalize: Normalizer) -> list[Word]:
    """Return the words of a text. An article has no pieces if the normalizer removes articles."""
    split = _SPLIT.findall(text) if _SEPARATOR.search(text) else text.split()
    read_token = _cached_reader(normalize)
    read = [
        read_token(token) if len(token) <= _LONGEST else _read(token, normalize) for token in split
    ]
    out = [word for word in read if word is not None]
    if len(out) < len(read):
        out = _with_marks(split, read)
    if isinstance(normalize, Unicode) and (normalize.numbers or normalize.dates):
        return _merged(out, normalize)
    return out


def _with_marks(split: Sequence[str], words: Sequence[Word | None]) -> list[Word]:
    """Return words with the marks of the tokens beside them that have only marks."""
    out: list[Word] = []
    pending, quotes = "", 0
    for token, word in zip(split, words, strict=True):
        if word is None:
            if token in "/|\n":  # noqa: S105 (no password)
                if out:
                    out[-1] = _followed(out[-1], token)
                continue
            opens = token[0] in "“「『([{" or (token[0] == '"' and quotes % 2 == 0)
            if out and not opens:
                out[-1] = _followed(out[-1], token)
            else:
                pending += token
        elif pending:
            out.append(Word(word.text, word.pieces, _few(pending + word.before), word.after))
            pending = ""
        else:
            out.append(word)
        if '"' in token:
            quotes += token.count('"')
    return out


_LONGEST = 40  # characters of a token whose word is cached


def _read(token: str, normalize: Normalizer) -> Word | None:
    """Return the word of a token, or None if the token has only marks."""
    if token.isascii() and token.isalnum():
        # Every normalizer keeps a plain word as it is, or removes it as an article.
        dropped = token in ARTICLES and normalize is not lower
        return Word(token, () if dropped else (token,), "", "")
    core = token.strip(EDGES)
    if not core or token in "/|\n":  # noqa: S105 (no password)
        return None
    start = token.find(core)
    if core[0].isdigit() and start and token[start - 1] == "." != token[start - 2 : start - 1]:
        start, core = start - 1, f".{core}"  # the number .5
    before, after = token[:start], token[start + len(core) :]
    word = core + after[:1] if after[:1] in ("+", "#", "%", "-") else core
    dropped = normalize is not lower and core in ARTICLES
    pieces = () if dropped else pieces_of(word, normalize)
    return Word(core, pieces, _few(before), _few(after))


@lru_cache(maxsize=16)
def _cached_reader(normalize: Normalizer) -> Callable[[str], Word | None]:
    return lru_cache(maxsize=65536)(partial(_read, normalize=normalize))


def _followed(word: Word, marks: str) -> Word:
    return Word(word.text, word.pieces, word.before, _few(word.after + marks))


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

"""The length of a text in words, in characters, or in both where a script has no spaces."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from functools import cache
from itertools import islice
from typing import Any

_WORD = re.compile(r"\S+")
_MARKED = bytes(ord(" ") if chr(byte).isspace() else ord("x") for byte in range(256))


def words(text: str) -> int:
    """Return the number of words between white space: len(text.split()).

    >>> words(" two\\twords ")
    2
    """
    return _ascii_words(text) if text.isascii() else len(text.split())


def _ascii_words(text: str) -> int:
    # Counting the beginnings of words creates no words.
    return f" {text}".encode().translate(_MARKED).count(b" x")


def characters(text: str) -> int:
    """Return the number of characters that are not white space.

    >>> characters(" two\\twords "), characters("法国的首都")
    (8, 5)
    """
    return sum(map(len, text.split()))


def auto_length(text: str) -> int:
    """Return the number of words, where a character of a script without spaces is a word.

    These scripts are Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan. A mark above or
    below a letter belongs to the letter. The result of all other texts is that of `words`.

    >>> auto_length("in 法国 it is"), auto_length("パリ"), auto_length("São Paulo")
    (5, 2, 2)
    """
    return _ascii_words(text) if text.isascii() else len(_spaced(text).split())


def auto_words(text: str) -> list[str]:
    """Return the words that `auto_length` counts.

    >>> auto_words("in 法国 it is")
    ['in', '法', '国', 'it', 'is']
    """
    return text.split() if text.isascii() else _spaced(text).split()


def _spaced(text: str) -> str:
    """Return a text with spaces around each letter of a script without spaces."""
    if _MAY_BE_UNSPACED.search(text) is None:
        return text
    return str(_unspaced_letter().sub(r" \g<0> ", text))


def first_words(text: str, count: int) -> str:
    """Return the beginning of a text with at most this number of words of `auto_words`.

    >>> first_words("in 法国 it is", 2), first_words("one two", 5)
    ('in 法', 'one two')
    """
    words = _WORD.finditer(text) if text.isascii() else _any_word().finditer(text)
    last = next(islice(words, count, None), None)
    return text if last is None else text[: last.start()].rstrip()


def chunks(text: str, count: int) -> list[str]:
    """Cut a text into consecutive parts of at most this number of words of `auto_words`.

    >>> chunks("one two three", 2), chunks("in 法国", 2), chunks(" ", 2)
    (['one two', 'three'], ['in 法', '国'], [])
    """
    words = _WORD.finditer(text) if text.isascii() else _any_word().finditer(text)
    starts = [word.start() for word in islice(words, 0, None, count)]
    ends = [*starts[1:], len(text)]
    return [text[start:end].rstrip() for start, end in zip(starts, ends, strict=False)]


def is_unspaced(word: str) -> bool:
    """Return whether a word of `auto_words` is a character of a script without spaces.

    >>> is_unspaced("法"), is_unspaced("Paris")
    (True, False)
    """
    return not word.isascii() and _unspaced_letter().fullmatch(word) is not None


# The long vowel mark of Japanese belongs to two scripts, and therefore to neither.
_UNSPACED = (
    r"[[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\p{Tibetan}ー]&&[\p{L}\p{N}]]"
)


_MAY_BE_UNSPACED = re.compile("[\u0e00-\U0010ffff]")
"""A fast pattern: all letters of scripts without spaces are beyond those of most other scripts."""


@cache
def _unspaced_letter() -> Any:
    import regex  # imported here because only text beyond ASCII needs its character classes

    return regex.compile(rf"{_UNSPACED}\p{{M}}*", regex.V1)


@cache
def _any_word() -> Any:
    import regex

    return regex.compile(rf"{_UNSPACED}\p{{M}}*|[\S--{_UNSPACED}]+", regex.V1)


# Marks that join words, as in "of_the_city". Apostrophes and hyphens do so from three on, and full
# stops do so between words, but not in abbreviations and numbers.
_GLUE = re.compile(r"_|[^\w'’.,\-]|(?<=[^\W\d_]{2})[.,]{1,3}(?=[^\W\d_])")
_WEAK_GLUE = re.compile(r"['’\-.,]")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_WORD = 24  # letters
_LONGEST_JOINT = 2  # letters or digits between two words of the documents, as in "thexcity"
_LETTERS_OF_CHARACTER = 3  # a translation has about so many for each Chinese character
_SHORT_WORD = 0.75  # of the mean length: glued words can be shorter than the others


def separated_length(text: str, documents: Sequence[str], length: int) -> int:
    """Return the number of words in a text, also if nothing or a mark separates them.

    A run of characters that consists of words of the documents counts as these words. A longer run
    counts as the words that its letters would fill in the documents, whose length is `length`. If
    their script has no spaces, three letters of another script count as a word.

    >>> separated_length("The_city liesOn theSeine", ["The city lies on the Seine"], 6)
    6
    """
    words = [word for document in documents for word in _letters(document.casefold()).split()]
    mean = sum(map(len, words)) / length if length else 1.0
    known = frozenset(words)
    mean *= _SHORT_WORD
    return sum(_words_in(run, known, mean) if len(run) > 1 else 1 for run in auto_words(text))


def _words_in(run: str, known: Collection[str], mean: float) -> int:
    """Return the number of words in a run of characters without white space, at least 1."""
    count = 0
    for part in _GLUE.split(run):
        parts = _WEAK_GLUE.split(part) if len(_WEAK_GLUE.findall(part)) > 2 else [part]
        for piece in parts:
            word = "".join(_letters(piece.casefold()).split())
            if len(word) > _LONGEST_WORD:
                count += math.ceil(len(word) / max(mean, 1))
            elif word:
                fewest = _fewest_words(word, known, len(_CAPITAL.split(piece)))
                if mean < 1 and word.isalpha():
                    fewest = max(fewest, math.ceil(len(word) / _LETTERS_OF_CHARACTER))
                count += fewest
    return count or 1


def _fewest_words(word: str, known: Collection[str], otherwise: int) -> int:
    """Return the smallest number of known words that a word consists of, or `otherwise`.

    One or two letters or digits can join two known words.
    """
    if word in known:
        return 1
    fewest: list[int] = [0] + [0] * len(word)
    for end in range(1, len(word) + 1):
        counts: list[int] = []
        for start in range(end):
            if word[start:end] not in known:
                continue
            if fewest[start] or not start:
                counts.append(fewest[start] + 1)
            elif end - start > 1:
                before = fewest[max(start - _LONGEST_JOINT, 1) : start]
                counts += [count + 1 for count in before if count]
        fewest[end] = min(counts, default=0)
    return fewest[-1] or otherwise


def _letters(text: str) -> str:
    return "".join(char if char.isalnum() else " " for char in text)

"""The length of a text in words, in characters, or in both where a script has no spaces."""

from __future__ import annotations

import re
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
    if not text.isascii():
        return len(text.split())
    marked = text.encode().translate(_MARKED)  # counting word beginnings creates no words
    return marked.count(b" x") + marked.startswith(b"x")


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
    if text.isascii():
        return words(text)
    return len(_spaced(text).split())


def auto_words(text: str) -> list[str]:
    """Return the words that `auto_length` counts.

    >>> auto_words("in 法国 it is")
    ['in', '法', '国', 'it', 'is']
    """
    return text.split() if text.isascii() else _spaced(text).split()


def _spaced(text: str) -> str:
    return str(_unspaced_letter().sub(r" \g<0> ", text))


def first_words(text: str, count: int) -> str:
    """Return the beginning of a text with at most this number of words of `auto_words`.

    >>> first_words("in 法国 it is", 2), first_words("one two", 5)
    ('in 法', 'one two')
    """
    words = _WORD.finditer(text) if text.isascii() else _any_word().finditer(text)
    last = next(islice(words, count, None), None)
    return text if last is None else text[: last.start()].rstrip()


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


@cache
def _unspaced_letter() -> Any:
    import regex  # imported here because only text beyond ASCII needs its character classes

    return regex.compile(rf"{_UNSPACED}\p{{M}}*", regex.V1)


@cache
def _any_word() -> Any:
    import regex

    return regex.compile(rf"{_UNSPACED}\p{{M}}*|[\S--{_UNSPACED}]+", regex.V1)

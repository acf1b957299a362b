"""The length of a text in words, in characters, or in both where a script has no spaces."""

from __future__ import annotations

from functools import cache
from typing import Any

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


def is_unspaced(word: str) -> bool:
    """Return whether a word of `auto_words` is a character of a script without spaces.

    >>> is_unspaced("法"), is_unspaced("Paris")
    (True, False)
    """
    return not word.isascii() and _unspaced_letter().fullmatch(word) is not None


@cache
def _unspaced_letter() -> Any:
    import regex  # imported here because only text beyond ASCII needs its character classes

    scripts = "Han Hiragana Katakana Bopomofo Thai Lao Khmer Myanmar Tibetan".split()
    classes = "".join(rf"\p{{{script}}}" for script in scripts)
    # The long vowel mark of Japanese belongs to two scripts, and therefore to neither.
    return regex.compile(rf"[[{classes}ー]&&[\p{{L}}\p{{N}}]]\p{{M}}*", regex.V1)

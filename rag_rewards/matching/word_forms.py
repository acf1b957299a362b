"""Forms of words for lenient comparisons: plain words, and words without endings."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rag_rewards.matching.values import ordinal_of
from rag_rewards.text import quantities
from rag_rewards.text.normalize import fold

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*")
# The vowels of Indic scripts are marks, which are no letters for `re`.
_INDIC = re.compile("[\u0900-\u0dff]")
_INDIC_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u0963\u0971-\u0dff])+|\d+(?:[.,]\d+)*")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f]")
_SHORT_RANGE = re.compile(r"\b(\d\d)(\d\d)\s?[-–—/]\s?(\d\d)\b(?!\d)")
_LONGEST_WORD = 40  # letters of a word that is kept in memory
_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th"))


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, with numbers as digits and without accents."""
    text = plain(_SHORT_RANGE.sub(r"\1\2 \1\3", text))  # 1979–80 is 1979 to 1980
    pattern = _WORD if text.isascii() or not _INDIC.search(text) else _INDIC_WORD
    words: list[str] = []
    for word in pattern.findall(text):
        if is_number(word):
            number = word.replace(",", "")
            words.append(number.rstrip("0").rstrip(".") if "." in number else number)
        elif word not in _ORDINAL_ENDINGS or not words or not words[-1].isdecimal():
            word = word.removesuffix("'s")
            value = ordinal_of(word)
            words.append(str(value.number) if value else word)
    return quantities.numbers(words)


def plain(text: str) -> str:
    """Return a text in lower case without accents."""
    text = fold(text)
    return text if text.isascii() else _ACCENT.sub("", unicodedata.normalize("NFD", text))


def stem(word: str) -> str:
    """Return a word without the ending of a plural, a participle or a demonym.

    >>> [stem(word) for word in ("vesicles", "countries", "classes", "painted", "colombian")]
    ['vesicl', 'country', 'class', 'paint', 'colomb']
    """
    return _stem_once(word) if len(word) <= _LONGEST_WORD else _stem(word)


def _stem(word: str) -> str:
    if len(word) <= 4:
        return word
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss"):
            word = word.removesuffix(ending) + replacement
            break
    for ending in ("ing", "ed", "ian", "ean", "an", "ish", "ese", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


_stem_once = lru_cache(maxsize=65536)(_stem)


def is_alike(first: str, second: str) -> bool:
    """Return whether two stems begin alike: "magnetis" and "magnetic", "john" and "johnny"."""
    common = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        common += 1
    longer, shorter = max(len(first), len(second)), min(len(first), len(second))
    if common >= 5 and common >= 0.7 * longer:
        return True
    return common >= 4 and common == shorter and longer - common <= 4


def is_number(word: str) -> bool:
    """Return whether a word begins with a digit."""
    return word[0].isdecimal()

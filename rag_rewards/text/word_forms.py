"""Forms of words for lenient comparisons: plain words, stems, acronyms and rounded numbers."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rag_rewards.text import quantities
from rag_rewards.text.normalize import fold

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*")
# The vowels of Indic scripts are marks, which are no letters for `re`.
_INDIC = re.compile("[\u0900-\u0dff]")
_INDIC_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u0963\u0971-\u0dff])+|\d+(?:[.,]\d+)*")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f]")
_DIGITS_AND_LETTERS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_SHORT_RANGE = re.compile(r"\b(\d\d)(\d\d)\s?[-–—/]\s?(\d\d)\b(?!\d)")
YEAR = re.compile(r"\d{4}")
_DECIMAL = re.compile(r"\d{1,30}(?:\.\d{1,30})?")
_ACRONYM = re.compile(r"\b[A-Z]{2,6}\b")
ORDINALS = {
    word: str(value)
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth "
        "twentieth".split(),
        start=1,
    )
}
_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th"))


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, with numbers as digits and without accents."""
    text = plain(_SHORT_RANGE.sub(r"\1\2 \1\3", text))  # 1979–80 is 1979 to 1980
    pattern = _WORD if text.isascii() or not _INDIC.search(text) else _INDIC_WORD
    words: list[str] = []
    for word in pattern.findall(_DIGITS_AND_LETTERS.sub(" ", text)):
        if is_number(word):
            number = word.replace(",", "")
            words.append(number.rstrip("0").rstrip(".") if "." in number else number)
        elif word not in _ORDINAL_ENDINGS or not words or not words[-1].isdecimal():
            word = word.removesuffix("'s")
            words.append(ORDINALS.get(word, word))
    return quantities.numbers(words)


def plain(text: str) -> str:
    """Return a text in lower case without accents."""
    text = fold(text)
    if text.isascii():
        return text
    split = unicodedata.normalize("NFD", text)
    return _ACCENT.sub("", split)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without the ending of a plural, a participle or a demonym.

    >>> [stem(word) for word in ("vesicles", "countries", "painted", "colombian")]
    ['vesicl', 'country', 'paint', 'colomb']
    """
    if len(word) > 4:
        word = singular(word)
        for ending in ("ing", "ed", "ian", "ean", "an", "ish", "ese", "ly", "e"):
            if word.endswith(ending) and len(word) - len(ending) >= 4:
                return word.removesuffix(ending)
    return word


def singular(word: str) -> str:
    """Return a word without the ending of a plural.

    >>> [singular(word) for word in ("vesicles", "countries", "classes", "class", "bus")]
    ['vesicle', 'country', 'class', 'class', 'bus']
    """
    if len(word) > 4:
        for ending, replacement in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
            if word.endswith(ending) and not word.endswith("ss"):
                return word.removesuffix(ending) + replacement
    return word


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


def is_rounded(number: str, gold: str) -> bool:
    """Return whether two numbers agree in the digits of the rounder one, at least three.

    Years, and numbers with several points ("1.2.3"), are not rounded.
    """
    for written in (number, gold):
        if YEAR.fullmatch(written) or not _DECIMAL.fullmatch(written):
            return False
    digits = min(_significant(number), _significant(gold))
    return digits >= 3 and f"{float(number):.{digits}g}" == f"{float(gold):.{digits}g}"


def _significant(number: str) -> int:
    digits = number.replace(".", "").lstrip("0")
    return len(digits if "." in number else digits.rstrip("0"))


def acronyms_in(text: str) -> set[str]:
    """Return the acronyms of two to six capitals in a text, with or without periods.

    >>> acronyms_in("The U.S. and NATO") == {"US", "NATO"}
    True
    """
    return set(_ACRONYM.findall(text.replace(".", "")))

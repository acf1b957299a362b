"""One spelling for answers that differ only in punctuation without a meaning.

U.S. and US, 1,000 and 1000, Coca-Cola and Coca Cola, C.S. Lewis and C. S. Lewis, 6 p.m. and 6 pm,
15cm and 15 cm, 50 % and 50%, Marks & Spencer and Marks and Spencer.
"""

from __future__ import annotations

import re

_SPACED_SIGN = re.compile(r"(?<=\d)[ \t\xa0]{1,4}(?=[%‰])|(?<=[$€£¥])[ \t\xa0]{1,4}(?=\d)")
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")
_DOTTED = re.compile(r"(?<![\w.])[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+(?![\w.])")
_INITIALS = re.compile(r"(?<!\S)[a-z](?: [a-z])+(?!\S)")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_UNIT = re.compile(r"(?<![\w.,])(\d[\d.]*)([a-z]{1,3})(?!\w)")


def with_words_for_signs(text: str) -> str:
    """Return a text without spaces beside the signs of amounts, and with "and" for "&".

    >>> with_words_for_signs("A & B earn 50 % or $ 5")
    'A  and  B earn 50% or $5'
    """
    return _SPACED_SIGN.sub("", text.replace("&", " and "))


def one_spelling(normal: str) -> str:
    """Return the common spelling of a normalized text.

    >>> [one_spelling(each) for each in ("u.s", "1,000", "coca-cola", "c s lewis", "15cm")]
    ['us', '1000', 'coca cola', 'cs lewis', '15 cm']
    >>> [one_spelling(each) for each in ("3.14", "10:30", "-5", "2-1", "c++", "1,5")]
    ['3.14', '10:30', '-5', '2-1', 'c++', '1,5']
    """
    normal = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), normal)
    normal = _UNIT.sub(r"\1 \2", _HYPHEN.sub(" ", normal))
    normal = _DOTTED.sub(lambda match: match[0].replace(".", ""), normal)
    return _INITIALS.sub(lambda match: match[0].replace(" ", ""), normal)

"""Words in a form that can be compared: numbers as digits, no accents, no plurals.

    São → sao, colours → colour, twenty-five → 25, 5 million → 5000000, $5 → 5 dollar, 2nd → 2nd,
    second → 2nd, Nov. → november, km → kilometer, World War II → world war 2, Coca-Cola → coca cola

A word of the text can have several comparable words, and several words ("5 million") can have one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text import quantities
from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.word_forms import ORDINALS, plain, singular

_LONGEST_WORD = 60  # characters of a word whose comparable words are cached
_PART = re.compile(
    r"(?=[-.\d])(?P<number>(?<![^\W\d_])(?:(?<![\d.,])-)?(?:\d+(?:,\d{3})*|(?=\.\d))(?:[.:]\d+)*)"
    r"(?P<ordinal>(?:st|nd|rd|th)(?![^\W_]))?(?P<decade>'?s(?![^\W_]))?"
    r"|(?P<word>(?:[^\W_]|[\u0900-\u0963\u0971-\u0dff\u0e31-\u0e4e])+(?:\+{1,2}|\#|-$)?)|(?P<symbol>[%$€£¥₹₱&])"
)
_SHORT_RANGE = re.compile(r"-(?<!\d{5}-)(?<=(\d\d)\d\d-)(?=\d\d(?![-\d]))")
_ISO_DATE = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)", re.ASCII)
_BETWEEN_LETTERS = re.compile(r"[.'](?<=[^\W\d_].)(?=[^\W\d_])")
_ORDINAL_WORDS = {
    word: value + {"1": "st", "2": "nd", "3": "rd"}.get(value, "th")
    for word, value in ORDINALS.items()
}
_NAME_OF_MONTH = {number: name for name, number in reversed(quantities.MONTHS.items())}
MONTH_NAMES = frozenset(_NAME_OF_MONTH.values())
# Units that are written directly after a number.
_UNITS = frozenset(
    "km cm mm m kg g lb ft mi mph hr hrs min mins sec am pm bc bce ad ce c f".split()
)
_SIGNS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "₱": "peso"}
CURRENCIES = frozenset(_SIGNS.values())
_SAME = {
    "%": "percent",
    "&": "and",
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "₹": "rupee",
    "₱": "peso",
    "km": "kilometer",
    "kilometre": "kilometer",
    "cm": "centimeter",
    "centimetre": "centimeter",
    "mm": "millimeter",
    "millimetre": "millimeter",
    "metre": "meter",
    "kg": "kilogram",
    "kilo": "kilogram",
    "mi": "mile",
    "lb": "pound",
    "ft": "foot",
    "feet": "foot",
    "hr": "hour",
    "hrs": "hour",
    "min": "minute",
    "mins": "minute",
    "sec": "second",
    "st": "saint",
    "mt": "mount",
} | {name: _NAME_OF_MONTH[number] for name, number in quantities.MONTHS.items()}
ROMAN = {
    numeral: str(value)  # "v" and "x" are rather initials
    for value, numeral in enumerate(
        "ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx".split(), start=2
    )
    if len(numeral) > 1
}
_NUMERALS = quantities.NUMBER_WORDS | ROMAN.keys()


class Comparable(NamedTuple):
    """The comparable words of a text, and for each the first and last word that it replaces."""

    words: list[str]
    first: list[int]
    last: list[int]


def comparable(texts: Iterable[str]) -> Comparable:
    """Return the comparable words of written words, without articles.

    >>> comparable("the 2nd of nov. in world war ii and 5 million".split()).words
    ['2nd', 'of', 'november', 'in', 'world', 'war', '2', 'and', '5000000']
    """
    parts = [
        _parts(text) if len(text) <= _LONGEST_WORD else _parts.__wrapped__(text) for text in texts
    ]
    words = [word for each in parts for word in each]
    owner = [i for i, each in enumerate(parts) for _ in each]
    if "m" in words:
        words = _with_meters(words)
    if _NUMERALS.isdisjoint(words):
        return Comparable(words, owner, owner)
    for at in range(1, len(words)):
        if words[at] in ROMAN and words[at - 1].isalpha():
            words[at] = ROMAN[words[at]]
    spans = quantities.number_spans([(word, 1) for word in words])
    first, last, at = [], [], 0
    for _, taken in spans:
        first.append(owner[at])
        at += taken
        last.append(owner[at - 1])
    return Comparable([word for word, _ in spans], first, last)


def _with_meters(words: list[str]) -> list[str]:
    """Return words with "meter" for an "m" after a number. Elsewhere it can be an initial."""
    return [
        "meter" if word == "m" and at and is_number(words[at - 1]) else word
        for at, word in enumerate(words)
    ]


@lru_cache(maxsize=65536)
def _parts(text: str) -> tuple[str, ...]:
    if text in ARTICLES:
        return ()
    if text.isascii() and text.isalpha():
        return (_form(text),)
    if (date := _ISO_DATE.fullmatch(text)) and int(date[2]) in _NAME_OF_MONTH:
        return _NAME_OF_MONTH[int(date[2])], str(int(date[3])), date[1]
    text = _SHORT_RANGE.sub(r"-\1", plain(text)).removesuffix("'s")
    text = _BETWEEN_LETTERS.sub("", text)
    parts: list[str] = []
    currency, start = "", 0
    for match in _PART.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            if match.start() and text[match.start() - 1].isdecimal() and match[0] not in _UNITS:
                parts[-1] = text[start : match.end()]  # "1999abc" is not 1999
            else:
                parts.append(_form(match[0]))
        elif kind != "symbol":
            start = match.start()
            parts.append(_number(match))
        elif match[0] in "%&":
            parts.append(_SAME[match[0]])
        else:
            currency = _SIGNS[match[0]]
    return (currency, *parts) if currency else tuple(parts)


def _number(match: re.Match[str]) -> str:
    number = match["number"].replace(",", "")
    if match.lastgroup != "number":
        return number + (match["ordinal"] or "s")
    if number.startswith("."):
        number = f"0{number}"
    return number.rstrip("0").rstrip(".") if "." in number and ":" not in number else number


def _form(word: str) -> str:
    if word in _ORDINAL_WORDS:
        return _ORDINAL_WORDS[word]
    word = _SAME.get(word, word)
    return _SAME.get(root := singular(word), root)


def is_number(word: str) -> bool:
    """Return whether a comparable word is a number, also an ordinal or a decade."""
    return word[:1].isdecimal() or (word[:1] == "-" and len(word) > 1)

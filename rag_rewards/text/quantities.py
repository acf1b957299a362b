"""Numbers and dates in one notation: options of the Unicode normalizer."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen "
        "fourteen fifteen sixteen seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
}
SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_MAY_FOLLOW = (
    SCALES.keys()
    | _UNITS.keys()
    | _TENS.keys()
    | {f"{tens}-{unit}" for tens in _TENS for unit in list(_UNITS)[1:10]}
)
NUMBER_WORDS = frozenset(_MAY_FOLLOW)
_FIGURES = frozenset("0123456789")
_DIGITS = re.compile(r"-?(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,30})(?:\.\d{1,30})?", re.ASCII)


def numbers(words: list[str]) -> list[str]:
    """Return words with every number as plain digits.

    >>> numbers("1 million and two hundred five and 1,000.50 and twenty-one".split())
    ['1000000', 'and', '205', 'and', '1000.5', 'and', '21']
    """
    return [text for text, _ in number_spans([(word, 1) for word in words])]


Span = tuple[str, int]
"""A word, and the number of original words that it replaces."""


def number_spans(spans: list[Span]) -> list[Span]:
    """Return spans with every number as plain digits."""
    words = [text for text, _ in spans]
    out: list[Span] = []
    at = 0
    while at < len(words):
        word = words[at]
        may_begin = word[:1] in _FIGURES or "-" in word or word in _UNITS or word in _TENS
        value, count = _number(words, at) if may_begin else (None, 1)
        if value is None:
            out.append(spans[at])
            at += 1
        else:
            out.append((_plain(value), sum(n for _, n in spans[at : at + count])))
            at += count
    return out


def _number(words: list[str], at: int) -> tuple[Decimal | None, int]:
    """Return the number that begins at this position, and its number of words."""
    current = _value(words[at])
    if current is None:
        return None, 1
    if at + 1 == len(words) or words[at + 1] not in _MAY_FOLLOW:
        return current, 1
    spelled = not words[at][-1].isdigit()
    total, count, scaled, largest = Decimal(0), 1, 0, 10**15
    for word in words[at + 1 : at + 20]:
        if scale := SCALES.get(word):
            if scale == 100:
                if not 0 < current < 100:
                    break
                current *= scale
            elif not current:
                if not total:
                    break
                total *= scale  # "a thousand million"
            elif scale >= largest:
                return total, scaled  # "two million three million" are two numbers
            else:
                total, current = total + current * scale, Decimal(0)
            if scale > 100:
                scaled, largest = count + 1, scale
            spelled = True
        else:
            more = _value(word) if spelled and word[-1] not in _FIGURES else None
            room = 100 if current % 100 == 0 else 10 if current % 10 == 0 else 0
            if not more or more >= room or current % 100 == 10 or not total + current:
                break
            current += more
        count += 1
    return total + current if total else current, count  # a sum is rounded to 28 digits


def _value(word: str) -> Decimal | None:
    if _DIGITS.fullmatch(word):
        return Decimal(word.replace(",", ""))
    if word in _UNITS:
        return Decimal(_UNITS[word])
    if word in _TENS:
        return Decimal(_TENS[word])
    tens, dash, unit = word.partition("-")
    if dash and tens in _TENS and 0 < _UNITS.get(unit, 0) < 10:
        return Decimal(_TENS[tens] + _UNITS[unit])
    return None


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


MONTHS = {
    name: number
    for number, names in enumerate(
        "january jan, february feb, march mar, april apr, may, june jun, july jul, august aug, "
        "september sep sept, october oct, november nov, december dec".split(", "),
        start=1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_NAMED_DATES = [
    re.compile(rf"(?<!\S){order} (?P<year>\d{{4}})(?!\S)", re.ASCII)
    for order in (
        rf"(?P<month>{_MONTH}) {_DAY}",
        rf"{_DAY}(?: of)? (?P<month>{_MONTH})",
        rf"(?P<month>{_MONTH})(?P<day>)",
    )
]
_NUMERIC_DATE = re.compile(
    r"(?<!\S)(?:(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}))(?!\S)",
    re.ASCII,
)


def dates(text: str) -> str:
    """Return a text with every date as YYYY-MM-DD. The ambiguous 03/04/1999 stays as it is.

    >>> dates("on march 5 1999 or 5th of march 1999 or 25/12/1999 or may 2001")
    'on 1999-03-05 or 1999-03-05 or 1999-12-25 or 2001-05'
    """
    if not _YEAR.search(text):
        return text
    for pattern in _NAMED_DATES:
        text = pattern.sub(_iso, text)
    return _NUMERIC_DATE.sub(_iso_of_numbers, text)


def numeric_date(text: str) -> tuple[int, int, int] | None:
    """Return the year, month and day of a date in digits, or None without an unambiguous one.

    >>> numeric_date("1999-03-05"), numeric_date("25/12/1999"), numeric_date("03/04/1999")
    ((1999, 3, 5), (1999, 12, 25), None)
    """
    match = _NUMERIC_DATE.fullmatch(text)
    if match is None:
        return None
    if match[1]:
        year, month, day = map(int, match.groups()[:3])
    else:
        month, day, year = map(int, match.groups()[3:])
        if month <= 12 and day <= 12 and month != day:
            return None
        if month > 12:
            month, day = day, month
    return (year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


_YEAR = re.compile(r"\d{4}", re.ASCII)


def _iso(match: re.Match[str]) -> str:
    day = f"-{int(match['day']):02}" if match["day"] else ""
    return f"{match['year']}-{MONTHS[match['month']]:02}{day}"


def _iso_of_numbers(match: re.Match[str]) -> str:
    date = numeric_date(match[0])
    return f"{date[0]}-{date[1]:02}-{date[2]:02}" if date else match[0]

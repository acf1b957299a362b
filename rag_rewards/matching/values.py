"""The words of a text and their values: numbers with units, ordinals and dates."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from rag_rewards.matching.tables import tables
from rag_rewards.text.quantities import NUMBER_WORDS, SCALES, number_spans, numeric_date


class Value(NamedTuple):
    """A value that is read completely.

    number  the number, or the year of a date
    unit    the unit of a number
    month, day  of a date; 0 if they are not given
    """

    kind: Literal["number", "ordinal", "date"]
    number: Fraction
    unit: str = ""
    month: int = 0
    day: int = 0

    @property
    def key(self) -> str:
        """The form that is compared."""
        if self.kind == "date":
            return f"{self.number}-{self.month:02}-{self.day:02}"
        suffix = "." if self.kind == "ordinal" else f" {self.unit}" if self.unit else ""
        return f"{self.number}{suffix}"


class Word(NamedTuple):
    """A word of a text.

    key         the form that is compared: letters without accents and endings, or a value
    folded      the word with case folded
    separator   the punctuation and line ends between the word before and this one
    glued       whether nothing is between the word before and this one
    value       its value, if it is a number, an ordinal or a date
    is_sign     whether it is a sign other than letters and digits
    is_capital  whether its first letter is a capital
    is_initial  whether it is a capital letter, or two letters such as "Ph", with a period
    hyphen      whether a hyphen joins it to the word before
    """

    key: str
    folded: str
    separator: str = ""
    glued: bool = False
    value: Value | None = None
    is_sign: bool = False
    is_capital: bool = False
    is_initial: bool = False
    hyphen: bool = False


Comparison = Literal["same", "finer", "different", "unclear"]


_LONGEST_NUMBER = 100  # characters
_NEAR = 4  # words between a value and another word that belongs to it
_INTEGER = re.compile(r"[-−–]?\d{1,40}", re.ASCII)
_THOUSANDS = re.compile(
    r"[-−–]?\d{1,3}(?:,\d{3})+(?:\.\d{1,40})?|\d{1,3}(?:\.\d{3}){2,10}", re.ASCII
)
_DECIMAL = re.compile(r"[-−–]?\d{0,40}\.\d{1,40}", re.ASCII)
_SPACED_THOUSANDS = re.compile(r"\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+")
_NO_DIGIT = re.compile(r"[^\d]")
_AMBIGUOUS = re.compile(r"[1-9]\d{0,2}\.\d{3}", re.ASCII)
_FRACTION = re.compile(r"(\d{1,4})/(\d{1,4})", re.ASCII)
_ORDINALS = {
    word: number
    for number, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth "
        "twentieth".split(),
        start=1,
    )
} | {f"{tens}ieth": 10 * n for n, tens in enumerate(("thirt", "fort", "fift", "sixt"), start=3)}
VALUE_WORDS = NUMBER_WORDS | _ORDINALS.keys() | {"half", "quarter"}
"""Words that can be a value, besides the names of months."""
_UNIT_NAMES = """
km: kilometer kilometre kilómetro chilometro kilomètre километр километра километров км 公里;
m: meter metre metro mètre метр метра метров м 米; cm: centimeter centimetre; mm: millimeter
millimetre; mile: mi; foot: feet ft; inch:; kg: kilogram kilo; g: gram; lb: lbs; ton: tonne; l:
liter litre; percent: percentage prozent процент procent; degree:; celsius: c; fahrenheit:
f; second: sec; minute: min mins; hour: hr hrs h; day:; week:; month:; year: yr yrs; dollar: usd;
euro: eur; pound: gbp; yen: jpy; rupee: inr; mph: mile-hour; kmh: kph km-hour kilometer-hour
kilometre-hour km-h; am:; pm:; bc: bce
"""
_UNITS = {
    name: unit
    for unit, names in (entry.split(":") for entry in " ".join(_UNIT_NAMES.split()).split("; "))
    for name in (unit, *names.split())
}
_CURRENCY_SIGNS = frozenset("$€£¥₹")


def number_of(piece: str) -> Value | None:
    """Return the value of digits, or None if they are ambiguous, such as 3.500 and 04/07/1776.

    >>> number_of("1,000").key, number_of("1/2").key, number_of("3.500")
    ('1000', '1/2', None)
    """
    if len(piece) > _LONGEST_NUMBER:
        return None
    plain = piece.replace("−", "-").replace("–", "-")
    if _INTEGER.fullmatch(plain):
        return Value("number", Fraction(plain))
    if _THOUSANDS.fullmatch(plain):
        is_pointed = plain.count(".") > 1
        return Value("number", Fraction(plain.replace("." if is_pointed else ",", "")))
    if _SPACED_THOUSANDS.fullmatch(plain):
        return Value("number", Fraction(_NO_DIGIT.sub("", plain)))
    if _DECIMAL.fullmatch(plain):
        return None if _AMBIGUOUS.fullmatch(plain) else Value("number", Fraction(plain))
    if match := _FRACTION.fullmatch(plain):
        return Value("number", Fraction(int(match[1]), int(match[2]))) if int(match[2]) else None
    date = numeric_date(plain)
    return _date(*date) if date else None


def ordinal_of(folded: str) -> Value | None:
    """Return the value of an ordinal in letters."""
    number = _ORDINALS.get(folded)
    return None if number is None else Value("ordinal", Fraction(number))


def _date(year: int, month: int, day: int) -> Value | None:
    if not (0 <= month <= 12 and 0 <= day <= 31):
        return None
    return Value("date", Fraction(year), month=month, day=day)


def read_values(words: list[Word]) -> list[Word]:
    """Return words in which each number, ordinal, date and amount is one word."""
    out: list[Word] = []
    end = 0
    for start, after in _near_values(words):
        out += words[end:start]
        out += _amounts(_dates(_ordinals(_numbers(words[start:after]))))
        end = after
    return out + words[end:] if end else words


def _near_values(words: list[Word]) -> list[tuple[int, int]]:
    """Return the parts of a text that are near a value, which other words can belong to."""
    parts: list[tuple[int, int]] = []
    for at, word in enumerate(words):
        if word.value is not None or word.folded in VALUE_WORDS:
            start, after = max(at - _NEAR, 0), at + _NEAR + 1
            if parts and start <= parts[-1][1]:
                start = parts.pop()[0]
            parts.append((start, after))
    return parts


def _with_value(first: Word, value: Value) -> Word:
    return first._replace(key=value.key, folded=value.key, value=value)


def _numbers(words: list[Word]) -> list[Word]:
    """Join number words: "one hundred and fifty", "1.5 million"."""
    out: list[Word] = []
    at = 0
    while at < len(words):
        end = at
        while end < len(words) and _is_part(words, at, end):
            end += 1
        out += _joined_numbers(words[at:end]) if end > at else words[at : at + 1]
        at = max(end, at + 1)
    return out


def _joined_numbers(words: list[Word]) -> list[Word]:
    """Return number words with those of one number as one word."""
    run = [word for word in words if word.folded != "and"]
    written = [(_written(word), 1) for word in run]
    if run[0].folded in SCALES:  # "a hundred"
        written.insert(0, ("1", 0))
    joined: list[Word] = []
    position = 0
    for text, count in number_spans(written):
        number, first = number_of(text), run[position]
        is_new = number is not None and number != first.value
        joined.append(_with_value(first, number) if number and is_new else first)
        position += count
    return joined


def _written(word: Word) -> str:
    if word.value is None:
        return word.folded
    number = word.value.number
    return str(number) if number.denominator == 1 else word.folded.replace(",", "")


def _is_part(words: list[Word], start: int, at: int) -> bool:
    """Return whether a word belongs to the number words that begin at a position."""
    word = words[at]
    if at > start and word.separator:
        return False
    if word.folded == "and":
        after = words[at + 1] if at + 1 < len(words) else None
        follows = at > start and words[at - 1].folded in SCALES
        return bool(follows and after and after.folded in NUMBER_WORDS and not after.separator)
    if word.folded in NUMBER_WORDS:
        return True
    return at == start and word.value is not None and word.value.kind == "number"


def _ordinals(words: list[Word]) -> list[Word]:
    """Join the parts of an ordinal or a fraction: "20th", "twenty first", "two thirds"."""
    out: list[Word] = []
    for word in words:
        last = out[-1].value if out and not word.separator else None
        joined = _with_part(last, word) if last is not None and last.kind == "number" else None
        if joined is not None:
            out[-1] = _with_value(out[-1], joined)
        elif word.folded in ("half", "quarter"):
            out.append(_with_value(word, Value("number", Fraction(1, _PARTS[word.folded]))))
        else:
            out.append(word)
    return out


def _with_part(last: Value, word: Word) -> Value | None:
    """Return the ordinal or fraction of a number and the word after it."""
    number = last.number
    if word.glued and word.folded in _ORDINAL_ENDINGS:
        return Value("ordinal", number)
    ordinal = word.value.number if word.value and word.value.kind == "ordinal" else Fraction(0)
    if 0 < ordinal < 10 and number % 10 == 0 and number > 10:
        return Value("ordinal", number + ordinal)
    part = _PARTS.get(word.folded.removesuffix("s").replace("halve", "half"))
    if part and 0 < number < part and (number == 1 or word.folded.endswith("s")):
        return Value("number", number / part)
    return None


_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th", "er"))
_PARTS = {"half": 2, "quarter": 4} | {
    word: number for word, number in _ORDINALS.items() if 3 <= number <= 10
}


_YEAR_WORDS = frozenset(("год", "года", "году", "г"))
_OF = frozenset(("of", "de", "del", "г", "the"))
_EASTERN_MARKS = {"年": "a", "년": "a", "月": "b", "월": "b", "日": "c", "일": "c"}
_DATE = re.compile(
    "[mM]f?d(?:f?y)?|[mM]f?y|[dD]f?m(?:f?y)?"  # July 20, 1969; July 1969; 20 July 1969
    "|[ndyDY]a[ndyDY]b(?:[ndyDY]c)?"  # 1969年7月20日
)


def _dates(words: list[Word]) -> list[Word]:
    """Join the words of a date: "20 July 1969", "July 1969", "Sunday, the 20th of July"."""
    out: list[Word] = []
    kinds = "".join(map(_kind_in_date, words))
    at = 0
    while at < len(words):
        match = _DATE.match(kinds, at)
        date = _date_of(words[at : match.end()], match[0]) if match else None
        if match is None or date is None:
            out.append(words[at])
            at += 1
        else:
            if out and out[-1].folded in tables().weekdays:
                out.pop()
            out.append(_with_value(words[at], date))
            at = match.end()
        if at < len(words) and words[at].folded in _YEAR_WORDS and _is_year(out[-1]):
            at += 1
    return out


def _kind_in_date(word: Word) -> str:
    """Return m, d, y or n for a month, day, year or other number, and other letters for marks.

    It is a capital if punctuation separates the word from the one before it.
    """
    value, kind = word.value, "x"
    if value is None:
        kind = _EASTERN_MARKS.get(word.folded, "f" if word.folded in _OF else "x")
        kind = "m" if word.folded in tables().months else kind
    elif value.kind != "date" and not value.unit and value.number.denominator == 1:
        is_year = value.kind == "number" and 1000 <= value.number <= 2999
        kind = "d" if 1 <= value.number <= 31 else "y" if is_year else "n"
    return kind.upper() if kind in "mdy" and word.separator not in ("", ",", ".") else kind


def _date_of(words: list[Word], kinds: str) -> Value | None:
    """Return the date that words of these kinds are."""
    numbers = [int(word.value.number) for word in words if word.value is not None]
    if "a" in kinds:
        year, month, day = (*numbers, 0)[:3]
        return _date(year, month, day)
    month = tables().months[words[kinds.lower().index("m")].folded]
    day = numbers.pop(0) if "d" in kinds.lower() else 0
    return _date(numbers[0] if numbers else 0, month, day)


def _is_year(word: Word) -> bool:
    value = word.value
    return value is not None and value.kind != "ordinal" and 1000 <= value.number <= 2999


def _amounts(words: list[Word]) -> list[Word]:
    """Join numbers with their units: "$5", "5 dollars", "5 km", "50 per cent"."""
    out: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        number = word.value if _is_number(word) else None
        unit, count = _unit(words, at + 1) if number else ("", 0)
        if word.folded in _CURRENCY_SIGNS and at + 1 < len(words) and _is_number(words[at + 1]):
            number, unit, count = words[at + 1].value, word.key, 1
        amount = number._replace(unit=unit) if number and unit else None
        out.append(_with_value(word, amount) if amount else word)
        at += 1 + count
    return out


def _is_number(word: Word) -> bool:
    return word.value is not None and word.value.kind == "number" and not word.value.unit


_PER_CENT = frozenset(("per cent", "pour cent", "por ciento", "por cento", "per cento"))


def _unit(words: list[Word], at: int) -> tuple[str, int]:
    """Return the unit that begins at a position, or "", and its number of words."""
    names = [word.folded for word in words[at : at + 3]]
    if not names or words[at].separator or (words[at].value and names[0] != "second"):
        return "", 0
    if names == ["in"]:  # "5 in" at the end
        return "inch", 1
    if " ".join(names[:2]) in _PER_CENT:
        return "percent", 2
    unit = unit_of(words[at])
    if len(names) > 1 and unit == "degree" and unit_of(words[at + 1]) in ("celsius", "fahrenheit"):
        return unit_of(words[at + 1]), 2
    if len(names) > 2 and names[1] in ("per", "an", "/"):
        speed = _UNITS.get(f"{words[at].key}-{words[at + 2].key}")
        return (speed, 3) if speed else (unit, int(bool(unit)))
    return unit, int(bool(unit))


def unit_of(word: Word) -> str:
    """Return the unit that a word names, or ""."""
    return _UNITS.get(word.key) or _UNITS.get(word.folded, "")


def compare(gold: Value, answer: Value) -> Comparison:
    """Return how the value of an answer relates to a gold value.

    `finer` is a date that the gold date contains. `unclear` is a coarser date, or an amount in
    another unit with another number.

    >>> year, day = number_of("1969"), number_of("1969-07-20")
    >>> compare(year, day), compare(day, year), compare(year, number_of("1970"))
    ('finer', 'unclear', 'different')
    """
    if gold.kind == "date" or answer.kind == "date":
        return _compare_dates(gold, answer)
    if gold.kind != answer.kind:
        return "unclear"
    if "degree" in (gold.unit, answer.unit) and gold.number == answer.number:
        return "same" if gold.unit == answer.unit else "unclear"
    if gold.unit == answer.unit:
        return "same" if gold.number == answer.number else "different"
    if not gold.unit or not answer.unit:
        return (
            "unclear"
            if "percent" in (gold.unit, answer.unit) or gold.number == answer.number
            else "different"
        )
    return "different" if gold.number == answer.number else "unclear"


def _compare_dates(gold: Value, answer: Value) -> Comparison:
    if gold.unit or answer.unit or "ordinal" in (gold.kind, answer.kind):
        return "unclear"
    finer = coarser = False
    for expected, given in zip(_parts(gold), _parts(answer), strict=True):
        if expected and given and expected != given:
            return "different"
        finer |= bool(given and not expected)
        coarser |= bool(expected and not given)
    return "unclear" if coarser else "finer" if finer else "same"


def _parts(value: Value) -> tuple[Fraction | int, int, int]:
    return value.number, value.month, value.day

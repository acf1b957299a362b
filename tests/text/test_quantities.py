"""Numbers and dates in different notations."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.quantities import dates, numbers

UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
MONTHS = (
    "january february march april may june july august september october november december"
).split()
WORDS = st.lists(
    st.sampled_from([*UNITS[:4], "ten", *TENS[2:4], "hundred", "thousand", "million", "march"])
    | st.sampled_from(["1", "-2", "3.50", "1,000", "1,00", "5th", "of", "1999", "and", "-", "."])
    | st.text("0123456789,.-", min_size=1, max_size=6),
    max_size=10,
)


def spelled(n, hyphen=True):
    """Return a whole number in English words."""
    if n < 20:
        return UNITS[n]
    if n < 100:
        joint = "-" if hyphen else " "
        return TENS[n // 10] + (joint + UNITS[n % 10] if n % 10 else "")
    for name, size in (("million", 10**6), ("thousand", 1000), ("hundred", 100)):
        if n >= size:
            rest = " " + spelled(n % size, hyphen) if n % size else ""
            return f"{spelled(n // size, hyphen)} {name}{rest}"
    raise AssertionError


@given(st.integers(0, 10**9 - 1), st.booleans())
@budget(300)
def test_spelled_and_grouped_numbers_are_the_plain_one(n, hyphen):
    assert numbers(spelled(n, hyphen).split()) == [str(n)]
    assert numbers([f"{n:,}"]) == [str(n)]


@given(WORDS)
@budget(300)
def test_never_raises_and_is_idempotent(words):
    once = numbers(words)
    assert len(once) <= len(words)
    assert numbers(once) == once
    text = dates(" ".join(words))
    assert len(text.split()) <= len(" ".join(words).split())
    assert dates(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 million", "1000000"),
        ("2.5 million people", "2500000 people"),
        ("1,000.50", "1000.5"),
        ("-5", "-5"),
        ("3.14", "3.14"),
        ("two hundred five", "205"),
        ("one two", "1 2"),
        ("two and three", "2 and 3"),
        ("1 2", "1 2"),
        ("1,00", "1,00"),
        ("1,000,00", "1,000,00"),
        ("million", "million"),
        ("hundred", "hundred"),
        ("twenty-twenty", "twenty-twenty"),
        ("10.0", "10"),
        ("two million three million", "2000000 3000000"),
        ("one thousand million", "1000000000"),
        ("two hundred hundred", "200 hundred"),
        ("zero million", "0 million"),
        (f"{'9' * 30} hundred five", f"{'9' * 30} hundred 5"),
        ("one hundred twenty-one", "121"),
        ("twenty ten", "20 10"),
        ("ten two", "10 2"),
        ("zero one", "0 1"),
        ("fifteen hundred", "1500"),
        ("two hundred thousand", "200000"),
        ("2.5 hundred thousand", "250000"),
        ("100", "100"),
        ("c3po", "c3po"),
    ],
)
def test_numbers(text, expected):
    assert " ".join(numbers(text.split())) == expected


NOTATIONS = [
    "{d} {m} {y}",
    "{d}th {m} {y}",
    "{d} of {m} {y}",
    "{m} {d} {y}",
    "{m} {d}st {y}",
    "{y}-{n:02}-{d:02}",
    "{y}/{n}/{d}",
    "{y}.{n}.{d}",
]


@given(st.dates(datetime.date(1000, 1, 1)), st.sampled_from(NOTATIONS), st.booleans())
@budget(300)
def test_every_notation_of_a_day_is_one(day, notation, short):
    month = MONTHS[day.month - 1]
    text = notation.format(
        d=day.day, n=day.month, y=f"{day.year:04}", m=month[:3] if short else month
    )
    assert dates(text) == day.isoformat()


@given(st.dates(datetime.date(1000, 1, 1)), st.sampled_from("-/."))
def test_unambiguous_dates_in_digits(day, mark):
    for first, second in ((day.day, day.month), (day.month, day.day)):
        text = f"{first}{mark}{second}{mark}{day.year}"
        clear = day.day > 12 or day.day == day.month
        assert dates(text) == (day.isoformat() if clear else text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("may 2001", "2001-05"),
        ("03/04/1999", "03/04/1999"),
        ("1999-13-01", "1999-13-01"),
        ("32 march 1999", "32 1999-03"),  # an invalid date loses no word
        ("99 of march 1999", "99 of 1999-03"),
        ("march 99 1999", "march 99 1999"),
        ("march", "march"),
        ("i may go", "i may go"),
        ("5 march", "5 march"),
        ("in 1999", "in 1999"),
    ],
)
def test_dates(text, expected):
    assert dates(text) == expected

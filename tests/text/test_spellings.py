"""One spelling for answers that differ only in punctuation without a meaning."""

from __future__ import annotations

import pytest
from growth import assert_linear, sizes

from rag_rewards.rewards import AnswerMatch
from rag_rewards.text.normalize import Unicode

SPELLED = Unicode(spellings=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("U.S.", "US"),
        ("the U.S.A.", "USA"),
        ("Ph.D.", "PhD"),
        ("1,000", "1000"),
        ("12,345,678.", "12345678"),
        ("Coca-Cola", "Coca Cola"),
        ("C.S. Lewis", "C. S. Lewis"),
        ("6 p.m.", "6 pm"),
        ("6pm", "6 p.m."),
        ("15cm", "15 cm"),
        ("50 %", "50%"),
        ("$ 5", "$5"),
        ("Marks & Spencer", "Marks and Spencer"),
    ],
)
def test_spellings_of_the_same_answer(first: str, second: str) -> None:
    assert SPELLED(first) == SPELLED(second)
    assert Unicode()(first) != Unicode()(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("3.14", "314"),
        ("10:30", "1030"),
        ("-5", "5"),
        ("1,5", "15"),
        ("1,00", "100"),
        ("C++", "C"),
        ("2-1", "21"),
        ("50%", "50"),
        ("$5", "5"),
        ("3 million", "3"),
        ("not Paris", "Paris"),
    ],
)
def test_different_answers_stay_different(first: str, second: str) -> None:
    assert SPELLED(first) != SPELLED(second)


def test_only_the_exact_metric_ignores_the_spelling() -> None:
    assert AnswerMatch(metric="exact", normalizer="unicode").normalize == SPELLED
    assert AnswerMatch(metric="f1", normalizer="unicode").normalize == Unicode()


@pytest.mark.parametrize("unit", ["1,111", "a.", "a ", "1.", "a-", "1k"])
@sizes(1_000_000)
def test_the_time_is_linear(largest: int, unit: str) -> None:
    assert_linear(lambda size: SPELLED(unit * (size // len(unit))), largest)

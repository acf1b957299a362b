"""RLCR: worked examples, a twin of the equation, and confidences that are not valid."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards import DataError, SettingError, decode_row, recipe

SECTIONS = "<think>t</think>\n<answer>{}</answer> <analysis>a</analysis><confidence>{}</confidence>"
FORM = re.compile(
    r"\s*<think>.*</think>\s*<answer>(.*)</answer>\s*<analysis>.*</analysis>\s*"
    r"<confidence>(.*)</confidence>\s*",
    re.DOTALL,
)


def score(text, answers="Paris", hardened=False, **settings):
    row = decode_row({"response": text, "answers": answers})
    return recipe("rlcr", settings, hardened=hardened)([row])[0]


def twin(text, gold):
    """Return the reward as the equation states it."""
    match = FORM.fullmatch(text)
    try:
        confidence = float(match[2]) if match else math.nan
    except ValueError:
        confidence = math.nan
    if match is None or not 0 <= confidence <= 1:
        return 0.0
    correct = float(match[1].strip().lower() == gold.lower())
    return 0.5 + 0.5 * correct + 0.5 * (1 - (correct - confidence) ** 2)


@pytest.mark.parametrize(
    ("answer", "confidence", "value"),
    [
        ("Paris", "1", 1.5),
        ("Paris", "0.5", 1.375),
        ("Paris", "0", 1.0),
        ("Lyon", "0", 1.0),
        ("Lyon", " 0.5\n", 0.875),
        ("Lyon", "1.0", 0.5),
    ],
)
def test_worked_examples(answer, confidence, value):
    result = score(SECTIONS.format(answer, confidence))
    assert result.value == pytest.approx(value)
    assert result.correct == (answer == "Paris")
    assert result.components["confidence"] == float(confidence)


@pytest.mark.parametrize(
    "confidence", ["", " ", "90%", "1.01", "-0.1", "nan", "inf", "high", "0.9.", "0." + "1" * 99]
)
def test_an_invalid_confidence_has_no_format(confidence):
    result = score(SECTIONS.format("Paris", confidence))
    assert (result.value, result.correct) == (0.0, 1.0)
    assert result.components == {
        "format": 0.0,
        "accuracy": 1.0,
        "calibration": 0.0,
        "confidence": None,
    }


@given(
    st.sampled_from(["Paris", "paris", "Lyon", ""]),
    st.one_of(st.floats(-1, 2).map(str), st.text(max_size=6)),
    st.sampled_from(["", " ", "x", "<confidence>0.1</confidence>"]),
)
def test_the_equation(answer, confidence, after):
    text = SECTIONS.format(answer, confidence) + after
    assert score(text).value == pytest.approx(twin(text, "Paris") if not after.strip() else 0.0)


def test_other_orders_have_no_format():
    confidence_first = "<think>t</think><confidence>1</confidence><answer>Paris</answer>"
    assert score(confidence_first + "<analysis>a</analysis>").value == 0.0
    assert score("<answer>Paris</answer><confidence>1</confidence>").value == 0.0


def test_weights_and_invalid_rows():
    text = SECTIONS.format("Paris", "0.5")
    assert score(text, **{"weights.calibration": 1.0}).value == pytest.approx(1.75)
    with pytest.raises(SettingError, match=r"weights\.format"):
        recipe("rlcr", {"weights.format": -1.0})
    with pytest.raises(DataError, match="answers"):
        recipe("rlcr")([decode_row({"response": text})])

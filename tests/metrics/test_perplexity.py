"""The perplexity of responses, with all documents and without the most important one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

quick = budget(80)
DOCUMENTS = [{"text": "x"}, {"text": "y"}, {"text": "z"}]


def row(full, without, **fields):
    return {
        "response": "x",
        "documents": DOCUMENTS,
        "supporting": [int(label) for label in without],
        "logprobs": {"full": full, "without": without},
    } | fields


@st.composite
def rows_of_evidence(draw):
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        tokens = draw(st.integers(1, 5))
        values = st.lists(st.floats(-9, 0), min_size=tokens, max_size=tokens)
        labels = draw(st.sampled_from([["1"], ["1", "2"], ["3", "2", "1"]]))
        rows.append(row(draw(values), {label: draw(values) for label in labels}))
    return rows


@quick
@given(rows_of_evidence())
def test_perplexity_against_its_equation(values, rows):
    tokens = sum(len(each["logprobs"]["full"]) for each in rows)
    full = sum(math.fsum(each["logprobs"]["full"]) for each in rows)
    least = sum(min(map(math.fsum, each["logprobs"]["without"].values())) for each in rows)
    assert values("perplexity", rows) == pytest.approx(
        {"perplexity": math.exp(-full / tokens), "without": math.exp(-least / tokens)}
    )


def test_tokens_have_equal_weights(values):
    # S = −2 over 2 tokens and −1 over 1 token: e^(3/3). Without: −4 and −2 → e^(6/3).
    rows = [row([-1, -1], {"1": [-2, -2]}), row([-1], {"1": [-2], "2": [-1.5]})]
    assert values("perplexity", rows) == pytest.approx({"perplexity": math.e, "without": math.e**2})


def test_the_thinking_can_be_excluded(values):
    logprobs = {"full": [-5, -1], "without": {"1": [-9, -2]}, "answer_span": [1, 2]}
    one = row([], {"1": []}, response="<think>t</think> x", logprobs=logprobs)
    assert values("perplexity(span=answer)", [one]) == pytest.approx(
        {"perplexity": math.e, "without": math.e**2}
    )


def test_rows_without_evidence_are_excluded(reported):
    rows = [row([-1], {"1": [-2]}), row([-1], {"1": [-2]}, logprobs=None), {"response": "x"}]
    report = reported("perplexity", rows)
    assert report.values["perplexity"].value == pytest.approx(math.e)
    assert sorted(error.path for error in report.left_out) == ["logprobs", "supporting"]


def test_empty_and_very_unlikely_responses(values):
    assert values("perplexity", [row([], {"1": []}, response="")]) == {
        "perplexity": None,
        "without": None,
    }
    assert values("perplexity", [row([-1000], {"1": [-2000]})])["perplexity"] == math.exp(700)

"""Random lists of rows and data frames in Python."""

from __future__ import annotations

from functools import cache

import pandas as pd
from fuzz_checks import check_finite, outcome, unchanged
from fuzz_rows import ROWS_OF_RECIPES, changed, python_values
from fuzz_texts import any_texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import score
from rag_rewards.scorer import Scorer


@cache
def scorer(name):
    return Scorer.load(name)


@st.composite
def tables(draw):
    name = draw(st.sampled_from(["arena", "naive-grpo", "search-r1"]))
    chosen = draw(st.lists(st.sampled_from(ROWS_OF_RECIPES[name]), min_size=1, max_size=3))
    return name, [draw(changed(row, python_values, any_texts)) for row in chosen]


def check(rows, count):
    """Check that each row has either a finite reward or an error that is no fault of the code."""
    assert len(rows) == count
    for row in rows:
        check_finite([row["reward"], row["correct"]])
        error = row["error"]
        if isinstance(error, str):
            assert error.strip()
        assert "ScoringError" not in str(error)


@given(tables())
@budget(60)
def test_lists_of_rows(given):
    name, rows = given
    with unchanged(rows):
        scored = outcome(lambda: score(rows, scorer(name)))
    if isinstance(scored, list):
        check(scored, len(rows))


@given(tables())
@budget(30)
def test_data_frames(given):
    name, rows = given
    frame = pd.DataFrame(rows, dtype=object)
    scored = outcome(lambda: score(frame, scorer(name)))
    if not isinstance(scored, str):
        columns = scored[["reward", "correct", "error"]].astype(object)
        check(columns.where(columns.notna(), None).to_dict("records"), len(rows))

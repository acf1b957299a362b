"""The training signal of groups with and without spread."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.metrics.scored_values import spread

quick = budget(120)
REWARDS = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 13.0]), min_size=2, max_size=8)


def rows_of(groups):
    return [
        {"response": "x", "group": name, "reward": reward, "components": {"half": reward / 2}}
        for name, rewards in groups.items()
        for reward in rewards
    ]


@quick
@given(st.dictionaries(st.sampled_from("abcd"), REWARDS, min_size=1))
def test_group_signal_against_its_equations(values, groups):
    stds = []
    for rewards in groups.values():
        mean = sum(rewards) / len(rewards)
        stds.append(math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards)))
    flat = sum(len(set(rewards)) == 1 for rewards in groups.values()) / len(groups)
    std = sum(stds) / len(stds)
    assert values("group-signal", rows_of(groups)) == pytest.approx(
        {"group-signal": flat, "std": std, "half.flat": flat, "half.std": std / 2}, abs=1e-9
    )


def test_equal_rewards_have_no_spread_despite_rounding():
    assert spread([0.1] * 7) == (True, 0.0)


def test_groups_of_one_are_excluded_and_counted(reported):
    report = reported("group-signal", rows_of({"a": [1.0, 0.0], "b": [1.0]}))
    assert report.units == 1
    assert [(e.unit, e.count) for e in report.left_out] == [("group", 1)]
    single = reported("group-signal", rows_of({"a": [1.0]}))
    assert single.values["group-signal"].value is None


def test_unscored_rows(reported):
    rows = [
        *rows_of({"a": [1.0, 0.0]}),
        {"response": "x", "group": "a", "reward": None, "error": {"type": "BackendError"}},
        {"response": "x", "group": "a"},
    ]
    report = reported("group-signal", rows)
    assert report.values["std"].value == 0.5
    assert [(e.path, e.count) for e in report.left_out] == [("reward", 2)]
    assert "in error" in report.left_out[0].first


def test_a_component_that_some_rows_lack(values):
    rows = rows_of({"a": [1.0, 0.0], "b": [1.0, 0.0]})
    rows[0]["components"] = {"half": None, "other": 1.0}
    rows[1]["components"] = {"other": 1.0}
    result = values("group-signal", rows)
    assert (result["half.std"], result["other.flat"]) == (0.25, 1.0)  # in one group each

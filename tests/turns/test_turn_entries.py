"""Turn entries: the rewards of turns in compositions, in scored rows and over HTTP."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import answer, search

from rag_rewards import (
    DataError,
    Gate,
    GroupAdvantage,
    GroupMinMax,
    GroupZScore,
    Mean,
    Product,
    Rollout,
    Score,
    Scorer,
    Sum,
    custom,
    decode_row,
)
from rag_rewards.compose import Clip, Ramp, Threshold
from rag_rewards.reward import Component, PartScore, combined, total
from rag_rewards.rows import Chunk, ScoredRow
from rag_rewards.rows.scored import turn_rewards

ROW = {
    "turns": [{"text": search("a"), "results": []}, {"text": answer("Paris")}],
    "answers": "Paris",
}


@dataclass(frozen=True)
class Fixed:
    """A reward with these entries for every rollout, or by its response."""

    entries: tuple[float | None, ...]
    name: str = "fixed"
    scope: str = "rollout"

    def needs(self, rollout):
        return []

    def __call__(self, rollouts):
        return [Score(total(self.entries), turns=self.entries) for _ in rollouts]


def one(rollout):
    return 1.0


def half(rollout):
    return 0.5


@dataclass(frozen=True)
class Parts(Fixed):
    """A reward with three components, two of which have entries."""

    entries: tuple[float | None, ...] = ()

    def __call__(self, rollouts):
        components = {"outcome": 0.5, "found": 0.75, "missing": None}
        entries = {"found": (0.75, None), "missing": (None, None)}
        return [PartScore(0.5, components, entries=entries) for _ in rollouts]


TURNS = Fixed((0.25, None, 1.0))
PARTS = Parts()
MISSING = Component(PARTS, "missing", default=0.0)


@pytest.mark.parametrize(
    ("reward", "value", "entries"),
    [
        (Sum(((2.0, TURNS), (1.0, one))), 3.5, (0.5, None, 3.0)),
        (Sum(((1.0, TURNS), (1.0, Fixed((None, 0.5, 0.0))))), 1.75, (0.25, 0.5, 1.0)),
        (Sum(((1.0, one), (1.0, half))), 1.5, ()),
        (Mean((TURNS, half)), 0.875, (0.125, None, 0.75)),
        (Product((TURNS, half)), 0.625, (0.125, None, 0.5)),
        (Product((TURNS, TURNS)), 1.5625, ()),
        (Gate(one, TURNS), 1.25, (0.25, None, 1.0)),
        (Gate(half, TURNS), 0.0, ()),
        (Threshold(TURNS, 0.5), 1.25, ()),
        (Clip(TURNS, 0.0, 1.0), 1.0, ()),
        (Ramp(TURNS, 0.5, 1.0, 100), 0.9375, (0.1875, None, 0.75)),
        (Ramp(half, 1.0, 0.5, 25), 0.25, ()),
        (Component(PARTS, "found"), 0.75, (0.75, None)),
        (Component(PARTS, "missing"), None, (None, None)),
        (Sum(((2.0, Component(PARTS, "found")), (1.0, MISSING))), 1.5, (1.5, None)),
        (Sum(((1.0, Component(PARTS, "outcome")), (1.0, MISSING))), 0.5, (None, 0.5)),
    ],
)
def test_entries_of_compositions(reward, value, entries):
    rollout = Rollout(response="x", step=50)
    (score,) = reward([rollout])
    assert score.value == value
    assert score.turns == entries
    (score,) = custom("mine", reward)([rollout])
    assert score.turns == entries


def test_group_normalization_changes_the_last_entry_only():
    rollouts = [Rollout(response=text, group=1) for text in ("a", "b")]

    def by_text(rollout):
        return 1.0 if rollout.response == "a" else 0.0

    mixed = Sum(((1.0, TURNS), (1.0, by_text)))
    for normalized in (GroupMinMax(mixed), GroupZScore(mixed), GroupAdvantage(mixed)):
        for score in normalized(rollouts):
            first, second, last = score.turns
            assert (first, second) == (0.25, None)
            assert math.isclose(first + last, score.value)


def test_a_ramp_needs_the_training_step():
    ramp = Sum(((1.0, Ramp(one, 0.5, 1.0, 100)), (2.0, Ramp(half, 1.0, 0.5, 100))))
    assert repr(ramp) == "(0.5 → 1 in 100 steps)·one + 2·(1 → 0.5 in 100 steps)·half"
    with pytest.raises(DataError, match=r"^step: missing"):
        ramp([Rollout(response="x")])


def test_a_part_without_a_value_leaves_no_entries():
    def nothing(rollout):
        return None

    (score,) = Sum(((1.0, TURNS), (1.0, nothing)))([Rollout(response="x")])
    assert (score.value, score.turns) == (None, ())


ENTRIES = st.lists(st.none() | st.floats(-10, 10), min_size=3, max_size=3).map(tuple)


@given(st.lists(st.tuples(st.floats(-3, 3), ENTRIES | st.just(())), min_size=1, max_size=4))
def test_the_sum_of_entries_is_the_sum_of_values(parts):
    values = [(weight, entries, total(entries) if entries else 0.5) for weight, entries in parts]
    entries = combined(values)
    expected = sum(weight * value for weight, _, value in values)
    if any(entries for _, entries, _ in values):
        assert math.isclose(total(entries), expected, abs_tol=1e-9)
    else:
        assert entries == ()


def test_entries_must_be_finite():
    with pytest.raises(ValueError, match="finite number"):
        Score(1.0, turns=(float("nan"), 1.0))


def test_entries_of_scored_rows():
    assert turn_rewards((), None, 2) == (None, None)
    lines = [
        json.dumps(ROW | {"id": "a"}),
        json.dumps({"id": "b", "response": "x", "answers": "y"}),
    ]
    chunk = Chunk(lines=[line.encode() for line in lines], numbers=[1, 2])
    written = Scorer.load("naive-grpo").score_rows(chunk).output.splitlines()
    first, second = map(json.loads, written)
    assert first["turn_rewards"] == [None, 1.0]
    assert "turn_rewards" not in second
    again = Chunk(lines=written, numbers=[1, 2])
    rewritten = Scorer.load("naive-grpo").score_rows(again).output.splitlines()
    assert list(map(json.loads, rewritten)) == [first, second]


def test_a_scored_row_has_entries():
    row = ScoredRow.of(decode_row(ROW), Score(1.5, turns=(0.5, 1.0)))
    assert row.turn_rewards == (0.5, 1.0)
    assert row.score.turns == (0.5, 1.0)
    assert ScoredRow.of(decode_row(ROW), Score(1.5)).turn_rewards == (None, 1.5)
    assert ScoredRow.of(Rollout(response="x"), Score(1.5)).turn_rewards is None

"""Statistics of a report: distributions, spread within groups, drift, notes."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import msgspec
import pytest

from rag_rewards.groups import group_by_key
from rag_rewards.report.facts import facts_of
from rag_rewards.report.rows import advantages
from rag_rewards.report.statistics import (
    Statistics,
    correlation,
    distribution,
    statistics,
)
from rag_rewards.rows import ScoredRow


def make_row(i: int, reward: float | None = 1.0, **fields: Any) -> ScoredRow:
    row = {"id": str(i), "response": "It is Paris.", "components": {"accuracy": reward}} | fields
    return msgspec.json.decode(msgspec.json.encode({"reward": reward, **row}), type=ScoredRow)


def statistics_of(rows: list[ScoredRow]) -> Statistics:
    return statistics(rows, [facts_of(row) for row in rows], group_by_key(rows))


def test_few_values_are_counted_by_value_and_many_in_bins() -> None:
    few = distribution("x", [0.0, 0.5, 0.5, None])
    assert (few.discrete, few.edges, few.runs[0].counts) == (True, [0.0, 0.5], [1, 2])
    assert few.runs[0].missing == 1
    many = distribution("x", [i / 100 for i in range(101)])
    assert not many.discrete
    assert sum(many.runs[0].counts) == 101
    assert len(many.edges) == len(many.runs[0].counts) + 1
    assert (many.edges[0], many.edges[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "no rollout has a value"), ([None], "no rollout"), ([2.0], "constant 2")],
)
def test_an_empty_or_constant_distribution_has_a_message(values: list[Any], message: str) -> None:
    assert message in distribution("x", values).runs[0].message


@pytest.mark.parametrize("other", [[3.0, 1.0, 2.0, None], [3.0, None, 2.0, 1.0]])
def test_columns_are_standardized_once(
    monkeypatch: pytest.MonkeyPatch, other: list[float | None]
) -> None:
    """A pair that lacks values in different rows is standardized again."""
    module = import_module("rag_rewards.report.statistics")
    lengths: list[int] = []
    standardize = module._standardized
    monkeypatch.setattr(
        module, "_standardized", lambda values: lengths.append(len(values)) or standardize(values)
    )
    rewards = [1.0, 2.0, 4.0, None]
    rows = [
        make_row(i, reward, components={"a": reward, "b": value})
        for i, (reward, value) in enumerate(zip(rewards, other, strict=True))
    ]
    matrix = statistics_of(rows).matrix
    assert matrix[0][:2] == [1.0, 1.0]
    assert matrix[0][2] == matrix[2][1] == correlation(rewards, other)
    is_equal = other[-1] is None
    assert lengths[:3] == [3] * 3
    assert (len(lengths) == 5) == is_equal  # two of the comparison above


def test_correlation_against_the_textbook() -> None:
    draw = random.Random(0)
    xs = [draw.gauss(0, 1) for _ in range(200)]
    ys = [0.5 * x + draw.gauss(0, 1) for x in xs]
    n = len(xs)
    mx, my = sum(xs) / n, sum(ys) / n
    expected = (
        sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
        / (sum((x - mx) ** 2 for x in xs) * sum((y - my) ** 2 for y in ys)) ** 0.5
    )
    assert correlation(xs, ys) == pytest.approx(expected, abs=1e-5)
    assert correlation([1.0, None, 2.0], [None, 1.0, 2.0]) is None


def test_groups_without_spread_are_counted_among_groups_of_at_least_two() -> None:
    rewards = {"a": (1, 1), "b": (0, 1), "c": (1,)}
    rows = [
        make_row(i, float(value), group=group)
        for i, (group, value) in enumerate((g, v) for g, vs in rewards.items() for v in vs)
    ]
    result = statistics_of(rows)
    assert result.signals[0].dead == 0.5
    assert result.signals[0].spread == 0.25
    assert result.sizes == {1: 1, 2: 2}
    assert any("1 of 3 groups have one rollout" in note for note in result.notes)


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([], "no row that can be shown"),
        ([make_row(1), make_row(2)], "every reward is 1"),
        ([make_row(1, group="a"), make_row(2, 0.0, group="b")], "every group has one rollout"),
        ([make_row(1, None), make_row(2, None)], "no rollout has a reward"),
        ([make_row(1, None), make_row(2)], "1 rollouts are unscored"),
        ([make_row(1), make_row(1, 0.0)], "1 rows repeat the id"),
        (
            [make_row(1, signature="a"), make_row(2, 0.0, signature="b")],
            "2 different signatures",
        ),
    ],
)
def test_empty_and_misleading_charts_have_a_note(rows: list[ScoredRow], note: str) -> None:
    assert any(note in text for text in statistics_of(rows).notes)


def test_properties_of_a_response() -> None:
    row = make_row(1, response="<answer>So [1][2], says [9].</answer>", finish_reason="length")
    assert (facts_of(row).cites, facts_of(row).tags, facts_of(row).cut) == (3, 2, True)
    assert facts_of(make_row(1, response="I don’t know")).abstained
    assert not facts_of(make_row(1, response="I don't know", details={"refused": False})).abstained
    assert facts_of(make_row(1, details={"truth": "uncertain", "refused": True})).abstained
    assert facts_of(make_row(1, details={"refused": True})).refused


def test_the_share_of_answers_that_a_judge_decides() -> None:
    assert statistics_of([make_row(1)]).rates["decided by the judge"] is None
    decisions = [{"decision": value} for value in ("right", "undecided", "wrong")]
    decisions += [{"decision": "undecided", "decided_by": "judge"}]
    rates = statistics_of([make_row(i, details=each) for i, each in enumerate(decisions)]).rates
    assert (rates["decided by the judge"], rates["undecided answers"]) == (0.25, 0.25)


def run(**drifts: Any) -> list[ScoredRow]:
    """Forty steps of four rollouts; a drift is a field as a function of the step."""
    rows = []
    for step in range(40):
        for member in range(4):
            fields = {name: drift(step, member) for name, drift in drifts.items()}
            reward = float(fields.pop("reward", member % 2))
            fields.setdefault("components", {"accuracy": reward})
            rows.append(make_row(4 * step + member, reward, step=step, group=f"{step}", **fields))
    return rows


@pytest.mark.parametrize(
    ("drift", "name"),
    [
        ({"response": lambda step, _: "word " * (10 + step)}, "words per response"),
        ({"response": lambda step, _: "<b>x</b>" * (1 + step // 10)}, "tags per response"),
        ({"response": lambda step, _: "x [1]" * (1 + step // 8)}, "citations per response"),
        (
            {"response": lambda step, m: "I don't know" if m * 10 < step else "It is Paris"},
            "abstentions and refusals",
        ),
        ({"finish_reason": lambda step, m: "length" if m * 10 < step else "stop"}, "cut"),
        ({"reward": lambda step, m: 1 if step > 20 else m % 2}, "groups without signal"),
        (
            {"components": lambda step, m: {"format": 1.0 if step > 20 else float(m % 2)}},
            "format saturated",
        ),
        (
            {"components": lambda step, m: {"format": 0.0 if step > 20 else float(m % 2)}},
            "format saturated",
        ),
        ({"reward": lambda step, m: 5 + m % 2 - step / 10}, "reward"),
    ],
)
def test_drift_is_an_alarm(drift: dict[str, Any], name: str) -> None:
    assert any(name in alarm.name for alarm in statistics_of(run(**drift)).alarms)


def test_a_steady_run_has_no_alarm() -> None:
    assert statistics_of(run()).alarms == []
    assert len(statistics_of(run()).steps) == 40


def test_many_steps_are_averaged() -> None:
    rows = [make_row(i, float(i % 2), step=i) for i in range(1000)]
    steps = statistics_of(rows).steps
    assert len(steps) <= 120
    assert sum(step.n for step in steps) == 1000
    assert statistics_of([make_row(1, step=3)]).steps == []


def test_advantages_are_z_scores_within_groups() -> None:
    rows = [
        make_row(1, 0.0, group="a"),
        make_row(2, 2.0, group="a"),
        make_row(3, 1.0, group="b"),
    ]
    assert advantages(rows, group_by_key(rows)) == [pytest.approx(-1), pytest.approx(1), None]

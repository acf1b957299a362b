"""What a report counts: distributions, spread within groups, drift; what it says in words."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from rag_rewards.groups import group_by_key
from rag_rewards.report.rows import advantages
from rag_rewards.report.statistics import (
    Statistics,
    correlation,
    distribution,
    facts_of,
    statistics,
)
from rag_rewards.rows import ScoredRow


def seen(i: int, reward: float | None = 1.0, **fields: Any) -> ScoredRow:
    row = {"id": str(i), "response": "It is Paris.", "components": {"accuracy": reward}} | fields
    return msgspec.json.decode(msgspec.json.encode({"reward": reward, **row}), type=ScoredRow)


def counted(rows: list[ScoredRow]) -> Statistics:
    return statistics(rows, [facts_of(row) for row in rows], group_by_key(rows))


def test_few_values_are_counted_one_by_one_and_many_in_bins() -> None:
    few = distribution("x", [0.0, 0.5, 0.5, None])
    assert (few.discrete, few.edges, few.counts, few.missing) == (True, [0.0, 0.5], [1, 2], 1)
    many = distribution("x", [i / 100 for i in range(101)])
    assert not many.discrete
    assert sum(many.counts) == 101
    assert len(many.edges) == len(many.counts) + 1
    assert (many.low, many.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [([], "no rollout has a value"), ([None], "no rollout"), ([2.0], "always 2")],
)
def test_a_distribution_of_nothing_is_said_in_words(values: list[Any], said: str) -> None:
    assert said in distribution("x", values).said


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


def test_groups_without_spread_are_counted_over_groups_of_two_and_more() -> None:
    rewards = {"a": (1, 1), "b": (0, 1), "c": (1,)}
    rows = [
        seen(i, float(value), group=group)
        for i, (group, value) in enumerate((g, v) for g, vs in rewards.items() for v in vs)
    ]
    found = counted(rows)
    assert found.signals[0].dead == 0.5
    assert found.signals[0].spread == 0.25
    assert found.sizes == {1: 1, 2: 2}
    assert any("1 of 3 groups are of one rollout" in note for note in found.notes)


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([], "no row that can be shown"),
        ([seen(1), seen(2)], "every reward is 1"),
        ([seen(1, group="a"), seen(2, 0.0, group="b")], "every group is of one rollout"),
        ([seen(1, None), seen(2, None)], "no rollout has a reward"),
        ([seen(1, None), seen(2)], "1 rollouts are not scored"),
        ([seen(1), seen(1, 0.0)], "1 rows repeat an id"),
        ([seen(1, signature="a"), seen(2, 0.0, signature="b")], "scored in 2 ways"),
    ],
)
def test_what_makes_a_picture_empty_is_said(rows: list[ScoredRow], note: str) -> None:
    assert any(note in said for said in counted(rows).notes)


def test_what_a_response_looks_like() -> None:
    row = seen(1, response="<answer>So [1][2], says [9].</answer>", finish_reason="length")
    assert (facts_of(row).cites, facts_of(row).tags, facts_of(row).cut) == (3, 2, True)
    assert facts_of(seen(1, response="I don’t know")).abstained
    assert not facts_of(seen(1, response="I don't know", details={"refused": False})).abstained
    assert facts_of(seen(1, details={"truth": "uncertain", "refused": True})).abstained
    assert facts_of(seen(1, details={"refused": True})).refused


def run(**drifts: Any) -> list[ScoredRow]:
    """Forty steps of four rollouts; a drift gives a field by step."""
    rows = []
    for step in range(40):
        for member in range(4):
            fields = {name: drift(step, member) for name, drift in drifts.items()}
            reward = float(fields.pop("reward", member % 2))
            fields.setdefault("components", {"accuracy": reward})
            rows.append(seen(4 * step + member, reward, step=step, group=f"{step}", **fields))
    return rows


@pytest.mark.parametrize(
    ("drift", "what"),
    [
        ({"response": lambda step, _: "word " * (10 + step)}, "length"),
        ({"response": lambda step, _: "<b>x</b>" * (1 + step // 10)}, "tags"),
        ({"response": lambda step, _: "x [1]" * (1 + step // 8)}, "citations"),
        (
            {"response": lambda step, m: "I don't know" if m * 10 < step else "It is Paris"},
            "abstain or refuse",
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
def test_drift_is_an_alarm(drift: dict[str, Any], what: str) -> None:
    assert any(what in alarm.what for alarm in counted(run(**drift)).alarms)


def test_a_steady_run_has_no_alarm() -> None:
    assert counted(run()).alarms == []
    assert len(counted(run()).steps) == 40


def test_many_steps_are_put_together() -> None:
    rows = [seen(i, float(i % 2), step=i) for i in range(1000)]
    found = counted(rows).steps
    assert len(found) <= 120
    assert sum(step.n for step in found) == 1000
    assert counted([seen(1, step=3)]).steps == []


def test_advantages_are_z_scores_within_groups() -> None:
    rows = [seen(1, 0.0, group="a"), seen(2, 2.0, group="a"), seen(3, 1.0, group="b")]
    assert advantages(rows, group_by_key(rows)) == [pytest.approx(-1), pytest.approx(1), None]

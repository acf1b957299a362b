"""The values of scored rows as metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_rewards.metrics import metric_of
from rag_rewards.metrics.evaluation import EvaluateOptions, evaluate


def values(tmp_path: Path, rows: list[dict], *metrics: str) -> dict[str, float | None]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"response": "a", **row}) + "\n" for row in rows))
    [run] = evaluate(EvaluateOptions([str(path)], metrics, resamples=2)).runs
    return {report.metric: report.values[report.metric].value for report in run.metrics}


SCORED = [
    {"reward": 2.0, "correct": 1.0, "components": {"format": 1.0, "bonus": None}},
    {"reward": 1.0, "correct": None, "components": {"format": 0.0, "bonus": 3.0}},
    {"reward": None, "correct": 0.0, "components": {"format": 0.0, "bonus": None}},
]


def test_the_means_are_those_of_the_rows_with_a_value(tmp_path: Path) -> None:
    names = ("reward", "correct", "components.format", "components.bonus", "reward>=2")
    assert values(tmp_path, SCORED, *names) == {
        "reward": 1.5, "correct": 0.5, "components.format": pytest.approx(1 / 3),
        "components.bonus": 3.0, "reward>=2.0": 0.5,
    }  # fmt: skip


def test_rows_without_a_score_are_excluded(tmp_path: Path) -> None:
    assert values(tmp_path, [*SCORED, {}], "reward") == {"reward": 1.5}


@pytest.mark.parametrize("name", ["reward", "correct", "components.format"])
def test_the_repr_is_the_name(name: str) -> None:
    assert repr(metric_of(f" {name}")) == name

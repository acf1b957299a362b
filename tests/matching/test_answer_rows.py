"""The shares of attacks and honest answers that are right and wrong.

The rows were written before their decisions were known, in six sets. Each later set was written
after the rules had been repaired with the earlier ones. Of the last three, a part is here.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.matching.decide import decide

FOLDER = Path(__file__).parent


@cache
def rows(name: str) -> list[dict[str, Any]]:
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def shares(selected: list[dict[str, Any]]) -> Counter[str]:
    values = Counter(
        decide(row["answer"], row["answers"], row["question"]).value for row in selected
    )
    return Counter({value: count / len(selected) for value, count in values.items()})


def test_attacks_are_not_right() -> None:
    assert shares(rows("attacks"))["right"] <= 0.01


def test_honest_answers_in_the_required_form_are_right() -> None:
    found = shares([row for row in rows("honest") if row["class"] != "prose"])
    assert found["right"] >= 0.95
    assert found["wrong"] <= 0.01


def test_honest_answers_in_prose_are_not_wrong() -> None:
    assert shares([row for row in rows("honest") if row["class"] == "prose"])["wrong"] <= 0.02


def test_each_class_of_attacks_has_15_rows() -> None:
    assert min(Counter(row["class"] for row in rows("attacks")).values()) >= 15


def labelled(shared: Path, name: str, model: str) -> list[tuple[str, list[str], str, bool]]:
    """Return questions, aliases, answers and whether people call the answers right."""
    path = shared / "data" / "evouna" / f"{name}_half.jsonl"
    with path.open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [
        (
            line["question"],
            [alias.strip() for alias in line["golden_answer"].split("/") if alias.strip()],
            line[f"answer_{model}"],
            bool(line[f"judge_{model}"]),
        )
        for line in lines
        if not line.get("improper") and line.get(f"judge_{model}") is not None
    ]


@pytest.mark.parametrize(("name", "recall"), [("nq", 0.80), ("tq", 0.88)])
def test_short_answers_that_people_label(shared: Path, name: str, recall: float) -> None:
    counts = Counter(
        (decide(answer, gold, question).value, label)
        for question, gold, answer, label in labelled(shared, name, "fid")
    )
    right = counts["right", True]
    positives = right + counts["undecided", True] + counts["wrong", True]
    assert right / (right + counts["right", False]) >= 0.99
    assert right / positives >= recall
    # A cascade whose judge is perfect errs on the answers that are decided without it.
    errors, total = counts["right", False] + counts["wrong", True], counts.total()
    accepted = positives - counts["wrong", True] + counts["right", False]
    chance = (accepted * positives + (total - accepted) * (total - positives)) / total**2
    assert (1 - errors / total - chance) / (1 - chance) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"), [("nq", "gpt35"), ("tq", "chatgpt"), ("nq", "gpt4"), ("tq", "newbing")]
)
def test_long_answers_that_people_label(shared: Path, name: str, model: str) -> None:
    """`tests/metrics/test_cascade_agreement.py` decides on all of them together."""
    labels = [
        label
        for question, gold, answer, label in labelled(shared, name, model)
        if decide(answer, gold, question).value == "right"
    ]
    assert sum(labels) >= 0.99 * len(labels)

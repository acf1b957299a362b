"""Comparisons of scored files: pairing, differences, outcomes, changed rows, notes."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from rag_rewards.metrics.intervals import interval, poisson_weights
from rag_rewards.report.comparison import comparison_page
from rag_rewards.report.comparison.changes import largest_changes
from rag_rewards.report.comparison.comparison_page import contents, file_names, runs_of
from rag_rewards.report.comparison.configuration import differing_settings
from rag_rewards.report.comparison.values import value_names
from rag_rewards.report.rows import RowFile
from rag_rewards.rows import ScoredRow

ARENA = "rag-rewards 0.5.0 arena"


def row(id: Any, reward: float | None, correct: float | None = None, **fields: Any) -> ScoredRow:
    values = {"id": id, "response": f"It is {reward}.", "reward": reward, "signature": ARENA}
    values |= {"components": {"accuracy": reward}, "correct": correct} | fields
    return msgspec.json.decode(msgspec.json.encode(values), type=ScoredRow)


def compared(*files: list[ScoredRow]) -> dict[str, Any]:
    """Return the data of the page of files, which are named a, b and so on."""
    runs = [RowFile(name, rows) for name, rows in zip("abcd", files, strict=False)]
    metrics = value_names(files)
    data, _ = contents(runs_of(runs, [run.name for run in runs], metrics), metrics, "title")
    return data


def difference(data: dict[str, Any], name: str = "reward") -> dict[str, Any]:
    [comparison] = data["comparisons"]
    result: dict[str, Any] = comparison["differences"][name]
    return result


def test_differences_are_those_of_common_rows() -> None:
    base = [row("1", 0.0, 0.0), row("2", 1.0, 1.0), row("3", 1.0, 1.0), row("only", 9.0)]
    other = [row("3", 0.5, 0.0), row("2", 1.0, 1.0), row("1", 1.0, 1.0)]
    data = compared(base, other)
    assert [each["value"] for each in data["values"][0]["runs"]] == [11 / 4, 2.5 / 3]
    assert difference(data)["base"] == pytest.approx(2 / 3)
    assert difference(data)["difference"] == pytest.approx(2.5 / 3 - 2 / 3)
    agreement = difference(data, "correct")["agreement"]
    assert agreement == {"both": 1, "only_base": 1, "only_other": 1, "neither": 0}
    outcomes = {each.name: each for each in data["comparisons"][0]["outcomes"]}
    reward = outcomes["reward"]
    assert (reward.higher, reward.equal, reward.lower) == (1, 1, 1)
    assert "3 rows are in both b and a" in data["notes"][0]


def test_intervals_equal_those_of_repeated_questions() -> None:
    rng = random.Random(3)
    base, other = ([], [])  # type: tuple[list[ScoredRow], list[ScoredRow]]
    for i in range(24):
        first = rng.choice([0.0, 1.0])
        question = f"question {i // 2}"
        base.append(row(str(i), first, question=question))
        other.append(row(str(i), max(first, rng.choice([0.0, 1.0])), question=question))
    result = difference(compared(base, other))
    draws, values = random.Random(0), []
    while len(values) < 1000:
        times = list(map(int, poisson_weights(draws, 12)))
        drawn = [i for i in range(24) for _ in range(times[i // 2])]
        if drawn:
            changes = [other[i].reward - base[i].reward for i in drawn]  # type: ignore[operator]
            values.append(sum(changes) / len(changes))
    assert (result["low"], result["high"]) == pytest.approx(interval(values))


def test_rows_of_other_questions_are_not_paired() -> None:
    base = [row("1", 0.0, question="a?"), row("2", 0.0, question="b?")]
    other = [row("1", 1.0, question="a"), row("2", 1.0, question="c?")]
    [comparison] = compared(base, other)["comparisons"]
    assert comparison["unit"] == "row"
    assert comparison["rows"].shared == 1
    assert comparison["differences"]["reward"]["units"] == 1


def test_rows_are_paired_within_a_training_step() -> None:
    base = [row("1", 0.0, step=1), row("1", 1.0, step=2)]
    other = [row("1", 1.0, step=2), row("1", 1.0, step=1)]
    [comparison] = compared(base, other)["comparisons"]
    assert comparison["rows"].shared == 2
    assert comparison["differences"]["reward"]["difference"] == 0.5
    later = [row("1", 1.0, step=9)]
    assert compared([base[0]], later)["comparisons"][0]["unit"] == "row"


def test_common_questions_are_compared_without_common_rows() -> None:
    base = [
        row("a1", 0.0, question="q"),
        row("a2", 1.0, question="q"),
        row("a3", 1.0, question="r"),
    ]
    other = [row("b1", 1.0, question="q"), row("b2", 1.0, question="s")]
    data = compared(base, other)
    [comparison] = data["comparisons"]
    assert comparison["unit"] == "question"
    assert comparison["differences"]["reward"]["units"] == 1
    assert comparison["differences"]["reward"]["difference"] == 0.5
    assert comparison["outcomes"] == []
    assert "differences are those of their common questions" in data["notes"][0]


def test_files_without_a_common_question() -> None:
    data = compared([row("a", 0.0, question="q")], [row("b", 1.0, question="r")])
    assert data["comparisons"][0]["unit"] == ""
    assert difference(data)["difference"] is None
    assert "no row and no question in common" in data["notes"][0]


def test_rows_with_a_repeated_id_are_left_out() -> None:
    base = [row("1", 0.0), row("1", 1.0), row("2", 0.0)]
    [comparison] = compared(base, [row("1", 1.0), row("2", 1.0)])["comparisons"]
    assert comparison["rows"].twice == 1
    assert [each["id"] for each in comparison["changes"]] == ["2"]


def test_the_largest_change_of_the_reward_is_first() -> None:
    base = [row("1", 0.0, 0.0), row("2", 0.0, 1.0), row("3", 1.0, 1.0), row("4", 5.0, 1.0)]
    other = [row("1", 0.5, 0.0), row("2", 0.1, 0.0), row("3", 1.0, 1.0), row("4", 1.0, 1.0)]
    positions = [(i, i) for i in range(4)]
    changes = largest_changes(base, other, positions, correct_first=False)
    assert [each.base for each in changes] == [3, 0, 1]
    changes = largest_changes(base, other, positions, correct_first=True)
    assert [each.base for each in changes] == [1, 3, 0]


def test_an_unscored_row_has_no_change() -> None:
    [comparison] = compared([row("1", None), row("2", 0.0)], [row("1", 1.0), row("2", 1.0)])[
        "comparisons"
    ]
    assert comparison["differences"]["reward"]["units"] == 1
    assert [each["id"] for each in comparison["changes"]] == ["2"]


def test_distributions_have_common_bins() -> None:
    base = [row(str(i), i / 20) for i in range(20)]
    other = [row(str(i), 1 + i / 20) for i in range(21)]
    reward = compared(base, other)["distributions"][0]
    assert (reward["low"], reward["high"], reward["discrete"]) == (0.0, 2.0, False)
    assert [sum(counts) for counts in reward["counts"]] == [20, 21]
    assert sum(reward["counts"][1][:12]) == 0
    few = compared([row("1", 0.0)], [row("1", 1.0)])["distributions"][0]
    assert (few["edges"], few["counts"]) == ([0.0, 1.0], [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("signatures", "note"),
    [
        ((ARENA, "rag-rewards 0.5.0 naive-grpo"), "the recipes differ (a: arena, b: naive-grpo)"),
        ((ARENA, f"{ARENA} bonus.value=5"), "the signatures differ (bonus.value)"),
        ((ARENA, ""), "it is unknown how these files were scored: b"),
        ((ARENA, "<script>"), "it is unknown how these files were scored: b"),
    ],
)
def test_different_signatures_have_a_note(signatures: tuple[str, str], note: str) -> None:
    files = [[row("1", 1.0, signature=text or None)] for text in signatures]
    data = compared(*files)
    assert any(note in each for each in data["notes"])
    assert data["settings"]


def test_equal_signatures_have_no_note() -> None:
    data = compared([row("1", 1.0), row("2", 0.0)], [row("1", 1.0), row("2", 0.0)])
    assert not [note for note in data["notes"] if "differ" in note]
    assert data["settings"] == []


def test_settings_that_differ() -> None:
    texts = [f"{ARENA} hardened", f'{ARENA} models={{"judge":"m"}}', "rag-rewards 0.4.0 arena"]
    rows = {each.name: each.values for each in differing_settings(texts)}
    assert rows == {
        "version": ["0.5.0", "0.5.0", "0.4.0"],
        "hardened": ["yes", None, None],
        "model: judge": [None, "m", None],
    }


def test_texts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_page, "TEXT_BYTES", 1)
    base, other = [row("1", 0.0)], [row("1", 1.0)]
    [comparison] = compared(base, other)["comparisons"]
    assert comparison["changes"][0]["text"] is None


def test_each_further_file_is_compared_with_the_first() -> None:
    data = compared([row("1", 0.0)], [row("1", 1.0)], [row("1", 3.0)])
    differences = [each["differences"]["reward"]["difference"] for each in data["comparisons"]]
    assert differences == [1.0, 3.0]


def test_names_of_files() -> None:
    assert file_names(["x/a.jsonl", "y/b.jsonl"]) == ["a.jsonl", "b.jsonl"]
    assert file_names(["a.jsonl", "./a.jsonl"]) == ["1: a.jsonl", "2: a.jsonl"]
    assert file_names(["-", "a.jsonl"]) == ["standard input", "a.jsonl"]

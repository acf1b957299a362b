"""Comparisons of scored files: pairing, differences, outcomes, changed rows, notes."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from rag_rewards.metrics.comparison import Difference
from rag_rewards.metrics.intervals import interval, poisson_weights
from rag_rewards.report import report_page
from rag_rewards.report.configuration import differing_settings
from rag_rewards.report.file_comparison import (
    FileComparison,
    compare_files,
    largest_changes,
    measured_values,
    row_names,
    value_names,
)
from rag_rewards.report.report_page import contents, file_names, runs_of
from rag_rewards.report.rows import RowFile
from rag_rewards.rows import ScoredRow

ARENA = "rag-rewards 0.5.0 arena"


def row(id: Any, reward: float | None, correct: float | None = None, **fields: Any) -> ScoredRow:
    values = {"id": id, "response": f"It is {reward}.", "reward": reward, "signature": ARENA}
    values |= {"components": {"accuracy": reward}, "correct": correct} | fields
    return msgspec.json.decode(msgspec.json.encode(values), type=ScoredRow)


def compared(base: list[ScoredRow], other: list[ScoredRow]) -> FileComparison:
    files = [base, other]
    metrics, names = value_names(files), row_names(files)
    first, second = (
        measured_values("", rows, metrics, own) for rows, own in zip(files, names, strict=True)
    )
    return compare_files(base, other, (first, second), metrics, correct_first=False)


def page_of(*files: list[ScoredRow]) -> dict[str, Any]:
    """Return the data of the page of files, which are named a, b and so on."""
    names = list("abcd"[: len(files)])
    data, _ = contents(runs_of(list(map(RowFile, names, files)), names), "title")
    return data


def difference(comparison: FileComparison, name: str = "reward") -> Difference:
    return next(each for each in comparison.result.differences if each.name == name)


def test_differences_are_those_of_common_rows() -> None:
    base = [row("1", 0.0, 0.0), row("2", 1.0, 1.0), row("3", 1.0, 1.0), row("only", 9.0)]
    other = [row("3", 0.5, 0.0), row("2", 1.0, 1.0), row("1", 1.0, 1.0)]
    data, comparison = page_of(base, other), compared(base, other)
    assert [each["value"] for each in data["values"][0]["runs"]] == [11 / 4, 2.5 / 3]
    assert difference(comparison).base == pytest.approx(2 / 3)
    assert difference(comparison).difference == pytest.approx(2.5 / 3 - 2 / 3)
    both = difference(comparison, "correct").agreement
    assert both is not None
    assert (both.both, both.only_base, both.only_other, both.neither) == (1, 1, 1, 0)
    reward = comparison.outcomes[0]
    assert (reward.name, reward.higher, reward.equal, reward.lower) == ("reward", 1, 1, 1)
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
    assert (result.low, result.high) == pytest.approx(interval(values))


def test_rows_of_other_questions_are_not_paired() -> None:
    base = [row("1", 0.0, question="a?"), row("2", 0.0, question="b?")]
    other = [row("1", 1.0, question="a"), row("2", 1.0, question="c?")]
    comparison = compared(base, other)
    assert (comparison.unit, comparison.result.rows.shared) == ("row", 1)
    assert difference(comparison).units == 1


def test_rows_are_paired_within_a_training_step() -> None:
    base = [row("1", 0.0, step=1), row("1", 1.0, step=2)]
    other = [row("1", 1.0, step=2), row("1", 1.0, step=1)]
    comparison = compared(base, other)
    assert comparison.result.rows.shared == 2
    assert difference(comparison).difference == 0.5
    assert compared([base[0]], [row("1", 1.0, step=9)]).unit == "row"


def test_common_questions_are_compared_without_common_rows() -> None:
    base = [row(f"a{i}", float(i > 0), question="qqr"[i]) for i in range(3)]
    other = [row("b1", 1.0, question="q"), row("b2", 1.0, question="s")]
    comparison = compared(base, other)
    assert (comparison.unit, comparison.outcomes) == ("question", [])
    assert (difference(comparison).units, difference(comparison).difference) == (1, 0.5)
    note = "differences are those of their common questions"
    assert note in page_of(base, other)["notes"][0]


def test_files_without_a_common_question() -> None:
    files = [row("a", 0.0, question="q")], [row("b", 1.0, question="r")]
    assert compared(*files).unit == ""
    assert difference(compared(*files)).difference is None
    assert "no row and no question in common" in page_of(*files)["notes"][0]


def test_rows_that_are_repeated_or_unscored_have_no_change() -> None:
    base = [row("1", 0.0), row("1", 1.0), row("2", 0.0), row("3", None)]
    comparison = compared(base, [row("1", 1.0), row("2", 1.0), row("3", 1.0)])
    assert comparison.result.rows.twice == 1
    assert difference(comparison).units == 1
    assert [each.base for each in comparison.changes] == [2]


def test_the_largest_change_of_the_reward_is_first() -> None:
    base = [row("1", 0.0, 0.0), row("2", 0.0, 1.0), row("3", 1.0, 1.0), row("4", 5.0, 1.0)]
    other = [row("1", 0.5, 0.0), row("2", 0.1, 0.0), row("3", 1.0, 1.0), row("4", 1.0, 1.0)]
    positions = [(i, i) for i in range(4)]
    changes = largest_changes(base, other, positions, correct_first=False)
    assert [each.base for each in changes] == [3, 0, 1]
    changes = largest_changes(base, other, positions, correct_first=True)
    assert [each.base for each in changes] == [1, 3, 0]


def test_distributions_have_common_bins() -> None:
    base = [row(str(i), i / 20) for i in range(20)]
    other = [row(str(i), 1 + i / 20) for i in range(21)]
    reward = page_of(base, other)["distributions"][0]
    assert (reward.edges[0], reward.edges[-1], reward.discrete) == (0.0, 2.0, False)
    assert [sum(run.counts) for run in reward.runs] == [20, 21]
    assert sum(reward.runs[1].counts[:12]) == 0
    few = page_of([row("1", 0.0)], [row("1", 1.0)])["distributions"][0]
    assert (few.edges, [run.counts for run in few.runs]) == ([0.0, 1.0], [[1, 0], [0, 1]])


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
    data = page_of(*files)
    assert any(note in each for each in data["notes"])
    assert data["settings"]


def test_equal_signatures_have_no_note() -> None:
    data = page_of([row("1", 1.0), row("2", 0.0)], [row("1", 1.0), row("2", 0.0)])
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


def test_the_texts_of_changed_rows_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "TEXT_BYTES", 1)
    monkeypatch.setattr(report_page, "BLOCK_ROWS", 1)
    files = [[row(str(i), float(i == changed)) for i in range(9)] for changed in (9, 7)]
    names = ["a", "b"]
    runs = runs_of(list(map(RowFile, names, files)), names)
    data, packed = contents(runs, "title")
    assert [run["texts"] for run in data["runs"]] == [1, 1]
    for k in range(2):
        assert list(packed[f"block-{k}-0"]["rows"]) == ["7"]
        assert packed[f"columns-{k}"]["block"][7] == 0


def test_each_further_file_is_compared_with_the_first() -> None:
    data = page_of([row("1", 0.0)], [row("1", 1.0)], [row("1", 3.0)])
    differences = [each["differences"]["reward"].difference for each in data["comparisons"]]
    assert differences == [1.0, 3.0]


def test_names_of_files() -> None:
    assert file_names(["x/a.jsonl", "y/b.jsonl"]) == ["a.jsonl", "b.jsonl"]
    assert file_names(["a.jsonl", "./a.jsonl"]) == ["1: a.jsonl", "2: a.jsonl"]
    assert file_names(["-", "a.jsonl"]) == ["standard input", "a.jsonl"]

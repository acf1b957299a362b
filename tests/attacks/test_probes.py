"""The hardened recipes reject the attacks of the probes and accept their honest responses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import probe_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hardening-cost.md"
"""The counts of the rows that hold. `tests/test_generated_pages.py` compares it with the code."""


def test_few_rows_of_a_class_and_of_all_classes_fail() -> None:
    """For each recipe. `python tests/attacks/probe_rows.py --show CLASS` prints these rows."""
    page = PAGE.read_text("utf-8").replace(",", "")
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| \d+ \| (\d+) \|$", page, re.MULTILINE)
    titles = {each.partition("-")[2].replace("-", " ") for each in probe_rows.classes()}
    assert {title for title, *_ in rows} == {"listed attacks", *titles}
    assert [row for row in rows if int(row[2]) < 0.9 * int(row[1])] == []
    counts = re.search(r"^\| all recipes \| (.*) \| \d+ \|$", page, re.MULTILINE)
    assert counts
    attacks, _, stopped, honest, _, accepted = map(int, counts[1].split(" | "))
    assert (stopped >= 0.99 * attacks, accepted >= 0.95 * honest) == (True, True)


def test_a_class_has_at_least_25_different_rows() -> None:
    for name in probe_rows.classes():
        lines = (probe_rows.FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
        assert len(set(lines)) == len(lines) >= 25, name


LINE = '{"recipes": %s, "question": "Where?", "response": "Oslo", %s}'


@pytest.mark.parametrize(
    ("recipes", "rest", "message"),
    [
        ('"all"', '"row": {}', "give one of golds, correct"),
        ('"all"', '"correct": true, "below": "Rome"', "give one of golds, correct"),
        ('"all"', '"golds": ["Oslo"]', "at least two answers"),
        ('"none"', '"correct": true', "one of all, decided, cited"),
        ("{}", '"corect": true', "unknown field `corect`"),
    ],
)
def test_an_invalid_row_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipes: str, rest: str, message: str
) -> None:
    (tmp_path / "bad.jsonl").write_text(LINE % (recipes, rest), "utf-8")
    monkeypatch.setattr(probe_rows, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=rf"bad\.jsonl line 1: .*{message}"):
        list(probe_rows.read("bad"))


@pytest.mark.parametrize(
    ("expectation", "holds"),
    [
        ('"golds": ["Oslo", "Bergen"]', True),
        ('"row": {"answers": ["Oslo"]}, "correct": true', True),
        ('"row": {"answers": ["Rome"]}, "correct": true', False),
        ('"row": {"answers": ["Oslo"]}, "correct": false', False),
        ('"row": {"answers": ["Oslo"]}, "decision": ["right"]', True),
        ('"row": {"answers": ["Rome"]}, "decision": ["right", "wrong"]', False),
        ('"row": {"answers": ["Oslo"]}, "below": "Rome"', False),
        ('"row": {"answers": ["Oslo"]}, "at_most": "Rome"', False),
        ('"row": {"answers": ["Oslo"]}, "at_most": "Oslo"', True),
        ('"row": {"answers": ["Oslo"]}, "at_least": "Rome"', True),
        ('"row": {"answers": ["Rome"]}, "at_least": "Rome"', False),
    ],
)
def test_expectations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expectation: str, holds: bool
) -> None:
    (tmp_path / "one.jsonl").write_text(LINE % ('"decided"', expectation), "utf-8")
    monkeypatch.setattr(probe_rows, "FOLDER", tmp_path)
    (probe,) = probe_rows.read("one")
    assert probe.holds() is holds

"""The hardened recipes reject the attacks of the probes and accept their honest responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import probe_rows

FEWEST = {
    "honest-other-languages": 0.8,  # a verb before its subject, and endings that are not listed
    "honest-spellings": 0.85,  # "7 p.m." for "7 pm"
}
"""The share of a class that holds, where it is below 90%."""


@pytest.mark.parametrize(("kind", "most"), [("attack", 0.01), ("honest", 0.05)])
def test_few_rows_of_a_class_and_of_all_classes_fail(kind: str, most: float) -> None:
    failed = count = 0
    for name in (each for each in probe_rows.classes() if each.startswith(kind)):
        probes = list(probe_rows.read(name))
        failures = {n: lines for n, probe in enumerate(probes, 1) if (lines := probe.failures())}
        assert len(failures) <= (1 - FEWEST.get(name, 0.9)) * len(probes), (name, failures)
        failed, count = failed + len(failures), count + len(probes)
    assert failed <= most * count, failed


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

"""Columns of a row by name or path, labels and scores."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from rag_rewards.calibration.scores import score_of
from rag_rewards.errors import RowError
from rag_rewards.metrics.agreement import label_of
from rag_rewards.rows.column_map import read_columns


def columns(row, *names):
    line = row if isinstance(row, bytes) else json.dumps(row).encode()
    return read_columns(line, names)


def test_columns_by_name_and_by_path():
    row = {"a": 1, "b": {"c": {"d.e": 2}}, "f.g": 3, "f": {"g": 4}, "h.i": {"j": 5}, "n": None}
    assert columns(row, "a", "b.c.d.e", "f.g", "h.i.j", "n", "a.x", "b.x", "none") == {
        "a": 1,
        "b.c.d.e": 2,
        "f.g": 3,
        "h.i.j": 5,
        "n": None,
        "a.x": None,
        "b.x": None,
        "none": None,
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"[1]", "expected object, found array"),
        (b'{"s": NaN}', "s: not a finite number"),
        (b'{"s": "\xff"}', "UTF-8"),
        (b'{"s": ' + b"[" * 100_000, "JSON"),
    ],
)
def test_lines_that_are_no_rows(line, message):
    with pytest.raises(RowError, match=message):
        columns(line, "s")


@pytest.mark.parametrize(
    ("value", "threshold", "label"),
    [
        (True, None, True),
        (False, None, False),
        ("yes", None, True),
        (" NO ", None, False),
        ("True", None, True),
        ("n", None, False),
        (None, None, None),
        ("", None, None),
        ("  ", 3, None),
        (3, 3, True),
        (2.9, 3, False),
        ("4", 3, True),
        (1, 3, False),
        (True, 3, True),
        ("no", 3, False),
    ],
)
def test_labels(value, threshold, label):
    assert label_of(value, threshold, "human") is label


@pytest.mark.parametrize(
    ("value", "grade"), [(3, 3.0), ("0.5", 0.5), (-1, -1.0), (1, 1.0), ("0", 0.0)]
)
def test_grades(value, grade):
    assert label_of(value, None, "human") == grade


@pytest.mark.parametrize(
    ("value", "threshold", "message"),
    [
        (
            "maybe",
            None,
            r"human: expected a label \(.*yes, no, correct, incorrect or a number\), found 'maybe'",
        ),
        ("good", 3, r"incorrect or a number\), found 'good'"),
        ([1], None, r"found \[1\]"),
        (nan, 3, "found nan"),
        ("x" * 500, None, r"found '.{0,60}"),
    ],
)
def test_invalid_labels(value, threshold, message):
    with pytest.raises(RowError, match=message) as caught:
        label_of(value, threshold, "human")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("value", "score"), [(0.5, 0.5), (2, 2.0), (True, 1.0), (None, None)])
def test_scores(value, score):
    assert score_of(value, "judge") == score


@pytest.mark.parametrize("value", [nan, inf, "0.5", [0.5], 10**400])
def test_invalid_scores(value):
    with pytest.raises(RowError, match="judge: expected a finite number as the score"):
        score_of(value, "judge")

"""`score` with each kind of table. The test also runs with the oldest versions of the libraries."""

from __future__ import annotations

from typing import Any

import pytest

import rag_rewards as rr

ROWS: list[dict[str, Any]] = [
    {"response": "<think>x</think><answer>Paris</answer>", "answers": ["Paris"], "group": "a"},
    {"response": "<think>x</think><answer>Rome</answer>", "answers": ["Paris"], "group": "a"},
    {"response": "<answer>Rome</answer>", "answers": None, "group": "b"},
]


def _table(kind: str, rows: list[dict[str, Any]]) -> Any:
    if kind == "rows":
        return rows
    library = pytest.importorskip("pyarrow" if kind == "arrow" else kind)
    if kind == "arrow":
        return library.Table.from_pylist(rows)
    return library.DataFrame(rows)


def _values(table: Any, name: str) -> list[Any]:
    column = [row[name] for row in table] if isinstance(table, list) else table[name]
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return [None if value is None or value != value else value for value in values]


@pytest.mark.parametrize("kind", ["rows", "arrow", "pandas", "polars"])
def test_each_kind_of_table(kind: str) -> None:
    pytest.importorskip("narwhals")
    scored = rr.score(_table(kind, ROWS), "naive-grpo")
    assert _values(scored, "reward") == [2.0, 1.0, None]
    assert _values(scored, "components")[:2] == [
        {"format": 1.0, "accuracy": 1.0},
        {"format": 1.0, "accuracy": 0.0},
    ]
    assert _values(scored, "error") == [None, None, "answers: missing"]


@pytest.mark.parametrize("kind", ["rows", "arrow", "pandas", "polars"])
def test_no_row_has_a_score(kind: str) -> None:
    pytest.importorskip("narwhals")
    scored = rr.score(_table(kind, ROWS[2:]), "naive-grpo")
    assert _values(scored, "components") == [None]
    assert _values(scored, "error") == ["answers: missing"]

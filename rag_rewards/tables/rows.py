"""A list of rows as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rag_rewards.tables.table import Column


class RowTable:
    """A list of mappings. A row that lacks a column has no value there."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(name) for row in self.rows for name in row))

    def values(self, column: str, start: int, stop: int) -> list[Any]:
        return [row.get(column) for row in self.rows[start:stop]]

    def with_columns(self, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
        copies = [dict(row) for row in self.rows]
        for name, column in columns.items():
            for row, value in zip(copies, column.values, strict=True):
                row[name] = value
        return copies

    def __len__(self) -> int:
        return len(self.rows)

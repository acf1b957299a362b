"""`Table`, what every kind of table provides, `Column`, a new column, and lists of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Column:
    """The values of a new column, and their kind, which does not depend on the values.

    kind   `number`, `text`, `numbers` for a list of numbers, or `mapping` for names with numbers
    names  the names of a mapping
    """

    values: Sequence[Any]
    kind: Literal["number", "text", "numbers", "mapping"]
    names: tuple[str, ...] = ()


class Table(Protocol):
    """Rows with named columns that can be read by column and copied with new columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""

    def values(self, column: str, start: int, stop: int) -> Sequence[Any]:
        """Return the values of a column in some rows."""

    def with_columns(self, columns: Mapping[str, Column]) -> Any:
        """Return a copy of the data with these columns, in place of columns of the same name."""

    def __len__(self) -> int:
        """Return the number of rows."""


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
        new = zip(*(column.values for column in columns.values()), strict=True)
        return [
            {**row, **dict(zip(columns, values, strict=True))}
            for row, values in zip(self.rows, new, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.rows)

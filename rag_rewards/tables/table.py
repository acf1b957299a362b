"""`Table`, what every kind of table provides, and `Column`, a new column of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

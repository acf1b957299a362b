"""`Table`, what every kind of table provides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Table(Protocol):
    """Rows with named columns that can be read by column and copied with new columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""

    def values(self, column: str, start: int, stop: int) -> Sequence[Any]:
        """Return the values of a column in some rows."""

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> Any:
        """Return a copy of the data with these columns, in place of columns of the same name."""

    def __len__(self) -> int:
        """Return the number of rows."""

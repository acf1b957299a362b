"""Data frames of pandas, polars and others, and Arrow tables, as tables.

narwhals provides one interface to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from rag_rewards.tables.table import Column


class FrameTable:
    """A data frame or an Arrow table. Its index, if it has one, is not read and stays as it is."""

    def __init__(self, data: Any) -> None:
        self.frame: nw.DataFrame[Any] = nw.from_native(data, eager_only=True)
        # The names of columns in pandas can be numbers and tuples.
        self._names = {str(name): name for name in self.frame.columns}

    @property
    def columns(self) -> list[str]:
        return list(self._names)

    def values(self, column: str, start: int, stop: int) -> list[Any]:
        return self.frame.get_column(self._names[column])[start:stop].to_list()

    def with_columns(self, columns: Mapping[str, Column]) -> Any:
        new = [self._series(name, column) for name, column in columns.items()]
        return self.frame.with_columns(*new).to_native()

    def _series(self, name: str, column: Column) -> nw.Series[Any]:
        backend = self.frame.implementation
        dtype = dtype_of(column)
        if backend.is_pandas_like() and dtype.is_nested():
            dtype = None  # a column of Python objects, as pandas users expect
        return nw.new_series(name, list(column.values), dtype, backend=backend)

    def __len__(self) -> int:
        return len(self.frame)


def dtype_of(column: Column) -> Any:
    """Return the type of a new column, which is the same for any values."""
    if column.kind == "text":
        return nw.String()
    if column.kind == "numbers":
        return nw.List(nw.Float64())
    if column.kind == "mapping":
        return nw.Struct(dict.fromkeys(column.names, nw.Float64()))
    return nw.Float64()

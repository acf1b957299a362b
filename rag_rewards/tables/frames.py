"""Data frames of pandas, polars and others, Arrow tables, and `datasets.Dataset`, as tables.

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
        dtype = _dtype_of(column)
        if backend.is_pandas_like() and dtype.is_nested():
            dtype = None  # a column of Python objects, as pandas users expect
        return nw.new_series(name, list(column.values), dtype, backend=backend)

    def __len__(self) -> int:
        return len(self.frame)


class DatasetTable(FrameTable):
    """A data set of the package datasets, with the order and the selection of its rows."""

    def __init__(self, data: Any) -> None:
        super().__init__(data.with_format("arrow")[:])
        self.data = data

    def with_columns(self, columns: Mapping[str, Column]) -> Any:
        from datasets import Dataset, concatenate_datasets

        if not len(self):  # concatenate_datasets drops the columns of empty data sets
            return Dataset(super().with_columns(columns))
        new = [self._series(name, column) for name, column in columns.items()]
        others = self.data.remove_columns([name for name in columns if name in self.columns])
        frame = self.frame.select(*new).to_native()
        return concatenate_datasets([others, Dataset(frame)], axis=1)


def _dtype_of(column: Column) -> Any:
    """Return the type of a new column, which is the same for any values."""
    if column.kind == "text":
        return nw.String()
    if column.kind == "numbers":
        return nw.List(nw.Float64())
    if column.kind == "mapping":
        return nw.Struct(dict.fromkeys(column.names, nw.Float64()))
    return nw.Float64()

"""`datasets.Dataset` as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from rag_rewards.tables.frames import FrameTable, dtype_of
from rag_rewards.tables.table import Column


class DatasetTable:
    """A data set of the package datasets, with the order and the selection of its rows."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self._arrow = FrameTable(data.with_format("arrow")[:])

    @property
    def columns(self) -> list[str]:
        return self._arrow.columns

    def values(self, column: str, start: int, stop: int) -> list[Any]:
        return self._arrow.values(column, start, stop)

    def with_columns(self, columns: Mapping[str, Column]) -> Any:
        from datasets import Dataset, concatenate_datasets

        values = {name: list(column.values) for name, column in columns.items()}
        types = {name: dtype_of(column) for name, column in columns.items()}
        new = nw.from_dict(values, types, backend="pyarrow").to_native()
        if not len(self):  # concatenate_datasets drops the columns of empty data sets
            return Dataset(self._arrow.with_columns(columns))
        others = self.data.remove_columns([name for name in columns if name in self.columns])
        return concatenate_datasets([others, Dataset(new)], axis=1)

    def __len__(self) -> int:
        return len(self.data)

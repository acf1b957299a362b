"""Data frames of pandas, polars and others, and Arrow tables, as tables.

narwhals provides one interface to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw


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

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> Any:
        new = [self._series(name, list(values)) for name, values in columns.items()]
        return self.frame.with_columns(*new).to_native()

    def _series(self, name: str, values: list[Any]) -> nw.Series[Any]:
        backend = self.frame.implementation
        dtype = dtype_of(name, values)
        if backend.is_pandas_like() and dtype.is_nested():
            dtype = None  # a column of Python objects, as pandas users expect
        return nw.new_series(name, values, dtype, backend=backend)

    def __len__(self) -> int:
        return len(self.frame)


def dtype_of(name: str, values: Sequence[Any]) -> Any:
    """Return the type of a new column: numbers, text, lists of numbers, or mappings to numbers.

    The column `error` is text also if no row has an error, so that tables can be concatenated.
    """
    present = [value for value in values if value is not None]
    if name.endswith("error"):
        return nw.String()
    if present and isinstance(present[0], (list, tuple)):
        return nw.List(nw.Float64())
    if present and isinstance(present[0], Mapping):
        return nw.Struct({name: nw.Float64() for mapping in present for name in mapping})
    return nw.Float64()

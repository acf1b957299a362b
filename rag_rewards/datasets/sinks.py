"""Trainers' files: written beside their place, and given their name when they are whole."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from rag_rewards.datasets.shapes import verl_schema
from rag_rewards.errors import MissingExtraError, UsageError
from rag_rewards.writing import Output, partial_of

ROW_GROUP = 1_000


class Sink(Protocol):
    """Takes rows one by one; `commit` gives the file its name, `close` alone removes it."""

    def write(self, row: dict[str, Any]) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    def __init__(self, path: str) -> None:
        self._output = Output(path)
        self._encode = msgspec.json.Encoder().encode

    def write(self, row: dict[str, Any]) -> None:
        self._output.write(self._encode(row) + b"\n")

    def commit(self) -> None:
        self._output.commit()

    def close(self) -> None:
        self._output.close()
        if self._output.partial is not None:
            self._output.partial.unlink(missing_ok=True)


class Parquet:
    """verl's rows, of one schema, a group of them in memory at a time."""

    def __init__(self, path: str, present: Collection[str], supports: bool) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtraError("pyarrow", extra="parquet") from None
        partial = partial_of(path)
        if partial is None:
            raise UsageError(f"{path} is no regular file; Parquet needs one")
        self._table, self._schema = pa.Table, verl_schema(present, supports)
        self._path, self._partial = path, partial
        self._rows: list[dict[str, Any]] = []
        try:
            self._writer = pq.ParquetWriter(partial, self._schema)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from None

    def write(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def commit(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()
        self._partial.replace(self._path)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
        self._partial.unlink(missing_ok=True)

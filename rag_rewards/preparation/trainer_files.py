"""Files of training rows for a trainer, as JSON lines or Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from rag_rewards.errors import needs_extra
from rag_rewards.files.output import Output
from rag_rewards.preparation.trainer_rows import verl_schema

ROW_GROUP = 1_000


class TrainerFile(Protocol):
    """A file of rows for a trainer. `commit` gives the file its name."""

    def write(self, row: dict[str, Any]) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class JsonLinesFile:
    """Rows as JSON lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._encode = msgspec.json.Encoder().encode

    def write(self, row: dict[str, Any]) -> None:
        self._output.write(self._encode(row) + b"\n")

    def commit(self) -> None:
        self._output.commit()

    def close(self) -> None:
        """Do nothing: the owner of the output closes it."""


class ParquetFile:
    """Rows for verl as Parquet with one schema. Memory holds one row group at a time."""

    def __init__(self, output: Output, present: Collection[str], supports: bool) -> None:
        with needs_extra("parquet", "pyarrow"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._table, self._schema = pa.Table, verl_schema(present, supports)
        self._output = output
        self._rows: list[dict[str, Any]] = []
        self._writer = pq.ParquetWriter(output.handle, self._schema)

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
        self._output.commit()

    def close(self) -> None:
        """Close the writer, which must happen before the output is closed."""
        with contextlib.suppress(OSError):
            self._writer.close()

"""Sinks of scored rows: a file that appears when it is whole, a device, or standard output."""

from __future__ import annotations

import os
import sys
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from rag_rewards.errors import MissingExtraError, UsageError


class Output:
    """Bytes to `path`. A regular file is written as `path.partial` and renamed by `commit`.

    Until then, and when anything goes wrong, what was scored stands in the partial file. Devices,
    pipes and "-" (standard output) are written directly.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.partial: Path | None = None
        self.target: Path | None = None
        if path == "-":
            self._handle: IO[bytes] = sys.stdout.buffer
            return
        target = Path(os.path.realpath(path))
        try:
            if target.exists() and not target.is_file():
                if target.is_dir():
                    raise UsageError(f"{path} is a folder, not a file to write to")
                self._handle = target.open("wb")
                return
            self.target = target
            self.partial = target.with_name(target.name + ".partial")
            self._handle = self.partial.open("wb")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None

    def write(self, data: bytes) -> None:
        self._handle.write(data)

    def commit(self) -> None:
        """The whole output is there: give it its name."""
        self.close()
        if self.partial and self.target:
            self.partial.replace(self.target)

    def close(self) -> None:
        """Flush; a partial file stays partial."""
        if self.path == "-":
            self._handle.flush()
        elif not self._handle.closed:
            self._handle.close()


class ErrorFile:
    """The bad rows: `path`, made at the first; none left over from an earlier run.

    Without a path they go to standard error.
    """

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self._handle: IO[bytes] | None = None
        if self.path and self.path.is_file():
            self.path.unlink()

    def write(self, record: bytes) -> None:
        if self._handle is None:
            self._handle = self.path.open("wb") if self.path else sys.stderr.buffer
        self._handle.write(record)
        if self.path is None:
            self._handle.flush()

    def close(self) -> None:
        if self._handle is not None and self.path:
            self._handle.close()


class Spool:
    """Lines that come out of order, kept aside on disk and given back by number."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the spool)
        self._numbers, self._starts, self._lengths = array("q"), array("q"), array("q")
        self._at = 0

    def add(self, number: int, line: bytes) -> None:
        self._file.write(line)
        self._numbers.append(number)
        self._starts.append(self._at)
        self._lengths.append(len(line))
        self._at += len(line)

    def lines(self) -> Iterator[bytes]:
        for i in sorted(range(len(self._numbers)), key=self._numbers.__getitem__):
            self._file.seek(self._starts[i])
            yield self._file.read(self._lengths[i])


class ParquetOutput:
    """Scored rows as Parquet. Components are columns of a struct; details and error are JSON.

    The first rows settle the columns; a later row that does not fit is an error that names it.
    """

    def __init__(self, path: str) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtraError("pyarrow", extra="parquet") from None
        self._pa, self._pq = pa, pq
        self.path = path
        self.target = Path(os.path.realpath(path))
        self.partial = self.target.with_name(self.target.name + ".partial")
        self._writer: Any = None
        self._schema: Any = None

    def write(self, data: bytes) -> None:
        if not data:
            return
        rows = [msgspec.json.decode(line) for line in data.splitlines()]
        for row in rows:
            for name in ("details", "error"):
                value = row.get(name)
                row[name] = None if value is None else msgspec.json.encode(value).decode()
        try:
            table = self._pa.Table.from_pylist(rows, schema=self._schema)
            if self._writer is None:
                self._schema = self._settled(table.schema)
                table = table.cast(self._schema)
                self._writer = self._pq.ParquetWriter(self.partial, self._schema)
            self._writer.write_table(table)
        except (self._pa.ArrowInvalid, self._pa.ArrowTypeError) as error:
            first = rows[0].get("id")
            raise UsageError(
                f"cannot write {self.path}: rows from {first!r} on do not fit its columns: {error}"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error}") from None

    def _settled(self, schema: Any) -> Any:
        """Columns that are null in the first rows become text; whole numbers stay numbers."""
        pa = self._pa
        fields = [
            pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in schema
        ]
        names = {f.name: i for i, f in enumerate(fields)}
        for name in ("reward", "correct"):
            fields[names[name]] = pa.field(name, pa.float64())
        components = schema.field("components").type
        fields[names["components"]] = pa.field(
            "components",
            pa.struct(
                [(components.field(i).name, pa.float64()) for i in range(components.num_fields)]
            ),
        )
        return pa.schema(fields)

    def commit(self) -> None:
        self.close()
        if self.partial.exists():
            self.partial.replace(self.target)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def open_output(path: str) -> Output | ParquetOutput:
    return ParquetOutput(path) if path.endswith(".parquet") else Output(path)

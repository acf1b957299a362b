"""Sinks of scored rows: a file that appears when it is whole, a device, or standard output."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from array import array
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from rag_rewards.errors import MissingExtraError, UsageError
from rag_rewards.rollout import gold_text


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
        try:
            self.partial = partial_of(path)
            if self.partial is None:
                if os.path.isdir(path):
                    raise UsageError(f"{path} is a folder, not a file to write to")
                self._handle = open(path, "wb")  # noqa: SIM115 (lives as long as the output)
                return
            self.target = Path(os.path.realpath(path))
            self._handle = self.partial.open("wb")
            if self.target.exists():
                shutil.copymode(self.target, self.partial)
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


_CONTROLS = re.compile("[\x7f-\x9f]")


def _escaped(match: re.Match[str]) -> str:
    """A control character that JSON leaves as it is, and that would steer a terminal."""
    return f"\\u{ord(match[0]):04x}"


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
        if self.path is None:
            record = _CONTROLS.sub(_escaped, record.decode()).encode()
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

    def lines(self, of: Container[int] | None = None) -> Iterator[bytes]:
        """In the order of their numbers, those in `of` alone where it is given."""
        for i in sorted(range(len(self._numbers)), key=self._numbers.__getitem__):
            if of is not None and self._numbers[i] not in of:
                continue
            self._file.seek(self._starts[i])
            yield self._file.read(self._lengths[i])
        self.close()

    def close(self) -> None:
        self._file.close()


class ParquetOutput(Output):
    """Scored rows as Parquet: JSON lines while they come, Parquet when all columns are known.

    The columns are those of all rows together. Components are columns of a struct; details and
    error are JSON; ids and answers are text, an answer alone a list: rows may mix the forms.
    """

    def __init__(self, path: str) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtraError("pyarrow", extra="parquet") from None
        self._pa, self._pq = pa, pq
        self._nested = False
        super().__init__(path)
        if self.partial is None:
            raise UsageError(f"{path} is no regular file; Parquet needs one")

    def commit(self) -> None:
        self.close()
        if self.partial is None or self.target is None:
            return
        schema = self._schema(self.partial)
        made = self.target.with_name(self.target.name + ".made")
        try:
            with self._pq.ParquetWriter(made, schema) as writer:
                for rows in _row_blocks(self.partial, self._nested):
                    writer.write_table(self._pa.Table.from_pylist(rows, schema=schema))
            made.replace(self.target)
        finally:
            made.unlink(missing_ok=True)
        self.partial.unlink()

    def _schema(self, lines: Path) -> Any:
        """Columns that hold every row; those that are null throughout become text."""
        pa = self._pa
        types: dict[str, Any] = dict.fromkeys(("id", "group"), pa.string())
        types |= {"reward": pa.float64(), "components": pa.null(), "correct": pa.float64()}
        types |= dict.fromkeys(("details", "error", "signature"), pa.string())
        found: dict[str, Any] = {}
        for rows in _row_blocks(lines, self._nested):
            for name in dict.fromkeys(name for row in rows for name in row):
                try:
                    own = pa.array([row.get(name) for row in rows]).type
                    found[name] = self._wider(found.get(name, types.get(name, pa.null())), own)
                except (pa.ArrowException, OverflowError) as error:
                    if name == "answers" and not self._nested:
                        self._nested = True
                        return self._schema(lines)
                    raise UsageError(
                        f"cannot write {self.path}: `{name}` does not fit one column ({error}); "
                        f"the scored rows stand as JSON lines in {self.partial}"
                    ) from None
        return pa.schema(self._fields((found or types).items()))

    def _wider(self, one: Any, other: Any) -> Any:
        schemas = [self._pa.schema([("it", type_)]) for type_ in (one, other)]
        return self._pa.unify_schemas(schemas, promote_options="permissive").field("it").type

    def _fields(self, types: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        settled = [(name, self._settled(type_)) for name, type_ in types]
        return [(name, type_) for name, type_ in settled if type_ is not None]

    def _settled(self, type_: Any) -> Any:
        """What Parquet has no type for: null alone becomes text, a mapping without keys None."""
        pa = self._pa
        if pa.types.is_null(type_):
            return pa.string()
        if pa.types.is_list(type_):
            inner = self._settled(type_.value_type)
            return None if inner is None else pa.list_(inner)
        if pa.types.is_struct(type_):
            fields = [type_.field(i) for i in range(type_.num_fields)]
            inner = self._fields((field.name, field.type) for field in fields)
            return pa.struct(inner) if inner else None
        return type_


def _row_blocks(lines: Path, nested: bool, size: int = 512) -> Iterator[list[dict[str, Any]]]:
    """Scored rows as Parquet takes them; `nested` makes all answers lists of lists."""
    with lines.open("rb") as handle:
        while block := list(islice(handle, size)):
            yield [_flat(msgspec.json.decode(line), nested) for line in block]


def _flat(row: dict[str, Any], nested: bool) -> dict[str, Any]:
    for name in ("details", "error"):
        value = row.get(name)
        row[name] = None if value is None else msgspec.json.encode(value).decode()
    for name in ("id", "group"):
        row[name] = None if row.get(name) is None else str(row[name])
    row["components"] = {
        name: None if value is None else float(value) for name, value in row["components"].items()
    }
    for document in row.get("documents") or ():
        if document.get("id") is not None:
            document["id"] = str(document["id"])
    if row.get("supporting") is not None:
        row["supporting"] = [str(reference) for reference in row["supporting"]]
    if row.get("answers") is not None:
        row["answers"] = _answers(row["answers"], nested)
    return row


def _answers(answers: Any, nested: bool) -> list[Any]:
    if not isinstance(answers, list):
        answers = [answers]
    if any(isinstance(each, list) for each in answers):
        return [list(map(gold_text, each)) for each in answers]
    flat = list(map(gold_text, answers))
    return [flat] if nested and flat else flat


def open_output(path: str) -> Output:
    return ParquetOutput(path) if path.endswith(".parquet") else Output(path)


def partial_of(path: str) -> Path | None:
    """Where the rows of an output stand until it is whole; None where they go there directly."""
    if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
        return None
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + ".partial")

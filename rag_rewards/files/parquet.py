"""Parquet files: their rows as JSON lines, and scored rows as Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from rag_rewards.errors import UsageError, needs_extra
from rag_rewards.files.lines import check_line
from rag_rewards.files.output import Output
from rag_rewards.files.parquet_columns import scored_columns
from rag_rewards.files.version import unchanged
from rag_rewards.rows import Line

BLOCK_ROWS = 512


def parquet_lines(
    handle: IO[bytes],
    path: str,
    start: int = 0,
    end: int | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[Line]:
    """Yield the rows of a Parquet file as JSON lines, so that one decoder reads all rows.

    `path` is the file's name in messages. `start` and `end` select the rows between these
    positions; row groups outside of them are not read. `check` raises an error once the file has
    changed. Raises UsageError when the file cannot be read.
    """
    check = check or unchanged(handle, path)
    pa, _ = _pyarrow()
    table = open_parquet(handle, path)
    end = table.metadata.num_rows if end is None else end
    groups, number = _row_groups(table.metadata, start, end)
    batches = table.iter_batches(batch_size=BLOCK_ROWS, row_groups=groups)
    while number < end:
        try:
            batch = next(batches, None)
            rows = _between(batch, start - number, end - number) if batch else []
        except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError) as error:
            check()  # the reason of the error, if another process changes the file
            raise UsageError(f"cannot read {path} after row {number}: {error}") from None
        check()
        if batch is None:
            return
        first = max(number, start)
        number += batch.num_rows
        for position, row in enumerate(rows, first + 1):
            line = _row_line(row)
            check_line(line, position, path)
            yield position, line


def open_parquet(handle: IO[bytes], path: str) -> Any:
    """Return an open file as a ParquetFile. Raises UsageError when it is none."""
    pa, pq = _pyarrow()
    try:
        return pq.ParquetFile(handle)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _row_groups(metadata: Any, start: int, end: int) -> tuple[list[int], int]:
    """Return the row groups with the rows between two positions, and the first row of them."""
    groups: list[int] = []
    first, before = start, 0
    for group in range(metadata.num_row_groups):
        after = before + metadata.row_group(group).num_rows
        if before < end and after > start:
            first = first if groups else before
            groups.append(group)
        before = after
    return groups, first


def _between(batch: Any, start: int, end: int) -> list[dict[str, Any]]:
    """Return the rows of a batch between two positions, which may be outside of it."""
    start = max(start, 0)
    part = batch.slice(start, max(end - start, 0))
    try:
        return list(part.to_pylist(maps_as_pydicts="strict"))
    except UnicodeDecodeError:
        return [_row_with_bad_text(part.slice(i, 1)) for i in range(part.num_rows)]


def _row_with_bad_text(row: Any) -> dict[str, Any]:
    """Return the only row of a batch, with a surrogate for each byte that is not UTF-8."""
    cells: dict[str, Any] = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            cells[name] = column.to_pylist(maps_as_pydicts="strict")[0]
        except UnicodeDecodeError as error:
            cells[name] = error.object.decode("utf-8", "surrogateescape")
    return cells


def _row_line(row: dict[str, Any]) -> bytes:
    """Return a row as JSON, without the columns that are null in it."""
    fields = {name: value for name, value in row.items() if value is not None}
    try:
        # msgspec writes NaN as null; Python's json keeps it, and the decoder names its field.
        return msgspec.json.encode(fields) if _is_finite(fields) else json.dumps(fields).encode()
    except (TypeError, ValueError):
        # Bytes that are not UTF-8 stay as they are, so that the decoder names their field.
        text = json.dumps(fields, default=str, ensure_ascii=False)
        return text.encode("utf-8", "surrogateescape")


def _is_finite(value: Any) -> bool:
    """Return whether all numbers of a value are finite."""
    if isinstance(value, float):
        return value - value == 0.0
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return True


class ParquetOutput(Output):
    """Scored rows as Parquet. The partial file holds JSON lines until all columns are known.

    The columns are the fields of all rows. Components are a struct; details and the error are
    JSON; ids and answers are text, because rows may mix numbers and text. Answers are always a
    list.
    """

    def __init__(self, path: str, *, resume: bool = False) -> None:
        self._pa, self._pq = _pyarrow()
        self._nested = False
        super().__init__(path, resume=resume)
        if self.partial is None:
            raise UsageError(f"{path} is not a regular file: write Parquet to a regular file")

    @property
    def _is_converted(self) -> bool:
        return True

    def _convert(self, partial: Path, handle: IO[bytes]) -> None:
        unfit = (self._pa.ArrowException, msgspec.MsgspecError, ArithmeticError, ValueError)
        try:
            schema = self._schema(partial)
            with self._pq.ParquetWriter(handle, schema) as writer:
                for rows in _row_blocks(partial, self._nested):
                    writer.write_table(self._pa.Table.from_pylist(rows, schema=schema))
        except unfit as error:
            raise self._unfit(str(error), partial) from None

    def _unfit(self, reason: str, partial: Path) -> UsageError:
        """Return the error for rows that Parquet cannot represent."""
        return UsageError(
            f"cannot write {self.path}: {reason}. The scored rows are in {partial}, as JSON "
            "lines. Change the rows, or write JSON lines (-o NAME.jsonl)"
        )

    def _schema(self, lines: Path) -> Any:
        """Return a schema that fits every row. A column without any value becomes text."""
        pa = self._pa
        defaults: dict[str, Any] = dict.fromkeys(("id", "group"), pa.string())
        defaults |= {"reward": pa.float64(), "components": pa.null(), "correct": pa.float64()}
        defaults |= dict.fromkeys(("details", "error", "signature"), pa.string())
        types: dict[str, Any] = {}
        for rows in _row_blocks(lines, self._nested):
            for name in dict.fromkeys(name for row in rows for name in row):
                try:
                    type_ = pa.array([row.get(name) for row in rows]).type
                    before = types.get(name, defaults.get(name, pa.null()))
                    types[name] = self._common(before, type_)
                except (pa.ArrowException, OverflowError) as error:
                    if name == "answers" and not self._nested:
                        self._nested = True
                        return self._schema(lines)
                    reason = f"`{name}` does not fit one column ({error})"
                    raise self._unfit(reason, lines) from None
        return pa.schema(self._fields((types or defaults).items()))

    def _common(self, one: Any, other: Any) -> Any:
        """Return the narrowest type that fits the values of both types."""
        schemas = [self._pa.schema([("column", type_)]) for type_ in (one, other)]
        return self._pa.unify_schemas(schemas, promote_options="permissive").field("column").type

    def _fields(self, types: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        storable = [(name, self._storable(type_)) for name, type_ in types]
        return [(name, type_) for name, type_ in storable if type_ is not None]

    def _storable(self, type_: Any) -> Any:
        """Return the type that Parquet stores: text for null, None for a struct without fields."""
        pa = self._pa
        if pa.types.is_null(type_):
            return pa.string()
        if pa.types.is_list(type_):
            inner = self._storable(type_.value_type)
            return None if inner is None else pa.list_(inner)
        if pa.types.is_struct(type_):
            fields = [type_.field(i) for i in range(type_.num_fields)]
            inner = self._fields((field.name, field.type) for field in fields)
            return pa.struct(inner) if inner else None
        return type_


def _row_blocks(lines: Path, nested: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield the columns of scored rows, block after block."""
    with lines.open("rb") as handle:
        while block := list(islice(handle, BLOCK_ROWS)):
            yield [scored_columns(msgspec.json.decode(line), nested) for line in block]


def _pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module."""
    with needs_extra("parquet", "pyarrow"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet

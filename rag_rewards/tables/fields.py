"""Rollouts from the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError, RowError, UsageError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.column_map import (
    FIELDS,
    ColumnMap,
    completed,
    missing_fields_hint,
    value_at,
)
from rag_rewards.rows.columns import to_builtins
from rag_rewards.rows.decoding import decode_or_error, decode_row
from rag_rewards.settings import did_you_mean
from rag_rewards.tables.table import Table

_WHOLE_NUMBERS = frozenset({"answers", "id", "group", "step", "weight_version"})
"""Fields whose whole numbers are decimal numbers in a column with missing values."""


def rollouts_of(
    table: Table, columns: ColumnMap, size: int
) -> Iterator[list[Rollout | RolloutError]]:
    """Yield a rollout for each row of a table, or the reason why it cannot be decoded.

    The rows come in lists of `size` rows. `columns` maps fields to columns of another name. Missing
    values (None, NaN) are missing fields. Other columns are ignored. Raises UsageError if a column
    does not exist, and if no column contains a response.
    """
    paths = _paths_of_fields(table, columns)
    fields = tuple(paths)
    for start in range(0, len(table), size):
        stop = min(start + size, len(table))
        values = [_values(table, each, start, stop, field) for field, each in paths.items()]
        rows = (
            {k: v for k, v in zip(fields, row, strict=True) if v is not None}
            for row in zip(*values, strict=True)
        )
        yield [_rollout(completed(row) if columns.columns else row) for row in rows]


def _paths_of_fields(table: Table, columns: ColumnMap) -> dict[str, list[str]]:
    """Return the columns of each field, or their paths inside a column, the preferred one first."""
    present = set(table.columns)
    mapped = {c for field, candidates in columns.columns.items() for c in candidates if c != field}
    paths = {field: [field] for field in FIELDS if field in present - mapped}
    for field, candidates in columns.columns.items():
        exist = [c for c in candidates if c in present or c.partition(".")[0] in present]
        if exist:
            paths[field] = list(dict.fromkeys(exist + paths.get(field, [])))
        elif len(candidates) == 1 and len(table):
            [column] = candidates
            raise UsageError(
                f"the data has no column {column!r}{did_you_mean(column, sorted(present))}"
            )
    if len(table) and not paths.keys() & {"response", "turns"}:
        hint = missing_fields_hint("response", first_row(table, table.columns))
        hint = hint or "; set the option columns to response=NAME"
        raise UsageError(
            f"the data has no column 'response'{hint} (columns: {', '.join(sorted(present))})"
        )
    return paths


def first_row(table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return the values of columns in the first row."""
    if not len(table):
        return {}
    try:
        return {name: to_builtins(table.values(name, 0, 1)[0]) for name in columns}
    except RowError:
        return {}


def _values(table: Table, paths: Sequence[str], start: int, stop: int, field: str) -> Sequence[Any]:
    """Return the values of a field in some rows, each from the first path that has a value."""
    values = _values_at(table, paths[0], start, stop, field)
    for path in paths[1:]:
        if not any(value is None for value in values):
            break
        others = _values_at(table, path, start, stop, field)
        values = [b if a is None else a for a, b in zip(values, others, strict=True)]
    return values


def _values_at(table: Table, path: str, start: int, stop: int, field: str) -> Sequence[Any]:
    """Return the values of a path in some rows, with None for each value that means missing."""
    if path in table.columns:
        return _present(table.values(path, start, stop), field)
    column, _, inside = path.partition(".")
    values = table.values(column, start, stop)
    return [value_at(v, inside) if isinstance(v, Mapping) else None for v in values]


def _present(values: Sequence[Any], field: str) -> Sequence[Any]:
    """Return the values of a column, with None for each value that means missing."""
    kinds = set(map(type, values))
    if not any(kind is float or kind.__name__ in ("NAType", "NaTType") for kind in kinds):
        return values
    cleaned = [None if _is_missing(value) else value for value in values]
    if field in _WHOLE_NUMBERS:
        return [
            int(value) if isinstance(value, float) and value.is_integer() else value
            for value in cleaned
        ]
    return cleaned


def _has_decimals(answers: Any) -> bool:
    """Return whether gold answers contain a decimal number, which can be NaN."""
    if isinstance(answers, list):
        return any(type(each) is not str and _has_decimals(each) for each in answers)
    return isinstance(answers, float)


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float) and value != value
    )


def _rollout(row: dict[str, Any]) -> Rollout | RolloutError:
    try:
        if not _has_decimals(row.get("answers")):
            return decode_row(row)
    except (msgspec.ValidationError, RolloutError, UnicodeError, RecursionError):
        pass  # for example arrays of numpy, and fields of documents that are missing
    # `to_builtins` also replaces NaN, which must not become the gold answer "nan".
    try:
        return decode_or_error(to_builtins(row))
    except RowError as error:
        return error.with_traceback(None)

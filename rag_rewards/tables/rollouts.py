"""The kinds of data that `score` and `explain` take, as tables, and their rows as rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError, RowError, UsageError, needs_extra
from rag_rewards.rollout import Rollout
from rag_rewards.rows.column_map import FIELDS, ColumnMap, missing_fields_hint
from rag_rewards.rows.columns import to_builtins
from rag_rewards.rows.decoding import decode_or_error, decode_row
from rag_rewards.settings import did_you_mean
from rag_rewards.tables.table import RowTable, Table

_WHOLE_NUMBERS = ("answers", "id", "group", "step", "weight_version")
"""Fields whose whole numbers are decimal numbers in a column with missing values."""


def refuse_swapped_arguments(recipe: Any) -> None:
    """Raise UsageError if the argument `recipe` is data.

    >>> refuse_swapped_arguments([{"response": "Paris"}])
    Traceback (most recent call last):
    rag_rewards.errors.UsageError: recipe: found data (list): the data is the first argument, and \
the recipe is the second, as in score(data, "arena")
    """
    is_frame = hasattr(recipe, "columns") or hasattr(recipe, "column_names")
    if isinstance(recipe, (list, tuple, Rollout)) or (is_frame and not callable(recipe)):
        raise UsageError(
            f"recipe: found data ({type(recipe).__name__}): the data is the first argument, and "
            'the recipe is the second, as in score(data, "arena")'
        )


def are_rollouts(data: Any) -> bool:
    """Return whether the data is a list of `Rollout`."""
    return isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], Rollout)


def read_table(data: Any) -> Table:
    """Return data of any supported kind as a table. Raises UsageError for any other kind."""
    if isinstance(data, (list, tuple)):
        if all(isinstance(row, Mapping) for row in data):
            return RowTable(data)
        kinds = sorted({type(row).__name__ for row in data})
        raise UsageError(f"a list must contain only rows or only rollouts, found {kinds}")
    if isinstance(data, Mapping) and _is_of_datasets(data):
        raise UsageError("the data has several splits: choose one split, as in data['train']")
    if isinstance(data, Mapping):
        raise UsageError("the data is one mapping: put the row into a list, as in score([row], …)")
    if isinstance(data, Rollout):
        raise UsageError("the data is one rollout: put it into a list, as in score([rollout], …)")
    if isinstance(data, (str, bytes)) or hasattr(data, "__fspath__"):
        raise UsageError(
            "the data is a text or a path: read the file first, or score it with "
            "`rag-rewards score FILE`"
        )
    return _read_frame(data)


def _read_frame(data: Any) -> Table:
    with needs_extra("tables"):
        import narwhals as nw

        from rag_rewards.tables.frames import DatasetTable, FrameTable
    if _is_of_datasets(data):
        if not hasattr(data, "num_rows"):
            raise UsageError("a streamed data set has no end: load it without streaming")
        return DatasetTable(data)
    try:
        if isinstance(nw.from_native(data, pass_through=True), nw.LazyFrame):
            raise UsageError("the data frame is lazy: call collect() first")
        return FrameTable(data)
    except nw.exceptions.DuplicateError:
        names = Counter(data.column_names if hasattr(data, "column_names") else data.columns)
        repeated = sorted({repr(name) for name, count in names.items() if count > 1})
        raise UsageError(
            f"several columns have the same name ({', '.join(repeated)}): rename or drop all but "
            "one of them"
        ) from None
    except TypeError:
        raise UsageError(
            f"{type(data).__name__} is no table: give a list of rows, a pandas or polars data "
            "frame, an Arrow table, or a datasets.Dataset"
        ) from None


def _is_of_datasets(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets"


# --- rollouts ------------------------------------------------------------------------------------


def read_rollouts(data: Any, columns: ColumnMap) -> list[Rollout | RolloutError]:
    """Return the rollout of each row of the data, or the reason why it cannot be decoded."""
    if are_rollouts(data):
        return list(data)
    table = read_table(data)
    return [rollout for part in rollouts_of(table, columns, len(table) or 1) for rollout in part]


def rollouts_of(
    table: Table, columns: ColumnMap, size: int
) -> Iterator[list[Rollout | RolloutError]]:
    """Yield a rollout for each row of a table, or the reason why it cannot be decoded.

    The rows come in lists of `size` rows. `columns` maps fields to columns of another name. Missing
    values (None, NaN) are missing fields. Other columns are ignored. Raises UsageError if a column
    does not exist, and if no column contains a response.
    """
    present = table.columns
    if len(table):
        _check_columns(table, columns)
    unread = set(columns.unread(present)).difference(FIELDS)
    names = [name for name in present if name not in unread]
    for start in range(0, len(table), size):
        stop = min(start + size, len(table))
        values = [_without_missing(table.values(name, start, stop)) for name in names]
        rows = (
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*values, strict=True)
        )
        yield [_rollout(columns.rename(row) if columns.columns else row) for row in rows]


def _check_columns(table: Table, columns: ColumnMap) -> None:
    """Raise UsageError if a mapped column, or every column with a response, does not exist."""
    present = set(table.columns)
    fields = present.intersection(FIELDS)
    for field, paths in columns.columns.items():
        if len(ColumnMap({field: paths}).unread(present)) < len(present):
            fields.add(field)
        elif len(paths) == 1:
            suggestion = did_you_mean(paths[0], sorted(present))
            raise UsageError(f"the data has no column {paths[0]!r}{suggestion}")
    if not fields & {"response", "turns"}:
        hint = missing_fields_hint("response", first_row(table, table.columns))
        hint = hint or "; set the option columns to response=NAME"
        raise UsageError(
            f"the data has no column 'response'{hint} (columns: {', '.join(sorted(present))})"
        )


def first_row(table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return the values of columns in the first row."""
    if not len(table):
        return {}
    try:
        return {name: to_builtins(table.values(name, 0, 1)[0]) for name in columns}
    except RowError:
        return {}


def _without_missing(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column, with None for each value that means missing."""
    if not any(
        kind is float or kind.__name__ in ("NAType", "NaTType") for kind in set(map(type, values))
    ):
        return values
    return [None if _is_missing(value) else value for value in values]


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float) and value != value
    )


def _rollout(row: dict[str, Any]) -> Rollout | RolloutError:
    for name in _WHOLE_NUMBERS:
        value = row.get(name)
        if isinstance(value, float) and value.is_integer():
            row[name] = int(value)
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


def _has_decimals(answers: Any) -> bool:
    """Return whether gold answers contain a decimal number, which can be NaN."""
    if isinstance(answers, list):
        return any(type(each) is not str and _has_decimals(each) for each in answers)
    return isinstance(answers, float)

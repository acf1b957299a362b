"""Rollouts from the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import to_builtins
from rag_rewards.rows.decoding import decode_or_error
from rag_rewards.settings import did_you_mean
from rag_rewards.tables.table import Table

FIELDS = Rollout.__struct_fields__
_WHOLE_NUMBERS = frozenset({"id", "group", "step", "weight_version"})
"""Fields whose whole numbers are decimal numbers in a column with missing values."""


def rollouts_of(
    table: Table, columns: Mapping[str, str], size: int
) -> Iterator[list[Rollout | RolloutError]]:
    """Yield a rollout for each row of a table, or the reason why it cannot be decoded.

    The rows come in lists of `size` rows. `columns` maps fields to columns of another name. Missing
    values (None, NaN) are missing fields. Other columns are ignored. Raises UsageError if a column
    does not exist, and if no column contains a response.
    """
    names = _columns_of_fields(table, columns)
    fields = tuple(names)
    for start in range(0, len(table), size):
        stop = min(start + size, len(table))
        values = [
            _present(table.values(column, start, stop), field) for field, column in names.items()
        ]
        yield [
            _rollout({k: v for k, v in zip(fields, row, strict=True) if v is not None})
            for row in zip(*values, strict=True)
        ]


def _columns_of_fields(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    present = set(table.columns)
    for field, column in columns.items():
        if field not in FIELDS:
            raise UsageError(
                f"columns: a row has no field {field!r}{did_you_mean(field, sorted(FIELDS))}"
            )
        if column not in present:
            raise UsageError(
                f"the data has no column {column!r}{did_you_mean(column, sorted(present))}"
            )
    names = {field: columns.get(field, field) for field in FIELDS}
    names = {field: column for field, column in names.items() if column in present}
    if len(table) and not names.keys() & {"response", "turns"}:
        raise UsageError(
            "the data has no column 'response': name the column of the responses, as in "
            f'columns={{"response": "completion"}} (columns: {", ".join(sorted(present))})'
        )
    return names


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


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float) and value != value
    )


def _rollout(row: dict[str, Any]) -> Rollout | RolloutError:
    try:
        return msgspec.convert(row, Rollout)
    except (msgspec.ValidationError, RolloutError, UnicodeError, RecursionError):
        pass  # for example arrays of numpy, and fields of documents that are missing
    try:
        return decode_or_error(to_builtins(row))
    except RecursionError:
        return RolloutError("nested too deeply")

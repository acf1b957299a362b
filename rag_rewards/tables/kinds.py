"""The kinds of data that `score` and `explain` take, and errors for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rag_rewards.errors import RolloutError, UsageError, needs_extra
from rag_rewards.rollout import Rollout
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.tables.fields import rollouts_of
from rag_rewards.tables.rows import RowTable
from rag_rewards.tables.table import Table


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


def read_rollouts(data: Any, columns: ColumnMap) -> list[Rollout | RolloutError]:
    """Return the rollout of each row of the data, or the reason why it cannot be decoded."""
    if are_rollouts(data):
        return list(data)
    table = read_table(data)
    return [rollout for part in rollouts_of(table, columns, len(table) or 1) for rollout in part]


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

        from rag_rewards.tables.frames import FrameTable
    if _is_of_datasets(data):
        from rag_rewards.tables.dataset import DatasetTable

        if not hasattr(data, "num_rows"):
            raise UsageError("a streamed data set has no end: load it without streaming")
        return DatasetTable(data)
    try:
        if isinstance(nw.from_native(data, pass_through=True), nw.LazyFrame):
            raise UsageError("the data frame is lazy: call collect() first")
        return FrameTable(data)
    except nw.exceptions.DuplicateError:
        raise UsageError(
            f"several columns have the same name ({', '.join(_repeated_names(data))}): rename or "
            "drop all but one of them"
        ) from None
    except TypeError:
        raise UsageError(
            f"{type(data).__name__} is no table: give a list of rows, a pandas or polars data "
            "frame, an Arrow table, or a datasets.Dataset"
        ) from None


def _repeated_names(data: Any) -> list[str]:
    names = data.column_names if hasattr(data, "column_names") else data.columns
    return sorted({repr(name) for name, count in Counter(names).items() if count > 1})


def _is_of_datasets(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets"

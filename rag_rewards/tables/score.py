"""`score`, which scores rollouts in the form in which a Python user holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import group_by_position
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rollout import Rollout, ScoreOrError, Scores
from rag_rewards.rows.column_map import ColumnMap, with_column_hint
from rag_rewards.rows.scored import score_fields
from rag_rewards.scorer import Scorer
from rag_rewards.tables.rollouts import (
    are_rollouts,
    first_row,
    read_table,
    refuse_swapped_arguments,
    rollouts_of,
)
from rag_rewards.tables.table import Column, Table

if TYPE_CHECKING:
    from rag_rewards.loading import RecipeSource

CHUNK = 4096
"""Number of rows that are decoded and scored together. A recipe that compares rollouts, and models,
see all rows at once."""

NEW_COLUMNS = ("reward", "components", "correct", "error")
"""The columns that `score` always adds."""


def score(
    data: Any,
    recipe: RecipeSource | Scorer,
    settings: Mapping[str, Any] | None = None,
    *,
    hardened: bool = False,
    columns: str | Mapping[str, str] | None = None,
    group_size: int | None = None,
    prefix: str = "",
    models: Models | Mapping[str, Any] | None = None,
) -> Any:
    """Score rollouts, and return them in the same form with their scores as new columns.

    data        a list of mappings, a data frame of pandas or polars, an Arrow table, a
                `datasets.Dataset`, or a list of `Rollout`
    recipe      a recipe in any form of `load_recipe`, or a `Scorer`
    settings    changed settings by dotted key
    hardened    whether to use the hardened profile
    columns     column of each field that has another name, as in `{"response": "completion"}`, or
                a preset: ragas, trl, verl, openrlhf, verifiers or search-r1
    group_size  number of adjacent rows in a group; by default, rows with equal keys form a group
    prefix      text before the names of the new columns
    models      models that provide missing evidence, or the options of `ModelOptions`, as in
                `{"judge": "http://localhost:8000/v1", "judge_model": "my-judge"}`

    The new columns are `reward`, `components` (a mapping), `correct` and `error`, and
    `turn_rewards` if a row has turns. A row that cannot be scored has no reward, and `error` is the
    reason. NaN and None are missing values. The input is not changed. Columns of an earlier scoring
    are replaced. For a list of `Rollout`, the result is a list with a `Score` or a `RolloutError`
    for each of them.

    Raises UsageError for data of another kind, a column that does not exist, several columns of the
    same name, or a column of your own with the name of a new one. Raises GroupError if the rows are
    not complete groups of `group_size`.

    >>> rows = [{"response": "<answer>Paris</answer>", "answers": "Paris"}, {"response": "Paris"}]
    >>> [row["reward"] for row in score(rows, "naive-grpo")]
    [1.0, None]
    >>> score(rows, "naive-grpo")[1]["error"]
    'answers: missing'
    """
    if group_size is not None and (not isinstance(group_size, int) or group_size < 1):
        raise UsageError(f"group_size: expected a whole number of at least 1, found {group_size!r}")
    refuse_swapped_arguments(recipe)
    if are_rollouts(data):
        with scorer_of(recipe, settings, hardened, models) as scorer:
            return Scores(_results(scorer, data, group_size))
    table = read_table(data)
    with scorer_of(recipe, settings, hardened, models) as scorer:
        new = _new_columns(scorer, table, ColumnMap.of(columns), group_size)
    named = {prefix + name: column for name, column in new.items()}
    _refuse_own_columns(table.columns, named)
    return table.with_columns(named)


def _new_columns(
    scorer: Scorer, table: Table, columns: ColumnMap, group_size: int | None
) -> dict[str, Column]:
    """Return the scores of the rows of a table as columns."""
    together = scorer.scope == "group" or scorer.has_models
    row = first_row(table, columns.unread(table.columns))
    values: dict[str, list[Any]] = {name: [] for name in (*NEW_COLUMNS, "turn_rewards")}
    for rollouts in rollouts_of(table, columns, len(table) or 1 if together else CHUNK):
        results = _results(scorer, rollouts, group_size)
        for rollout, result in zip(rollouts, results, strict=True):
            if isinstance(rollout, Rollout) and not isinstance(result, RolloutError):
                fields = score_fields(rollout, result)
                fields["components"] = fields["components"] or None
            else:
                error = result if isinstance(result, RolloutError) else RolloutError("no score")
                fields = {"error": str(with_column_hint(error, row, scorer.read_fields))}
            for name, column in values.items():
                column.append(fields.get(name))
    names = dict.fromkeys(name for recipe in scorer.recipes for name in recipe.component_names)
    new = {
        "reward": Column(values["reward"], "number"),
        "components": Column(values["components"], "mapping", tuple(names)),
        "correct": Column(values["correct"], "number"),
        "error": Column(values["error"], "text"),
    }
    if any(entries is not None for entries in values["turn_rewards"]):
        new["turn_rewards"] = Column(values["turn_rewards"], "numbers")
    return new


@contextmanager
def scorer_of(
    recipe: RecipeSource | Scorer,
    settings: Mapping[str, Any] | None,
    hardened: bool,
    models: Models | Mapping[str, Any] | None,
) -> Iterator[Scorer]:
    """Provide a scorer, or load it. Models that are loaded from options are closed afterwards.

    Raises UsageError for settings besides a scorer.
    """
    if isinstance(recipe, Scorer):
        if settings or hardened or models is not None:
            raise UsageError("settings, hardened and models belong to the Scorer: give them there")
        yield recipe
        return
    given = ModelOptions.of(models) if isinstance(models, Mapping) else models
    scorer = Scorer.load(recipe, settings, hardened=hardened, models=given)
    try:
        yield scorer
    finally:
        if not isinstance(models, Models):  # models of the caller stay open
            scorer.close()


def _results(
    scorer: Scorer, rollouts: Sequence[Rollout | RolloutError], group_size: int | None
) -> list[ScoreOrError]:
    if group_size is None or scorer.scope != "group":
        return scorer.score_each(rollouts)
    groups = group_by_position(len(rollouts), group_size)
    return scorer.score_each(rollouts, groups)


def _refuse_own_columns(present: Sequence[str], new: Mapping[str, Any]) -> None:
    """Raise UsageError if some, but not all, of the new columns exist: they are the user's."""
    existing = [name for name in new if name in present]
    if existing and len(existing) < len(NEW_COLUMNS):
        raise UsageError(
            f"the data has a column {existing[0]!r}, which is also the name of a new column: "
            'choose a prefix for the new columns, as in prefix="rag_"'
        )

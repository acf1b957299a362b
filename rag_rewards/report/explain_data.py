"""`explain` and `explain_group`, which explain scores of data in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.groups import group_by_key, group_by_position
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.explain_row import explain_member, tokenizer_of
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.explanation import explain as explain_scored
from rag_rewards.report.group_explanation import GroupExplanation
from rag_rewards.report.reasons import no_spread_of
from rag_rewards.report.rows import RowFault, advantages, rescored
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.scorer import Scorer
from rag_rewards.tables.rollouts import read_rollouts, refuse_swapped_arguments
from rag_rewards.tables.score import scorer_of

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.loading import RecipeSource


def explain(
    data: Any,
    recipe: RecipeSource | Scorer,
    settings: Mapping[str, Any] | None = None,
    *,
    row: int = 0,
    hardened: bool = False,
    columns: str | Mapping[str, str] | None = None,
    group_size: int | None = None,
    models: Models | Mapping[str, Any] | None = None,
) -> Explanation:
    """Explain the score of one row, with the rewards of variants of its response.

    row  position of the row in the data, counted from 0; -1 is the last row

    The other parameters are those of `score`. The row is scored in its group. Raises UsageError if
    the row does not exist or cannot be scored.

    >>> rows = [{"response": "<answer>Paris</answer>", "answers": "Paris"}]
    >>> explain(rows, "naive-grpo").reason
    '“Paris” is right; wrong format'
    """
    refuse_swapped_arguments(recipe)
    rollouts = read_rollouts(data, ColumnMap.of(columns))
    row, members = _group_of(rollouts, row, group_size)
    if (fault := members[row]) and isinstance(fault, RolloutError):
        raise UsageError(f"row {row} cannot be scored: {fault}")
    rows = {position: _row(each, position, members) for position, each in _decoded(members)}
    with scorer_of(recipe, settings, hardened, models) as scorer:
        tokenizer = tokenizer_of(scorer, _options(models))
        return explain_member(list(rows.values()), list(rows).index(row), scorer, tokenizer)


def explain_group(
    data: Any,
    recipe: RecipeSource | Scorer,
    settings: Mapping[str, Any] | None = None,
    *,
    row: int = 0,
    hardened: bool = False,
    columns: str | Mapping[str, str] | None = None,
    group_size: int | None = None,
    models: Models | Mapping[str, Any] | None = None,
) -> GroupExplanation:
    """Explain the scores of a group: the rollouts that a trainer compares with each other.

    row  position of any member of the group in the data, counted from 0

    The other parameters are those of `score`. The notes of the result name the rollouts that cannot
    be scored. Raises UsageError if the row does not exist or no rollout of its group can be scored.

    >>> rows = [{"question": "Capital of France?", "response": text, "answers": "Paris"}
    ...         for text in ("<answer>Paris</answer>", "<answer>Rome</answer>")]
    >>> [rollout.reward for rollout in explain_group(rows, "naive-grpo").rollouts]
    [1.0, 0.0]
    """
    refuse_swapped_arguments(recipe)
    rollouts = read_rollouts(data, ColumnMap.of(columns))
    _, members = _group_of(rollouts, row, group_size)
    with scorer_of(recipe, settings, hardened, models) as scorer:
        tokenizer = tokenizer_of(scorer, _options(models))
        results = rescored([_row(r, i, members) for i, r in _decoded(members)], scorer)
    scored = [result for result in results if not isinstance(result, RowFault)]
    faults = [result for result in results if isinstance(result, RowFault)]
    faults += [
        RowFault(f"row {position}", str(error))
        for position, error in members.items()
        if isinstance(error, RolloutError)
    ]
    if not scored:
        raise UsageError(f"no rollout of the group can be scored: {faults[0].message}")
    values = advantages(scored, [range(len(scored))])
    no_spread = no_spread_of([each.components or {} for each in scored])
    return GroupExplanation(
        rollouts=[
            explain_scored(
                each,
                no_spread=no_spread,
                advantage=value,
                tokenizer=tokenizer,
                equation=scorer.reward.equation,
            )
            for each, value in zip(scored, values, strict=True)
        ],
        faults=faults,
    )


Members = Mapping[int, Rollout | RolloutError]
"""The members of a group by their positions in the data."""


def _group_of(
    rollouts: Sequence[Rollout | RolloutError], row: int, group_size: int | None
) -> tuple[int, Members]:
    """Return the position of a row, counted from the first row, and the members of its group."""
    count = len(rollouts)
    if not -count <= row < count:
        raise UsageError(f"row: the data has no row {row} (number of rows: {count})")
    row %= count
    groups: Sequence[Sequence[int]] = (
        group_by_position(count, group_size) if group_size else group_by_key(rollouts)
    )
    group = next(each for each in groups if row in each)
    return row, {position: rollouts[position] for position in group}


def _decoded(members: Members) -> list[tuple[int, Rollout]]:
    return [(i, each) for i, each in members.items() if not isinstance(each, RolloutError)]


def _row(rollout: Rollout, position: int, members: Members) -> ScoredRow:
    """Return a rollout as a row. Its id is its position if it has no id of its own."""
    ids = [str(each.id) for _, each in _decoded(members)]
    fields = {name: getattr(rollout, name) for name in rollout.__struct_fields__}
    if rollout.id is None or ids.count(str(rollout.id)) > 1:
        fields["id"] = f"row {position}"
    if isinstance(rollout, ScoredRow):
        return msgspec.structs.replace(rollout, id=fields["id"])
    return ScoredRow(**fields)


def _options(models: Models | Mapping[str, Any] | None) -> ModelOptions:
    return ModelOptions.of(models) if isinstance(models, Mapping) else ModelOptions()

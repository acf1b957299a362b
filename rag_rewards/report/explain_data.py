"""Explain a row or a group: score it, and the variants of its response.

`explain` and `explain_group` read data in Python, `explain_row` reads a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence.needs import LogProbsNeed, Need
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.groups import group_by_key, group_by_position
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.explain_score import explain_score
from rag_rewards.report.explanation import Explanation, GroupExplanation
from rag_rewards.report.reasons import no_spread_of
from rag_rewards.report.rows import RowFault, advantages, read_rows, recorded_recipe, rescored
from rag_rewards.report.what_if import scored_variants
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
    if isinstance(fault := members[row], RolloutError):
        raise UsageError(f"row {row} cannot be scored: {fault}")
    rows = _rows(members)
    with scorer_of(recipe, settings, hardened, models) as scorer:
        return _explain_member(list(rows.values()), list(rows).index(row), scorer, _options(models))


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

    The other parameters are those of `score`. The faults of the result name the rollouts that
    cannot be scored. Raises UsageError if the row does not exist or no rollout of its group can be
    scored.

    >>> rows = [{"question": "Capital of France?", "response": text, "answers": "Paris"}
    ...         for text in ("<answer>Paris</answer>", "<answer>Rome</answer>")]
    >>> [rollout.reward for rollout in explain_group(rows, "naive-grpo").rollouts]
    [1.0, 0.0]
    """
    refuse_swapped_arguments(recipe)
    _, members = _group_of(read_rollouts(data, ColumnMap.of(columns)), row, group_size)
    with scorer_of(recipe, settings, hardened, models) as scorer:
        tokenizer = _tokenizer_of(scorer, _options(models))
        scored, faults = rescored(list(_rows(members).values()), scorer)
    faults += [
        RowFault(f"row {position}", str(error))
        for position, error in members.items()
        if isinstance(error, RolloutError)
    ]
    if not scored:
        raise UsageError(f"no rollout of the group can be scored: {faults[0].message}")
    rollouts = _explained(list(scored.values()), range(len(scored)), scorer, tokenizer)
    return GroupExplanation(rollouts=rollouts, faults=faults)


def explain_row(
    source: str,
    row_id: str,
    recipe: RecipeSource | None,
    models: ModelOptions,
    columns: str | None = None,
) -> Explanation:
    """Explain the row of a file with this id.

    Without a `recipe`, the row is scored with the recipe of its signature. Raises UsageError when
    there is no such row, or when it cannot be scored.
    """
    file = read_rows(source, columns)
    rows, faults = file.rows, file.faults
    index = _index_of(rows, row_id, faults)
    group = next(members for members in group_by_key(rows) if index in members)
    members = [rows[i] for i in group]
    with Scorer.load(recipe or recorded_recipe(rows[index]), models=models) as scorer:
        return _explain_member(members, group.index(index), scorer, models)


# --- find the row --------------------------------------------------------------------------------


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


def _rows(members: Members) -> dict[int, ScoredRow]:
    """Return the rollouts without an error as rows with unique ids, by position.

    The id of a rollout without an id of its own is its position.
    """
    rollouts = {i: each for i, each in members.items() if not isinstance(each, RolloutError)}
    counts = Counter(str(each.id) for each in rollouts.values())
    rows = {}
    for position, rollout in rollouts.items():
        fields = {name: getattr(rollout, name) for name in rollout.__struct_fields__}
        if rollout.id is None or counts[str(rollout.id)] > 1:
            fields["id"] = f"row {position}"
        rows[position] = ScoredRow(**fields)
    return rows


def _index_of(rows: Sequence[ScoredRow], row_id: str, faults: Sequence[RowFault]) -> int:
    matches = [i for i, row in enumerate(rows) if str(row.id) == row_id]
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} rows have the id {row_id}: make the ids unique")
    if matches:
        return matches[0]
    messages = {fault.row: fault.message for fault in faults}
    if message := messages.get(row_id) or messages.get(f"line {row_id}"):
        raise UsageError(f"row {row_id}: {message}")
    if not rows:
        raise UsageError("the file has no rows to explain")
    similar = get_close_matches(row_id, [str(row.id) for row in rows], 1)
    hint = f"did you mean {similar[0]}?" if similar else f"the first id is {rows[0].id}"
    raise UsageError(f"no row has the id {row_id}; {hint}")


# --- score it ------------------------------------------------------------------------------------


def _explain_member(
    group: Sequence[ScoredRow], index: int, scorer: Scorer, models: ModelOptions
) -> Explanation:
    """Explain one member of a group, whose ids are unique.

    Raises UsageError if it cannot be scored.
    """
    if scorer.models.policy is not None:
        group = _with_every_document(group, index, scorer)
    scored, faults = rescored(group, scorer)
    if index not in scored:
        row_id = group[index].id
        messages = {fault.row: fault.message for fault in faults}
        reason = messages.get(str(row_id), "the recipe returned no score")
        raise UsageError(f"row {row_id} cannot be scored: {reason}")
    members, position = list(scored.values()), list(scored).index(index)
    tokenizer = _tokenizer_of(scorer, models)
    [explanation] = _explained(members, [position], scorer, tokenizer, each_document=True)
    explanation.variants = list(scored_variants(members, position, scorer))
    if faults:
        explanation.notes.append(
            f"{len(faults)} rollouts of the group could not be scored: {faults[0].message}"
        )
    return explanation


def _explained(
    group: Sequence[ScoredRow],
    positions: Iterable[int],
    scorer: Scorer,
    tokenizer: Tokenizer | None,
    *,
    each_document: bool = False,
) -> list[Explanation]:
    """Explain members of a group by their positions."""
    values = advantages(group, [range(len(group))])
    no_spread = no_spread_of([each.components or {} for each in group])
    return [
        explain_score(
            group[i],
            no_spread=no_spread,
            advantage=values[i],
            tokenizer=tokenizer,
            equation=scorer.reward.equation,
            each_document=each_document,
        )
        for i in positions
    ]


class _EveryDocument:
    """Needs the log-probabilities without each document, not only the supporting ones."""

    def needs(self, rollout: Rollout) -> list[Need]:
        return [LogProbsNeed(rollout.labels)] if rollout.documents else []


def _with_every_document(group: Sequence[ScoredRow], index: int, scorer: Scorer) -> list[ScoredRow]:
    row = msgspec.structs.replace(group[index], logprobs=None)
    [gathered] = scorer.gatherer.gather_sync(_EveryDocument(), [row])
    if isinstance(gathered, RolloutError):
        raise UsageError(str(gathered))
    return [*group[:index], gathered, *group[index + 1 :]]


def _options(models: Models | Mapping[str, Any] | None) -> ModelOptions:
    return ModelOptions.of(models) if isinstance(models, Mapping) else ModelOptions()


def _tokenizer_of(scorer: Scorer, models: ModelOptions) -> Tokenizer | None:
    """Return the tokenizer of the policy, or the one of the options, which splits the response."""
    if scorer.models.policy is not None:
        return scorer.models.policy.tokenizer
    if models.tokenizer:
        from rag_rewards.models.local_models import resolve_tokenizer

        return resolve_tokenizer(models.tokenizer, None)
    return None

"""Explain a row of a file: score it in its group, and score variants of its response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence.needs import LogProbsNeed, Need
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.groups import group_by_key
from rag_rewards.loading import RecipeSource
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.explanation import Explanation, explain
from rag_rewards.report.reasons import no_spread_of
from rag_rewards.report.rows import RowFault, advantages, read_rows, recorded_recipe, rescored
from rag_rewards.report.what_if import scored_variants
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer


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
        return explain_member(members, group.index(index), scorer, tokenizer_of(scorer, models))


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


def explain_member(
    group: Sequence[ScoredRow], index: int, scorer: Scorer, tokenizer: Tokenizer | None
) -> Explanation:
    """Explain one member of a group, whose ids are unique.

    Raises UsageError if it cannot be scored.
    """
    row_id = group[index].id
    if scorer.models.policy is not None:
        group = _with_every_document(group, index, scorer)
    results = rescored(group, scorer)
    scored = [result for result in results if not isinstance(result, RowFault)]
    faults = [result for result in results if isinstance(result, RowFault)]
    position = next((i for i, row in enumerate(scored) if row.id == row_id), None)
    if position is None:
        messages = {fault.row: fault.message for fault in faults}
        reason = messages.get(str(row_id), "the recipe returned no score")
        raise UsageError(f"row {row_id} cannot be scored: {reason}")
    explanation = explain(
        scored[position],
        no_spread=no_spread_of([each.components or {} for each in scored]),
        advantage=advantages(scored, [range(len(scored))])[position],
        tokenizer=tokenizer,
        equation=scorer.reward.equation,
        each_document=True,
    )
    explanation.variants = list(scored_variants(scored, position, scorer))
    if faults:
        explanation.notes.append(
            f"{len(faults)} rollouts of the group could not be scored: {faults[0].message}"
        )
    return explanation


@dataclass(frozen=True)
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


def tokenizer_of(scorer: Scorer, models: ModelOptions) -> Tokenizer | None:
    """Return the tokenizer of the policy, or the one of the options, which splits the response."""
    if scorer.models.policy is not None:
        return scorer.models.policy.tokenizer
    if models.tokenizer:
        from rag_rewards.models.local_models import resolve_tokenizer

        return resolve_tokenizer(models.tokenizer, None)
    return None

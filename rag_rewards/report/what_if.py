"""The rewards of variants of a response, which differ from it in one respect."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from rag_rewards.audit.row_attacks import ABSTENTION, Target, target_of, with_last_turn
from rag_rewards.errors import RolloutError
from rag_rewards.evidence.values import EVIDENCE_FIELDS
from rag_rewards.report.explanation import Variant
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer

_RELEVANCE = re.compile(r"<relevance>[^<]*</relevance>")
_LASTING = ("nli", "similarity", "turn_logprobs")
"""Evidence that names the texts that it is about, or precedes the last turn, which alone varies."""
_RESPONSE_FIELDS = (
    *(each for each in EVIDENCE_FIELDS if each not in _LASTING),
    "response_token_ids",
)
"""Fields that hold for the response of a row, and not for a variant."""


def scored_variants(group: Sequence[ScoredRow], index: int, scorer: Scorer) -> Iterator[Variant]:
    """Yield the variants of a row whose reward differs from that of the row.

    Variants that cannot be scored are left out, for example because they lack evidence.
    """
    row = group[index]
    try:
        target = target_of(row)
    except RolloutError:
        return
    for name, response in _responses(target):
        if response == target.response:
            continue
        variant = with_last_turn(row, response, **dict.fromkeys(_RESPONSE_FIELDS))
        score = _score(variant, group, index, scorer)
        if score is None or score.value is None:
            continue
        if row.reward is None or not math.isclose(score.value, row.reward, rel_tol=0, abs_tol=1e-6):
            yield Variant(name, score.value, response[:2000])


def _responses(target: Target) -> Iterator[tuple[str, str]]:
    """Yield the name and the response of each variant."""
    right = target.with_answer(target.gold)
    yield f"with the answer “{target.gold}”", right
    yield f"with “{ABSTENTION}”", target.with_answer(ABSTENTION)
    try:
        supporting = target.rollout.supporting_labels
    except RolloutError:
        supporting = ()
    relevance = _RELEVANCE.search(target.response)
    if relevance and supporting:
        labels = f"[{', '.join(supporting)}]"
        section = f"<relevance>{labels}</relevance>"
        yield f"naming {labels}", target.response.replace(relevance[0], section)
        both = right.replace(relevance[0], section)
        yield f"naming {labels}, with the answer “{target.gold}”", both
    if supporting and target.answer.strip() and "[" not in target.answer:
        markers = "".join(f"[{label}]" for label in supporting)
        cited = target.with_answer(f"{target.answer.rstrip(' .')} {markers}.")
        yield f"citing {markers}", cited
    if "</think>" in target.before and not _is_transcript(target.rollout):
        visible = target.before[target.before.rfind("</think>") + len("</think>") :]
        yield "without its thinking", visible + target.answer + target.after


def _is_transcript(rollout: Rollout) -> bool:
    """Return whether the response is one string with several turns, each with its thinking."""
    return (
        rollout.turns is None
        and isinstance(rollout.response, str)
        and len(rollout.trajectory().turns) > 1
    )


def _score(
    variant: ScoredRow, group: Sequence[ScoredRow], index: int, scorer: Scorer
) -> Score | None:
    """Score a variant, for a group reward in the group of the row. None for an error."""
    rows = [variant]
    if scorer.scope == "group":
        rows = [variant if i == index else row for i, row in enumerate(group)]
    result = scorer.score_each(rows, [range(len(rows))])[index if len(rows) > 1 else 0]
    return None if isinstance(result, RolloutError) else result

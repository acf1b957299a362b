"""`rag-rewards explain`: one rollout, in the terminal or as a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from rag_rewards.audit.row_attacks import ABSTENTION, Target, target_of
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence.needs import LogProbsNeed, Need
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.groups import group_by_key
from rag_rewards.loading import RecipeSource
from rag_rewards.model_options import ModelOptions
from rag_rewards.report.explanation import Change, Explanation, explain
from rag_rewards.report.rows import advantages, read_rows, recorded_recipe, rescored
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer


def explained(
    source: str, name: str, recipe: RecipeSource | None, models: ModelOptions
) -> Explanation:
    """Return the explanation of the row with that id, scored in its group. UsageError.

    Without a `recipe`, the row is scored with the one in its signature.
    """
    rows, faults = read_rows(source)
    broken = {fault.row: fault.message for fault in faults}
    at = _find(rows, name, broken)
    group = next(members for members in group_by_key(rows) if at in members)
    members = [rows[i] for i in group]
    with Scorer.load(recipe or recorded_recipe(rows[at]), models=models) as scorer:
        return _explained(members, group.index(at), scorer, models)


def _find(rows: Sequence[ScoredRow], name: str, broken: dict[str, str]) -> int:
    found = [i for i, row in enumerate(rows) if str(row.id) == name]
    if len(found) > 1:
        raise UsageError(f"{len(found)} rows have the id {name}")
    if found:
        return found[0]
    if why := broken.get(name) or broken.get(f"line {name}"):
        raise UsageError(f"row {name}: {why}")
    if not rows:
        raise UsageError("no row to explain")
    near = get_close_matches(name, [str(row.id) for row in rows], 1)
    hint = f"; did you mean {near[0]}?" if near else f"; the first is {rows[0].id}"
    raise UsageError(f"no row has the id {name}{hint}")


def _explained(
    members: Sequence[ScoredRow], at: int, scorer: Scorer, models: ModelOptions
) -> Explanation:
    if scorer.models.policy is not None:
        members = _with_every_document(members, at, scorer)
    scored, faults = rescored(members, scorer)
    own = next((row for row in scored if row.id == members[at].id), None)
    if own is None:
        why = next((f.message for f in faults if f.row == str(members[at].id)), "not scored")
        raise UsageError(f"row {members[at].id} cannot be scored: {why}")
    known = advantages(scored, [range(len(scored))])
    found = explain(
        own,
        advantage=known[scored.index(own)],
        tokenizer=_tokenizer(scorer, models),
        equation=scorer.reward.equation,
        each_document=True,
    )
    found.changes = list(_changes(scored, scored.index(own), scorer))
    if faults:
        found.notes.append(f"{len(faults)} of its group could not be scored: {faults[0].message}")
    return found


@dataclass(frozen=True)
class _EveryDocument:
    """Asks what the response would be worth without each document, not the supporting alone."""

    def needs(self, rollout: Rollout) -> list[Need]:
        return [LogProbsNeed(rollout.labels)] if rollout.documents else []


def _with_every_document(members: Sequence[ScoredRow], at: int, scorer: Scorer) -> list[ScoredRow]:
    own = members[at]
    bare = msgspec.structs.replace(own, logprobs=None)
    [known] = scorer.gatherer.gather_sync(_EveryDocument(), [bare])
    if isinstance(known, RolloutError):
        raise UsageError(str(known))
    return [known if i == at else row for i, row in enumerate(members)]


def _tokenizer(scorer: Scorer, models: ModelOptions) -> Tokenizer | None:
    if scorer.models.policy is not None:
        return scorer.models.policy.tokenizer
    if models.tokenizer:
        from rag_rewards.backends.tokenizer import tokenizer_of

        return tokenizer_of(models.tokenizer, None)
    return None


def _changes(members: Sequence[ScoredRow], at: int, scorer: Scorer) -> Iterator[Change]:
    """One thing changed at a time, and scored: only what can be scored is said."""
    own = members[at]
    try:
        of = target_of(own)
    except RolloutError:
        return
    for what, response in _variants(of):
        if response == of.response:
            continue
        changed = msgspec.structs.replace(own, **_unsaid(response))
        score = _score(changed, members, at, scorer)
        if score is not None and score.value is not None and _differs(score.value, own.reward):
            yield Change(what, score.value, response[:2000])


def _differs(reward: float, now: float | None) -> bool:
    """Apart from what arithmetic alone makes of it."""
    return now is None or not math.isclose(reward, now, rel_tol=0, abs_tol=1e-6)


def _unsaid(response: str) -> dict[str, Any]:
    """Another response, of which no model has said anything yet."""
    gone = ("logprobs", "masked_answers", "masked_logprobs", "verdicts", "response_token_ids")
    return {"response": response, "response_prefix": None} | dict.fromkeys(gone)


def _variants(of: Target) -> Iterator[tuple[str, str]]:
    yield f"with the answer “{of.gold}”", of.with_answer(of.gold)
    yield f"with “{ABSTENTION}”", of.with_answer(ABSTENTION)
    try:
        supporting = of.rollout.supporting_labels
    except RolloutError:
        supporting = ()
    listing = re.search(r"<relevance>[^<]*</relevance>", of.response)
    if listing and supporting:
        named = f"[{', '.join(supporting)}]"
        new = of.response.replace(listing[0], f"<relevance>{named}</relevance>")
        yield f"naming {named}", new
        yield (
            f"naming {named}, with the answer “{of.gold}”",
            of.with_answer(of.gold).replace(listing[0], f"<relevance>{named}</relevance>"),
        )
    if supporting and of.answer.strip() and "[" not in of.answer:
        cited = "".join(f"[{label}]" for label in supporting)
        yield f"citing {cited}", of.with_answer(f"{of.answer.rstrip(' .')} {cited}.")
    if "</think>" in of.before:
        rest = of.before[of.before.rfind("</think>") + len("</think>") :]
        yield "without its thinking", rest + of.answer + of.after


def _score(
    changed: ScoredRow, members: Sequence[ScoredRow], at: int, scorer: Scorer
) -> Score | None:
    group = [changed if i == at else row for i, row in enumerate(members)]
    if scorer.scope != "group":
        group, at = [changed], 0
    result = scorer.score_each(group, [range(len(group))])[at]
    return None if isinstance(result, RolloutError) else result

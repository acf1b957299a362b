"""`rag-rewards explain`: one rollout, in the terminal or as a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from rag_rewards.attacks.anywhere import UNSURE, Target, target
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence import LogProbsNeed, Need
from rag_rewards.grading import Grader, ModelOptions
from rag_rewards.models import Tokenizer
from rag_rewards.report.explanation import Change, Explanation, explain
from rag_rewards.report.scored import (
    Seen,
    advantages,
    by_group,
    plan_of,
    read_rows,
    rescored,
)
from rag_rewards.rollout import Rollout, Score
from rag_rewards.scoring import Plan


def explained(source: str, name: str, plan: Plan | None, models: ModelOptions) -> Explanation:
    """The row of that id, scored in its group and explained. UsageError."""
    rows, faults = read_rows(source)
    broken = {fault.row: fault.message for fault in faults}
    at = _find(rows, name, broken)
    group = next(members for members in by_group(rows) if at in members)
    members = [rows[i] for i in group]
    plan = plan or plan_of(rows[at])
    grader = Grader(plan, models.load(), **models.asking)
    try:
        return _explained(members, group.index(at), grader, models)
    finally:
        if models.given:
            grader.close()


def _find(rows: Sequence[Seen], name: str, broken: dict[str, str]) -> int:
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
    members: Sequence[Seen], at: int, grader: Grader, models: ModelOptions
) -> Explanation:
    if grader.models.policy is not None:
        members = _with_every_document(members, at, grader)
    scored, faults = rescored(members, grader)
    own = next((row for row in scored if row.id == members[at].id), None)
    if own is None:
        why = next((f.message for f in faults if f.row == str(members[at].id)), "not scored")
        raise UsageError(f"row {members[at].id} cannot be scored: {why}")
    known = advantages(scored, [range(len(scored))])
    found = explain(
        own,
        advantage=known[scored.index(own)],
        tokenizer=_tokenizer(grader, models),
        equation=grader.reward.equation,
        each_document=True,
    )
    found.changes = list(_changes(scored, scored.index(own), grader))
    if faults:
        found.notes.append(f"{len(faults)} of its group could not be scored: {faults[0].message}")
    return found


@dataclass(frozen=True)
class _EveryDocument:
    """Asks what the response would be worth without each document, not the supporting alone."""

    def needs(self, rollout: Rollout) -> list[Need]:
        return [LogProbsNeed(rollout.labels)] if rollout.documents else []


def _with_every_document(members: Sequence[Seen], at: int, grader: Grader) -> list[Seen]:
    own = members[at]
    bare = msgspec.structs.replace(own, logprobs=None)
    [known] = grader.gatherer.gather_sync(_EveryDocument(), [bare])
    if isinstance(known, RolloutError):
        raise UsageError(f"row {own.id}: {known}")
    return [known if i == at else row for i, row in enumerate(members)]


def _tokenizer(grader: Grader, models: ModelOptions) -> Tokenizer | None:
    if grader.models.policy is not None:
        return grader.models.policy.tokenizer
    if models.tokenizer:
        from rag_rewards.backends.tokenizer import tokenizer_of

        return tokenizer_of(models.tokenizer, None)
    return None


def _changes(members: Sequence[Seen], at: int, grader: Grader) -> Iterator[Change]:
    """One thing changed at a time, and scored: only what can be scored is said."""
    own = members[at]
    try:
        of = target(own)
    except RolloutError:
        return
    for what, response in _variants(of):
        if response == of.response:
            continue
        changed = msgspec.structs.replace(own, **_unsaid(response))
        score = _score(changed, members, at, grader)
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
    yield f"with the answer “{of.gold}”", of.put(of.gold)
    yield f"with “{UNSURE}”", of.put(UNSURE)
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
            of.put(of.gold).replace(listing[0], f"<relevance>{named}</relevance>"),
        )
    if supporting and of.answer.strip() and "[" not in of.answer:
        cited = "".join(f"[{label}]" for label in supporting)
        yield f"citing {cited}", of.put(f"{of.answer.rstrip(' .')} {cited}.")
    if "</think>" in of.before:
        rest = of.before[of.before.rfind("</think>") + len("</think>") :]
        yield "without its thinking", rest + of.answer + of.after


def _score(changed: Seen, members: Sequence[Seen], at: int, grader: Grader) -> Score | None:
    group = [changed if i == at else row for i, row in enumerate(members)]
    if grader.scope != "group":
        group, at = [changed], 0
    result = grader.score_each(group, [range(len(group))])[at]
    return None if isinstance(result, RolloutError) else result

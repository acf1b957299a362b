"""Evidence for property tests: by the rules of the audit, with values that vary with the texts."""

from __future__ import annotations

import hashlib

import msgspec

from rag_rewards import Recipe, Rollout
from rag_rewards.audit.rule_evidence import with_evidence


def with_varied_evidence(scheme: Recipe, rollout: Rollout) -> Rollout:
    """Return the rollout with all evidence that a recipe needs.

    Log-probabilities and entailments come from a digest of their texts, because the rules give few
    distinct values.
    """
    rollout = with_evidence(scheme, rollout)
    changes: dict[str, object] = {}
    if rollout.nli:
        changes["nli"] = tuple(
            msgspec.structs.replace(
                each, entailment=_fraction(each.premise.strip(), each.hypothesis.strip())
            )
            for each in rollout.nli
        )
    if old := rollout.logprobs:
        text = rollout.parsed.text
        full, *without = (
            tuple(-9 * _fraction(text, label, i) for i in range(len(old.full)))
            for label in ("full", *old.without)
        )
        values = dict(zip(old.without, without, strict=True))
        changes["logprobs"] = msgspec.structs.replace(old, full=full, without=values)
    if rollout.generated_answers and _fraction(rollout.parsed.text) > 0.5:
        changes["generated_answers"] = rollout.generated_answers | {"accuracy": "unknown"}
    # A new entailment can raise new needs.
    return with_evidence(scheme, msgspec.structs.replace(rollout, **changes))


def _fraction(*parts: object) -> float:
    """Return a number from 0 to 1 that depends only on the parts."""
    text = "|".join(map(repr, parts)).encode()
    return hashlib.sha256(text).digest()[0] / 255

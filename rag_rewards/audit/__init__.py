"""Test whether known attacks increase a reward.

    from rag_rewards.audit import audit

    assert audit("arena", hardened=True).ok            # one line in your own tests
    result = audit(my_recipe, rows, attacks=[shouting])
    print(result)

An attacked response pays if it earns more than the same response without the attack. A degenerate
policy pays if its mean reward exceeds that of an honest policy with the same knowledge.
"""

from __future__ import annotations

from rag_rewards.audit.attacks import ATTACKS
from rag_rewards.audit.findings import MIN_GAIN, Audit, Finding, describe
from rag_rewards.audit.runner import MAX_ROWS, Attack, audit

__all__ = [
    "ATTACKS",
    "MAX_ROWS",
    "MIN_GAIN",
    "Attack",
    "Audit",
    "Finding",
    "audit",
    "describe",
]

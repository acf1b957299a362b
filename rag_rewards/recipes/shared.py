"""Hardened settings that several recipes share."""

from __future__ import annotations

from rag_rewards.definition import HardenedSetting

UNDECIDED = HardenedSetting(
    "wrong", (1, 2, 3, 9, 10, 25, 27, 28, 30), "lists, negations, and text around an answer"
)
"""The hardened setting for answers that are neither right nor wrong."""
REJECTED = {
    "accuracy.metric": {"lenient": "is only for evaluation, because a policy can exploit it"}
}
"""Values of the accuracy that the hardened profile rejects."""

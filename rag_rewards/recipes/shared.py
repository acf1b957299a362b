"""Hardened settings that several recipes share, by key."""

from __future__ import annotations

from rag_rewards.definition import HardenedSetting

SECTIONS = {
    "sections.repeated": HardenedSetting(
        "missing", (7, 12), "many answer sections, one of them right; nested tags"
    )
}
"""The reading of tags."""
FORM = {
    **SECTIONS,
    "format.words": HardenedSetting(
        True, (11, 24), "a format reward for empty sections or for '.'"
    ),
}
"""The reading of tags, and a reward of the format."""
NORMALIZER = {
    "accuracy.normalizer": HardenedSetting(
        "unicode", (4, 6, 27, 28), "matching 3.14 with 314 or C++ with C; invisible characters"
    )
}
ANSWER = {
    **NORMALIZER,
    "accuracy.undecided": HardenedSetting(
        "wrong", (1, 2, 3, 9, 10, 25, 27, 28, 30), "lists, negations, and text around an answer"
    ),
}
"""The comparison of an answer."""
LIST = {
    **ANSWER,
    "accuracy.extra": HardenedSetting(
        "reject", (1,), "an answer that lists every candidate answer"
    ),
}
"""The comparison of an answer that can be a list."""
REJECTED = {
    "accuracy.metric": {"lenient": "is only for evaluation, because a policy can exploit it"}
}
"""Values of the accuracy that the hardened profile rejects."""

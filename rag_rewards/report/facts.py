"""Properties of a response besides its score, for the statistics of a report."""

from __future__ import annotations

import re

import msgspec

from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.text.refusal import ABSTENTIONS

_TAG = re.compile(r"</?[A-Za-z]\w{0,20}>")


class Facts(msgspec.Struct, frozen=True):
    """Properties of a response besides its score.

    judged  whether a judge decided the answer; None if the recipe uses no cascade
    """

    words: int
    cites: int
    tags: int
    refused: bool
    abstained: bool
    cut: bool
    judged: bool | None = None


def facts_of(row: ScoredRow) -> Facts:
    """Return the properties of a response.

    Refusals and abstentions are those that the recipe recognized. If the recipe does not recognize
    them, usual phrases count as an abstention.
    """
    text = row.parsed.text
    details = row.details or {}
    truth = details.get("truth")
    refused = bool(details.get("refused")) and truth is None
    abstained = truth == "uncertain"
    if not refused and not abstained and truth is None and "refused" not in details:
        visible = row.parsed.visible.lower().replace("’", "'")
        abstained = any(phrase.lower() in visible for phrase in ABSTENTIONS)
    return Facts(
        words=len(text.split()),
        cites=sum(len(m.labels) for m in markers(text, _MARKER)),
        tags=len(_TAG.findall(text)),
        refused=refused,
        abstained=abstained,
        cut=row.finish_reason == "length",
        judged=details["decided_by"] == "judge" if "decided_by" in details else None,
    )


_MARKER = compiled()

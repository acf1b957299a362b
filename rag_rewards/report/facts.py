"""Properties of a response besides its score, for the statistics of a report."""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

from rag_rewards.report.rows import UNKNOWN, Configuration
from rag_rewards.report.turns import trajectory_of
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.decisions import decided_as
from rag_rewards.text.citations import compiled, markers
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.turns.trajectory import TurnCounts, turn_counts
from rag_rewards.turns.turn import Turn

_TAG = re.compile(r"</?[A-Za-z]\w{0,20}>")


class Facts(msgspec.Struct, frozen=True):
    """Properties of a response besides its score.

    words          words of the policy in all turns
    decision       how the answer was decided, see `rows.decisions.decided_as`
    turns          counts of the turns; None for a response of one turn without a query
    at_turn_limit  whether the largest number of turns ended the rollout
    replies        digests of the results of each turn but the last one
    """

    words: int
    cites: int
    tags: int
    refused: bool
    abstained: bool
    cut: bool
    decision: str | None = None
    turns: TurnCounts | None = None
    at_turn_limit: bool = False
    replies: tuple[str, ...] = ()


def facts_of(row: ScoredRow, configuration: Configuration = UNKNOWN) -> Facts:
    """Return the properties of a response, whose turns are read as by a recipe with its settings.

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
    run = trajectory_of(row, configuration)
    own = "\n".join(turn.text for turn in run.turns) if run else text
    return Facts(
        words=len(own.split()),
        cites=sum(len(m.labels) for m in markers(text, _MARKER)),
        tags=len(_TAG.findall(own)),
        refused=refused,
        abstained=abstained,
        cut=row.finish_reason == "length",
        decision=decided_as(details),
        turns=turn_counts(run) if run else None,
        at_turn_limit=row.finish_reason == "max_turns",
        replies=tuple(map(_digest, run.turns[:-1])) if run else (),
    )


def _digest(turn: Turn) -> str:
    texts = [turn.observation or "", *(result.text for result in turn.results or ())]
    return blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=8).hexdigest()


_MARKER = compiled()

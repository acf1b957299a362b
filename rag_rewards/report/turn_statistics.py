"""Statistics of the turns of search agents, and warnings about their collapse in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.report.facts import Facts
from rag_rewards.rows import ScoredRow
from rag_rewards.training.credit import credit_of_groups
from rag_rewards.turns.trajectory import TurnCounts
from rag_rewards.turns.turn import MEANINGS, NAMES

Groups = Sequence[Sequence[int]]
Rates = dict[str, float | None]

SEARCHES, TURNS = "searches per rollout", "turns per rollout"
UNSEARCHED, DUPLICATES = "rollouts without a search", "duplicate queries"
EMPTY, MALFORMED = "turns without results", "malformed turns"
AT_LIMIT = "rollouts at the turn limit"
SHARES = (UNSEARCHED, DUPLICATES, EMPTY, MALFORMED, AT_LIMIT)
"""The rates that are shares, which should be small."""

CREDIT: dict[str, tuple[str, dict[str, str]]] = {
    "return": ("return", {}),
    "igpo (joint)": ("igpo", {"norm": "joint"}),
    "igpo (separate)": ("igpo", {"norm": "separate"}),
    "mt_grpo": ("mt_grpo", {}),
    "gigpo": ("gigpo", {}),
}
"""The methods of credit whose dead groups are counted, with their options."""
_ZERO = 1e-12


class CreditSignal(msgspec.Struct, frozen=True):
    """The training signal of a method of credit, over groups of at least two rollouts.

    dead  share of the groups in which the advantage of every turn is 0
    """

    method: str
    dead: float | None


class MalformedCount(msgspec.Struct, frozen=True):
    """The number of turns with a name of a malformed turn."""

    name: str
    turns: int
    meaning: str


class TurnStatistics(msgspec.Struct, frozen=True):
    """Statistics of the turns of all rollouts.

    most_searches  largest number of searches of a rollout
    rates          means and shares, see `turn_rates`
    malformed      the names of malformed turns that occur
    credit         training signal of each method; empty without rewards of turns
    """

    most_searches: int
    rates: Rates
    malformed: list[MalformedCount]
    credit: list[CreditSignal]


def turn_statistics(
    rows: Sequence[ScoredRow], facts: Sequence[Facts], groups: Groups
) -> TurnStatistics | None:
    """Return the statistics of turns; None if no rollout has several turns or a query."""
    counts = [each.turns for each in facts if each.turns is not None]
    if not counts:
        return None
    names: Counter[str] = Counter()
    for each in counts:
        names.update(each.names)
    return TurnStatistics(
        most_searches=max(each.searches for each in counts),
        rates=turn_rates(facts),
        malformed=[
            MalformedCount(name, names[name], MEANINGS[name]) for name in NAMES if names[name]
        ],
        credit=_credit_signals(rows, facts, groups),
    )


def turn_rates(facts: Sequence[Facts]) -> Rates:
    """Return means and shares over the rollouts of a search agent; a rate is None without a turn.

    searches and turns per rollout  means
    rollouts without a search       share of the rollouts
    duplicate queries               share of the queries that repeat one of the same rollout
    turns without results           share of the turns with a query that got no document
    malformed turns                 share of the turns
    rollouts at the turn limit      share of the rollouts with the `finish_reason` max_turns
    """
    agents = [each for each in facts if each.turns is not None]
    counts: list[TurnCounts] = [each.turns for each in agents if each.turns is not None]
    n = len(counts)
    return {
        SEARCHES: _share(sum(each.searches for each in counts), n),
        TURNS: _share(sum(each.turns for each in counts), n),
        UNSEARCHED: _share(sum(not each.searches for each in counts), n),
        DUPLICATES: _share(
            sum(each.repeated for each in counts), sum(each.queries for each in counts)
        ),
        EMPTY: _share(sum(each.empty for each in counts), sum(each.query_turns for each in counts)),
        MALFORMED: _share(
            sum(each.malformed for each in counts), sum(each.turns for each in counts)
        ),
        AT_LIMIT: _share(sum(each.at_turn_limit for each in agents), n),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# --- credit --------------------------------------------------------------------------------------


def _credit_signals(
    rows: Sequence[ScoredRow], facts: Sequence[Facts], groups: Groups
) -> list[CreditSignal]:
    if not any(row.turn_rewards for row in rows):
        return []
    scores = [row.score for row in rows]
    scored = [[i for i in group if scores[i].value is not None] for group in groups]
    scored = [group for group in scored if len(group) > 1]
    signals = []
    for name, (method, options) in CREDIT.items():
        anchors = {"anchors": _anchors(rows, facts)} if method == "gigpo" else {}
        try:
            advantages = credit_of_groups(scores, scored, method, **options, **anchors)
        except UsageError:  # numbers that a method rejects, such as 1e308
            signals.append(CreditSignal(name, None))
            continue
        dead = sum(
            all(abs(value) < _ZERO for i in group for value in advantages[i] or ())
            for group in scored
        )
        signals.append(CreditSignal(name, _share(dead, len(scored))))
    return signals


def _anchors(rows: Sequence[ScoredRow], facts: Sequence[Facts]) -> list[list[str]]:
    """Return the state before each turn: the prompt, then the results of the turn before it."""
    anchors = []
    for row, each in zip(rows, facts, strict=True):
        states = [row.key or "", *each.replies]
        entries = len(row.score.turns) or 1
        anchors.append([*states, *[""] * entries][:entries])
    return anchors


# --- warnings ------------------------------------------------------------------------------------


def turn_notes(statistics: TurnStatistics | None) -> Iterator[str]:
    """Yield what is wrong with the searches of all rollouts."""
    if statistics is None:
        return
    rates = statistics.rates
    if rates[UNSEARCHED] == 1:
        yield "no rollout contains a search with results"
    for name in (DUPLICATES, EMPTY, MALFORMED):
        share = rates[name]
        if share is not None and share >= 0.5:
            yield f"{name}: {share:.0%}"


def search_drift(first: float, last: float, most: int) -> Iterator[str]:
    """Yield a message if the number of searches collapses from the first to the last quarter.

    most  the largest number of searches of a rollout

    It collapses if it falls to a tenth, or if it comes within a tenth of `most` from less than 70%
    of it.
    """
    change = f"from {first:.3g} to {last:.3g} per rollout"
    if first >= 0.2 and last <= 0.1 * first:
        yield f"fell {change}: the policy stops searching"
    elif most >= 2 and last >= 0.9 * most and first < 0.7 * most:
        yield f"grew {change}, close to the largest number ({most:g})"

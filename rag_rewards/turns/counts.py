"""Counts of the turns of a rollout: searches, repeated queries, malformed turns."""

from __future__ import annotations

from collections import Counter

import msgspec

from rag_rewards.text.normalize import squad
from rag_rewards.turns.trajectory import Trajectory


class TurnCounts(msgspec.Struct, frozen=True):
    """Counts of the turns of a rollout.

    turns           number of turns
    searches        turns with a query and with results, which can be empty
    query_turns     turns with a query
    empty           turns with a query to which the environment returned no document
    queries         number of queries
    repeated        queries that are equal to an earlier query of the rollout, after `squad`
    malformed       turns with a name in `names`
    names           number of turns with each name of a malformed turn
    """

    turns: int
    searches: int
    query_turns: int
    empty: int
    queries: int
    repeated: int
    malformed: int
    names: dict[str, int]


def turn_counts(run: Trajectory) -> TurnCounts:
    """Return the counts of the turns of a rollout.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> counts = turn_counts(read_trajectory("<search>a</search><information></information>b"))
    >>> counts.turns, counts.searches, counts.empty
    (2, 1, 1)
    """
    query_turns = [turn for turn in run.turns if turn.queries]
    queries = [query for turn in query_turns for query in turn.queries]
    names = Counter(name for turn in run.turns for name in turn.malformed)
    return TurnCounts(
        turns=len(run.turns),
        searches=run.searches,
        query_turns=len(query_turns),
        empty=sum(not turn.results for turn in query_turns),
        queries=len(queries),
        repeated=len(queries) - len(set(map(normal_query, queries))),
        malformed=sum(bool(turn.malformed) for turn in run.turns),
        names=dict(names),
    )


def normal_query(query: str) -> str:
    """Return a query after `squad`, or the query itself if nothing of it is left."""
    return squad(query) or query

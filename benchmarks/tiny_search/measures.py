"""Measure what a policy does in the tiny search world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from tiny_search.episode import Episode
from tiny_search.rollouts import Trajectory, trajectories

from rag_rewards.turns.turn import PENALIZED

Measures = dict[str, float | None]
MEASURES = (
    "right",
    "first query",
    "second query",
    "turns",
    "malformed turns",
)
"""right            share of rollouts with the right answer
first query      share of first queries that are the person of the question
second query     share of second queries that are the friend
turns            mean number of turns
malformed turns  mean number of malformed turns of a rollout"""


def measure(
    model: Any, tokenizer: Any, episodes: Sequence[Episode], seed: int | str = 0
) -> Measures:
    """Return the measures of one rollout for each episode, sampled at temperature 1.

    A share is None if no rollout has such a query.
    """
    return measures_of(trajectories(model, tokenizer, episodes, seed=seed))


def measures_of(finished: Sequence[Trajectory]) -> Measures:
    """Return the measures of rollouts."""
    steps = [each.rollout().steps("search-r1") for each in finished]
    queries = [[turn.queries[0] for turn in turns if turn.queries] for turns in steps]
    pairs = list(zip(finished, queries, strict=True))
    return {
        "right": _mean(
            turns[-1].answer == each.episode.answer
            for each, turns in zip(finished, steps, strict=True)
        ),
        "first query": _mean(asked[0] == each.episode.person for each, asked in pairs if asked),
        "second query": _mean(
            asked[1] == each.episode.friend for each, asked in pairs if len(asked) > 1
        ),
        "turns": _mean(map(len, steps)),
        "malformed turns": _mean(
            sum(bool(PENALIZED.intersection(turn.malformed)) for turn in turns) for turns in steps
        ),
    }


def _mean(values: Iterable[float]) -> float | None:
    known = [float(value) for value in values]
    return fmean(known) if known else None

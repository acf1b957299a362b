"""A demonstrator of the tiny search world, with the errors that a weak search agent makes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tiny_search.episode import Episode
from tiny_search.rollouts import (
    ANSWER,
    END_OF_ANSWER,
    END_OF_QUERY,
    END_OF_THINK,
    QUERY,
    THINK,
    Trajectory,
)

from rag_rewards.tiny_world.model import END
from rag_rewards.tiny_world.world import FLOWERS


@dataclass(frozen=True)
class Habits:
    """How a demonstrator plays.

    shares  probability of each behavior:
            both hops       search for the person, then for the friend
            one hop         search for the person
            distractor      search for the person, then for the person of the other fact
            repeated query  search for the person twice
            no search       answer at once
    reads   whether it always answers with the flower of the last fact that it read; otherwise only
            after both hops. All other answers are guesses: random flowers

    Before each action that follows a search, the demonstrator repeats a fact inside <think>.
    """

    shares: Mapping[str, float]
    reads: bool = True


RIGHT = Habits({"both hops": 1.0})
NOISY = Habits(
    {
        "both hops": 0.10,
        "one hop": 0.35,
        "distractor": 0.20,
        "repeated query": 0.15,
        "no search": 0.20,
    }
)
GUESSING = Habits(NOISY.shares, reads=False)


def demonstrate(episode: Episode, rng: random.Random, habits: Habits = NOISY) -> Trajectory:
    """Draw a behavior and return its rollout."""
    behavior = rng.choices(list(habits.shares), list(habits.shares.values()))[0]
    trajectory = Trajectory(episode, rng)
    thought: tuple[str, ...] = ()
    if behavior != "no search":
        found = _search(trajectory, episode.person)
        other = next(person for person in found if person != episode.person)
        second = {
            "both hops": (episode.person, episode.friend),
            "distractor": (other, other),
            "repeated query": (episode.person, episode.person),
        }
        read, query = second.get(behavior, (episode.person, None))
        thought = (THINK, read, episode.facts[read], END_OF_THINK)
        if query:
            _write(trajectory, thought)
            _search(trajectory, query)
            thought = (THINK, query, episode.facts[query], END_OF_THINK)
    answers = habits.reads or behavior == "both hops"
    has_flower = bool(thought) and thought[2] in FLOWERS
    flower = thought[2] if answers and has_flower else rng.choice(FLOWERS)
    _write(trajectory, (*thought, ANSWER, flower, END_OF_ANSWER, END))
    return trajectory


def _search(trajectory: Trajectory, person: str) -> list[str]:
    """Search for a person and return the people of the results."""
    _write(trajectory, (QUERY, person, END_OF_QUERY))
    while trajectory.is_waiting:
        trajectory.advance("", 0.0)
    return [result["id"] for result in trajectory.turns[-1]["results"]]


def _write(trajectory: Trajectory, words: tuple[str, ...]) -> None:
    for word in words:
        trajectory.advance(word, 0.0)

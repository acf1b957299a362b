"""The rewards, the credit methods and the settings that the tiny search world compares.

All arms have the same outcome: 1 for the right answer, else 0. They differ in the rewards of the
searches and in the way in which these rewards become advantages.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tiny_search.rollouts import ANSWER

from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import recipe
from rag_rewards.reward import Batch, Composite, Reward, Value, total
from rag_rewards.rollout import TurnEntries

TEMPLATE = f"{ANSWER} {{answer}}"
"""Words before the gold answer whose likelihood `igpo` measures."""
OUTCOME = {"bad_end": 0.0, "template": TEMPLATE}
IGPO: Mapping[str, Any] = {"recipe": "igpo", "settings": OUTCOME}
EMPTY: Mapping[str, Any] = {
    "recipe": "igpo",
    "settings": {**OUTCOME, "gain.baseline": "empty"},
}
COVERAGE: Mapping[str, Any] = {
    "recipe": "stepsearch",
    "settings": {"process": "coverage", "keys.weight": 0.0, "bad_end": 0.0},
}


@dataclass(frozen=True, repr=False)
class PermutedTurns(Composite):
    """A reward whose process rewards are permuted among the search turns of a group.

    The outcomes stay where they are. Each group keeps the same process rewards, so that a
    difference from the original reward shows what their places contribute.
    """

    compares_rollouts: ClassVar[bool] = True
    reward: Reward
    label: str = "permuted"

    def entries(self, batch: Batch) -> list[TurnEntries]:
        result = batch.entries(self.reward)
        entries = list(result)
        for group in batch.groups:
            texts = [turn.text for i in group for turn in batch.rollouts[i].steps()]
            permuted = permute([result[i] for i in group], random.Random(str(texts)))
            for i, values in zip(group, permuted, strict=True):
                entries[i] = values
        return entries

    def values(self, batch: Batch) -> list[Value]:
        pairs = zip(batch.values(self.reward), batch.entries(self), strict=True)
        return [total(entries) if entries else value for value, entries in pairs]


def permute(
    turns: Sequence[Sequence[float | None]], rng: random.Random
) -> list[tuple[float | None, ...]]:
    """Permute the process rewards of a group; entries of None and outcomes stay in place."""
    places = [
        (i, t)
        for i, entries in enumerate(turns)
        for t, entry in enumerate(entries[:-1])
        if entry is not None
    ]
    values = [turns[i][t] for i, t in places]
    rng.shuffle(values)
    result = [list(entries) for entries in turns]
    for (i, t), value in zip(places, values, strict=True):
        result[i][t] = value
    return [tuple(entries) for entries in result]


def permuted_igpo() -> Recipe:
    """Return the recipe igpo with permuted process rewards."""
    original = recipe("igpo", OUTCOME)
    reward = PermutedTurns(original.total)
    return Recipe("permuted-igpo", (reward,), reward, settings=original.settings)


@dataclass(frozen=True)
class Arm:
    """A reward and a credit method.

    reward          options of RagReward
    credit          method, or `group` for one advantage per rollout
    credit_options  options of the method
    """

    name: str
    reward: Mapping[str, Any]
    credit: str = "group"
    credit_options: Mapping[str, Any] = field(default_factory=dict)


ARMS = (
    Arm("outcome only", {"recipe": "search-r1"}),
    Arm("igpo, joint", IGPO, "igpo", {"norm": "joint"}),
    Arm("igpo, separate", IGPO, "igpo", {"norm": "separate"}),
    Arm("igpo, return", IGPO, "return"),
    Arm("coverage, return", COVERAGE, "return"),
    Arm("igpo, sum", IGPO),
    Arm("igpo permuted, return", {"recipe": permuted_igpo}, "return"),
    Arm("igpo empty, return", EMPTY, "return"),
    Arm("gigpo", {"recipe": "search-r1"}, "gigpo"),
)


def arm(name: str) -> Arm:
    """Return an arm by its name."""
    return next(each for each in ARMS if each.name == name)


@dataclass(frozen=True)
class Setting:
    """A world, and the arms and the effort of the runs in it.

    short       what is special about it, for a list
    base        demonstrator of the policy before the training
    arms        names of the arms; the first one is the reference
    steps       steps of a training
    points      measurements during a training
    questions   questions of such a measurement
    goal        accuracy whose first step is measured
    group_size  rollouts of a group
    recall      probability that a search finds the fact about its person
    """

    title: str
    short: str
    base: str
    arms: Sequence[str]
    steps: int
    points: int
    questions: int
    goal: float
    group_size: int = 8
    recall: float = 1.0


SETTINGS = {
    "noisy": Setting(
        "Demonstrator that answers from its last fact",
        "a search engine that always finds the fact and groups of 8",
        base="noisy",
        arms=[each.name for each in ARMS if each.name != "gigpo"],
        steps=40,
        points=20,
        questions=400,
        goal=0.8,
    ),
    "rare": Setting(
        "Rare outcomes: a demonstrator that guesses, a weak search engine, groups of 4",
        "a weak search engine, a policy that guesses, and groups of 4",
        base="guessing",
        arms=["outcome only", "coverage, return", "igpo, joint", "igpo, separate", "gigpo"],
        steps=70,
        points=10,
        questions=300,
        goal=0.3,
        group_size=4,
        recall=0.7,
    ),
}

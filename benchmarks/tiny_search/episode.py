"""Episodes of the tiny search world: which flower does the friend of a person like?

    ? Ada
    <search> Ada </search>  <information> Ada Ben . Tom ivy . </information>
    <search> Ben </search>  <information> Eva iris . Ben rose . </information>
    <answer> rose </answer>

The facts are new in each episode, so that a policy cannot memorize them, and the prompt
contains none of them. A search for a person returns the fact about this person and one random
other fact. A weak search engine misses the fact for some queries, and returns two other facts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rag_rewards.tiny_world.world import FLOWERS, PEOPLE

CHAINS = 6
"""Chains of an episode: a person, a friend of the person, and the flower that the friend likes."""
LOOSE_FACTS = 6
"""Facts of an episode about the flower of a person that is nobody's friend."""
MAX_TURNS = 4
"""Turns of a rollout, including the answer."""

Document = tuple[str, str]
"""A person, and the friend or the flower of this person."""


@dataclass(frozen=True)
class Episode:
    """A question with the facts that a search can find.

    facts   friend or flower of each person
    person  the person of the question
    recall  probability that a search finds the fact about its person
    """

    facts: Mapping[str, str]
    person: str
    recall: float = 1.0

    @property
    def friend(self) -> str:
        """The person that the second search must name."""
        return self.facts[self.person]

    @property
    def answer(self) -> str:
        """The flower that the friend likes."""
        return self.facts[self.friend]

    def retrieve(self, query: str, rng: random.Random) -> list[Document]:
        """Return the fact about a person and one random other fact, in random order.

        A query that is not exactly one person of the episode finds nothing. With a recall below 1,
        the results depend on the episode and the query alone, so that all rollouts of a group
        search the same world: either they all find the fact, or they all get two other facts.
        """
        if query not in self.facts:
            return []
        others = [person for person in self.facts if person != query]
        if self.recall < 1.0:
            rng = random.Random(f"{query} {self.facts}")
        is_hit = self.recall == 1.0 or rng.random() < self.recall
        people = [query, rng.choice(others)] if is_hit else rng.sample(others, 2)
        rng.shuffle(people)
        return [(person, self.facts[person]) for person in people]

    def row(self) -> dict[str, Any]:
        """Return the fields of a row that exist before a response.

        The identifier of a document is its person.
        """
        gold = (self.person, self.friend)
        return {
            "question": self.person,
            "answers": [[self.answer]],
            "documents": [document_fields((each, self.facts[each])) for each in gold],
            "supporting": list(gold),
        }


def document_fields(document: Document) -> dict[str, str]:
    """Return a document as a row contains it."""
    return {"id": document[0], "text": " ".join(document)}


def draw_episode(rng: random.Random, recall: float = 1.0) -> Episode:
    """Draw facts about 18 people and a question about the first person of a chain."""
    people = rng.sample(PEOPLE, 2 * CHAINS + LOOSE_FACTS)
    flowers = rng.sample(FLOWERS, CHAINS + LOOSE_FACTS)
    links = dict(zip(people[:CHAINS], people[CHAINS : 2 * CHAINS], strict=True))
    facts = {**links, **dict(zip(people[CHAINS:], flowers, strict=True))}
    return Episode(facts, rng.choice(people[:CHAINS]), recall)


def episodes(count: int, seed: int | str, recall: float = 1.0) -> list[Episode]:
    """Draw `count` episodes; equal seeds give equal episodes."""
    rng = random.Random(f"episodes {seed}")
    return [draw_episode(rng, recall) for _ in range(count)]

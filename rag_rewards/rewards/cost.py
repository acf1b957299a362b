"""Costs of a response: length over a budget, or repetition (CTRL-RAG, Eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.lengths import words


def length_cost(words: int, budget: int) -> float:
    """Return max(0, words/budget − 1): 0 within the budget, 1 at twice the budget.

    `words` and `budget` are numbers of words.

    >>> length_cost(300, 200)
    0.5
    """
    return max(0.0, words / budget - 1.0)


def repetition_cost(words: Sequence[str], n: int) -> float:
    """Return the share of n-grams that repeat an earlier one: 1 − distinct/all. Range 0 to 1.

    >>> repetition_cost("a b a b a b".split(), 2)
    0.6
    """
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True)
@check_choices
class Cost:
    """The cost of a response with its thinking, at least 0. A composition subtracts it.

    Source: CTRL-RAG, Eq. 4.
    """

    kind: Annotated[
        Literal["length", "repetition"],
        about("length above the budget, or share of repeated n-grams", "CTRL-RAG, Eq. 4: both"),
    ] = "length"
    budget: Annotated[
        int,
        about(
            "with kind=length, number of words without a cost",
            "ours: CTRL-RAG does not state it",
            ge=1,
        ),
    ] = 512
    ngram: Annotated[
        int,
        about(
            "with kind=repetition, number of words in an n-gram",
            "ours: CTRL-RAG does not state it",
            ge=1,
        ),
    ] = 4
    name: str = "cost"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [Score(self._of(rollout.parsed.text)) for rollout in rollouts]

    def _of(self, text: str) -> float:
        if self.kind == "length":
            return length_cost(words(text), self.budget)
        return repetition_cost(text.split(), self.ngram)

"""The reward of Search-R1: the outcome, and variants that read the format or the searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import (
    Match,
    RepeatedAnswer,
    Retrieval,
    answer_of,
    details_of,
    entries_of,
    penalties,
)
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.turn_entries import total
from rag_rewards.turns.order import is_well_formed
from rag_rewards.turns.trajectory import READING, Reading

Scheme = Literal["outcome", "format", "searched"]


def format_reward(
    outcome: float,
    form: float,
    retrieval: float,
    answered: float,
    *,
    structure: float = 0.2,
    answer: float = 0.1,
    retrieved: float = 0.0,
) -> float:
    """Return o·(1 − (1 − f)·w_s) + (1 − o)·(f·(w_s + g·w_r) + (1 − f)·a·w_a).

    outcome o, form f, retrieval g and answered a are between 0 and 1; structure is w_s, answer is
    w_a and retrieved is w_r. Range 0 to 1 for weights in this range. Source: Search-R1,
    verl/utils/reward_score/qa_em_format.py.

    >>> format_reward(1, 0, 0, 1), format_reward(0, 1, 0, 1), format_reward(0, 0, 1, 1)
    (0.8, 0.2, 0.1)
    """
    right = 1 - (1 - form) * structure
    wrong = form * (structure + retrieval * retrieved) + (1 - form) * answered * answer
    return outcome * right + (1 - outcome) * wrong


def searched_reward(
    outcome: float, searched: float, retrieval: float, *, penalty: float = 0.2, found: float = 0.1
) -> float:
    """Return o·(1 − (1 − s)·w_n) + (1 − o)·g·w_g.

    outcome o, searched s and retrieval g are between 0 and 1; penalty is w_n and found is w_g.
    Source: pytorch/torchtitan@b5bcd76 experiments/rl/examples/search_r1/rubric.py.

    >>> searched_reward(1, 0, 0), searched_reward(0, 1, 1)
    (0.8, 0.1)
    """
    return outcome * (1 - (1 - searched) * penalty) + (1 - outcome) * retrieval * found


@dataclass(frozen=True)
@check_choices
class SearchR1Reward:
    """The reward of Search-R1, with its components. It is at the last turn.

    scheme     which components the reward reads
    answer     comparison of the answer with the gold answers
    reading    how the turns are read
    repeated   whether the last of several answers counts, or none
    match      how a gold answer is found in the results
    structure, final, retrieved  weights w_s, w_a and w_r of the scheme `format`
    unsearched, found            weights w_n and w_g of the scheme `searched`
    malformed  penalty of a malformed turn
    """

    scheme: Scheme = "outcome"
    answer: AnswerMatch = AnswerMatch("outcome")
    reading: Reading = READING
    repeated: RepeatedAnswer = "last"
    match: Match = "substring"
    structure: float = 0.2
    final: float = 0.1
    retrieved: float = 0.0
    unsearched: float = 0.2
    found: float = 0.1
    malformed: float = 0.0
    scope: Literal["rollout"] = "rollout"

    @property
    def name(self) -> str:
        reward = {
            "outcome": "outcome",
            "format": f"outcome·(1 − (1 − format)·{self.structure:g}) + (1 − outcome)·(format·"
            f"({self.structure:g} + retrieval·{self.retrieved:g}) + (1 − format)·answered·"
            f"{self.final:g})",
            "searched": f"outcome·(1 − (1 − searched)·{self.unsearched:g}) + (1 − outcome)·"
            f"retrieval·{self.found:g}",
        }[self.scheme]
        return f"{reward} + malformed"

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        return self.answer.needs_of(rollout, answer_of(run, self.repeated))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        forms = GoldForms(self.answer.normalize)
        retrieval = Retrieval(self.match, forms)
        return [self._score(rollout, forms, retrieval) for rollout in rollouts]

    def _score(self, rollout: Rollout, forms: GoldForms, retrieval: Retrieval) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        outcome, decision = self.answer.decided_value(rollout, text, forms)
        form = float(is_well_formed(run) and bool(text))
        found = retrieval(rollout, run)
        searched = float(run.searches >= 1)
        reward = self._reward(outcome, form, found, searched, float(bool(text)))
        subtracted = penalties(run, self.malformed)
        entries = entries_of([None] * len(run.turns), subtracted, reward)
        components = {
            "outcome": outcome,
            "format": form,
            "retrieval": found,
            "searched": searched,
            "malformed": math.fsum(subtracted),
        }
        value = total(entries)
        details = details_of(run, text, {}) | decision
        return Score(value, components, outcome, details, entries)

    def _reward(
        self, outcome: float, form: float, found: float, searched: float, answered: float
    ) -> float:
        if self.scheme == "format":
            return format_reward(
                outcome,
                form,
                found,
                answered,
                structure=self.structure,
                answer=self.final,
                retrieved=self.retrieved,
            )
        if self.scheme == "searched":
            return searched_reward(
                outcome, searched, found, penalty=self.unsearched, found=self.found
            )
        return outcome

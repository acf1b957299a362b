"""The reward of StepSearch: the answer, its search keys, and the gain of each search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rag_rewards.errors import DataError
from rag_rewards.evidence.needs import Need
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import (
    RepeatedAnswer,
    answer_of,
    details_of,
    entries_of,
    penalties,
)
from rag_rewards.rewards.stepsearch import (
    Assign,
    coverage_rises,
    efficiency,
    gains,
    key_score,
    redundancies,
)
from rag_rewards.rewards.stepsearch_gold import GoldTexts, gold_and_found
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.normalize import squad
from rag_rewards.turn_entries import total
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

Process = Literal["tfidf", "coverage"]
Values = list[float | None]


class Steps(NamedTuple):
    """The rewards of the turns, and the components that they consist of, None without a search."""

    rewards: Values
    gain: Values
    redundancy: Values


@dataclass(frozen=True)
@check_choices
class StepSearchReward:
    """The reward of StepSearch, with an entry for each search and for the last turn.

    process     `tfidf`: similarity to the gold documents; `coverage`: share of the gold documents
    answer      F1 of the answer with the gold answers
    exact       comparison that decides whether the answer is correct
    reading     how the turns are read
    repeated    whether the last of several answers counts, or none
    keys        weight of the search keys, and `assign`: the query that counts for a key
    scale       factor of the reward of a search
    repetition  weight of the redundancy of a search
    bad_end     outcome without an answer, or with words after it
    coverage    weight of the coverage, and `of`: the searches whose results count for it
    factor      factor of the efficiency
    malformed   penalty of a malformed turn

    Raises DataError for a row without gold answers, search keys or gold documents. Source:
    StepSearch, Zillwang/StepSearch@43215ba verl/utils/reward_score/qa_step.py.
    """

    process: Process = "tfidf"
    answer: AnswerMatch = AnswerMatch("answer", metric="f1")
    exact: AnswerMatch = AnswerMatch("exact")
    reading: Reading = READING
    repeated: RepeatedAnswer = "last"
    keys: float = 0.618
    assign: Assign = "last"
    scale: float = 0.6
    repetition: float = 1.0
    bad_end: float = -1.0
    coverage: float = 0.2
    of: Literal["turn", "all"] = "turn"
    factor: float = 0.95
    malformed: float = 0.0
    scope: Literal["rollout"] = "rollout"

    @property
    def name(self) -> str:
        if self.process == "coverage":
            return f"(answer + {self.coverage:g}·gain)·efficiency + malformed"
        return (
            f"answer + {self.keys:g}·search_keys + {self.scale:g}·(gain − {self.repetition:g}·"
            "redundancy) + malformed"
        )

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        return self.answer.needs_of(rollout, answer_of(run, self.repeated))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        forms = GoldForms(self.answer.normalize), GoldForms(self.exact.normalize)
        texts = GoldTexts()
        return [self._score(rollout, *forms, texts) for rollout in rollouts]

    def _score(
        self, rollout: Rollout, forms: GoldForms, exact: GoldForms, texts: GoldTexts
    ) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        value, decision = self.answer.decided_value(rollout, text, forms)
        value = round(value, 4)
        correct = self.exact.value_of(rollout, text, exact)
        keys = self._keys(rollout, run)
        steps = self._steps(rollout, run, texts)
        if self._is_bad_end(run, text, value):
            value, correct, keys = self.bad_end, 0.0, None
            steps = _nothing(len(run.turns))
            outcome = value
        elif self.process == "coverage":
            outcome = value * efficiency(len(run.turns), self.factor)
        else:
            outcome = value + self.keys * (keys or 0.0)
        subtracted = penalties(run, self.malformed)
        entries = entries_of(steps.rewards, subtracted, outcome)
        components = {
            "answer": value,
            "search_keys": keys,
            "gain": _sum(steps.gain),
            "redundancy": _sum(steps.redundancy),
            "malformed": math.fsum(subtracted),
        }
        per_turn = {"gain": steps.gain, "redundancy": steps.redundancy}
        details = details_of(run, text, per_turn) | decision
        return Score(total(entries), components, correct, details, entries)

    def _is_bad_end(self, run: Trajectory, text: str | None, value: float) -> bool:
        """Return whether there is no answer, or whether words follow it.

        If rules decide on the answer, a wrong one without content is no answer.
        """
        if not text or text.isspace() or "text_after_answer" in run.turns[-1].malformed:
            return True
        return self.answer.undecided != "match" and not value and not self.answer.normalize(text)

    def _keys(self, rollout: Rollout, run: Trajectory) -> float | None:
        """Return the score of the search keys, None if the reward does not read it."""
        if self.process == "coverage" or not self.keys:
            return None
        if not rollout.search_keys:
            raise DataError(
                "missing: list the aliases of each search key, or set keys.weight=0", "search_keys"
            )
        for i, aliases in enumerate(rollout.search_keys):
            if not any(map(squad, aliases)):
                raise DataError("contains no search key with a word", f"search_keys[{i}]")
        queries = [query for turn in run.turns for query in turn.queries]
        return key_score(queries, rollout.search_keys, self.assign)

    def _steps(self, rollout: Rollout, run: Trajectory, texts: GoldTexts) -> Steps:
        """Return the rewards of the searches before the last turn."""
        at = [t for t, turn in enumerate(run.turns[:-1]) if turn.is_search]
        found = [run.turns[t].results or () for t in at]
        steps = _nothing(len(run.turns))
        if self.process == "coverage":
            gold, results = gold_and_found(rollout, found)
            rises = coverage_rises(results, gold, self.of)
            factor = self.coverage * efficiency(len(run.turns), self.factor)
            for t, rise in zip(at, rises, strict=True):
                steps.gain[t], steps.rewards[t] = rise, factor * rise
            return steps
        gold_texts = texts.of(rollout)
        similar = [[texts.similarities(result, gold_texts) for result in each] for each in found]
        repeated = redundancies([[texts.identity(result) for result in each] for each in found])
        for t, gain, share in zip(at, gains(similar, len(gold_texts)), repeated, strict=True):
            steps.gain[t], steps.redundancy[t] = gain, share
            steps.rewards[t] = self.scale * (gain - self.repetition * share)
        return steps


def _nothing(turns: int) -> Steps:
    return Steps([None] * turns, [None] * turns, [None] * turns)


def _sum(values: Values) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) if numbers else None

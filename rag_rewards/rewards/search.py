"""Search agents: the answer, penalties, the reward of Search-R1, and details of the turns."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.normalize import Normalizer, squad, tokens
from rag_rewards.turns.order import is_well_formed
from rag_rewards.turns.trajectory import READING, Reading, Trajectory
from rag_rewards.turns.turn import PENALIZED

Match = Literal["substring", "words"]
RepeatedAnswer = Literal["last", "none"]
REPEATED_ANSWER = (
    "several answers in the last turn; last: the last one counts; none: none counts",
    "ours: last, as published",
)
"""The description and the source of the setting of repeated answers."""


def answer_of(run: Trajectory, repeated: RepeatedAnswer) -> str | None:
    """Return the answer of a rollout, or None. With `none`, several answers are no answer."""
    if repeated == "none" and "repeated_answer" in run.turns[-1].malformed:
        return None
    return run.answer


def compared(
    match: AnswerMatch, rollout: Rollout, text: str | None
) -> tuple[float, float, dict[str, Any]]:
    """Return the value of an answer, whether it is right, and the details of the decision on it.

    The value is that of the metric, and an exact match is right, both from 0 to 1. One decision of
    `matching.decide` or a judge serves both.
    """
    value, decision = match.correctness.decided_value(rollout, text)
    is_same = match.exact is match.correctness
    return value, value if is_same else match.exact.value_of(rollout, text), decision


@dataclass(frozen=True)
@check_choices
class MalformedTurns(RolloutReward):
    """The penalties of malformed turns: −`penalty` at each turn with a name in `PENALIZED`.

    >>> MalformedTurns(0.1)([Rollout(response="<search>a")])[0].turns
    (-0.1,)
    """

    penalty: Annotated[
        float,
        about(
            "number that is subtracted at each turn with an unclosed or empty query, without an "
            "action, with a call that cannot be read, or with forged results",
            "ours: 0, as published",
            key="malformed_penalty",
            ge=0,
        ),
    ] = 0.0
    reading: Reading = READING
    name: str = "malformed"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        if not self.penalty:
            return Score(0.0, turns=(None,) * len(run.turns))
        entries = tuple(
            None if PENALIZED.isdisjoint(turn.malformed) else -self.penalty for turn in run.turns
        )
        return Score(sum_of(entries) or 0.0, turns=entries)


def sum_of(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values of turns, None if no turn has one.

    >>> sum_of([0.5, None, 1.0]), sum_of([None])
    (1.5, None)
    """
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) if numbers else None


def details_of(
    run: Trajectory, answer: str | None, per_turn: Mapping[str, Sequence[float | None]]
) -> dict[str, Any]:
    """Return the details of a rollout: its turns with their components, and their counts.

    per_turn  the values of a component in each turn, None for a turn without a value
    """
    turns = [
        {
            "queries": list(turn.queries),
            "results": None if turn.results is None else len(turn.results),
            "malformed": list(turn.malformed),
            **{name: values[t] for name, values in per_turn.items() if values[t] is not None},
        }
        for t, turn in enumerate(run.turns)
    ]
    return {
        "answer": answer,
        "dialect": run.dialect.name,
        "trusted": run.trusted,
        "n_turns": len(run.turns),
        "searches": run.searches,
        "malformed_turns": sum(bool(turn.malformed) for turn in run.turns),
        "turns": turns,
    }


# --- Search-R1 -----------------------------------------------------------------------------------


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
    """The components of Search-R1's reward. The value is the outcome.

    outcome    comparison of the answer with the gold answers
    format     1 if the tags have the order of the dialect, else 0
    retrieval  1 if the results contain the gold answers, else 0
    searched   1 if the environment returned results, else 0
    answered   1 if there is an answer, else 0

    answer   comparison of the answer with the gold answers
    reading  how the turns are read
    match    how a gold answer is found in the results
    """

    answer: AnswerMatch = AnswerMatch("outcome")
    reading: Reading = READING
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    match: Match = "substring"
    name: str = "search_r1_parts"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        return self.answer.correctness.needs(rollout, answer_of(run, self.repeated))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        retrieval = Retrieval(self.match, self.answer.correctness.forms)
        return [self._score(rollout, retrieval) for rollout in rollouts]

    def _score(self, rollout: Rollout, retrieval: Retrieval) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        outcome, decision = self.answer.correctness.decided_value(rollout, text)
        components = {
            "outcome": outcome,
            "format": float(is_well_formed(run) and bool(text)),
            "retrieval": retrieval(rollout, run),
            "searched": float(run.searches >= 1),
            "answered": float(bool(text)),
        }
        return Score(outcome, components, outcome, details_of(run, text, {}) | decision)


class Retrieval:
    """Whether the results of a rollout contain the gold answers.

    `substring` looks for a normalized alias anywhere in a normalized result, and `words` only at
    the boundaries of words. A result is its title and its text. The normalized results of a batch
    are computed once. Source: Search-R1, qa_em_format.py (substring).
    """

    def __init__(self, match: Match, forms: GoldForms) -> None:
        self.match = match
        self.forms = forms
        self._normal: dict[str, str] = {}

    def __call__(self, rollout: Rollout, run: Trajectory) -> float:
        """Return 1 if the results of the searches contain every required answer, else 0."""
        texts = [
            result.titled_text
            for turn in run.turns
            if turn.is_search
            for result in turn.results or ()
        ]
        return self.contain(texts, rollout.gold)

    def contain(self, texts: Sequence[str], required: Sequence[tuple[str, ...]]) -> float:
        """Return 1 if the texts contain an alias of every required answer, else 0."""
        return float(all(self._is_in(texts, aliases) for aliases in required)) if texts else 0.0

    def _is_in(self, texts: Iterable[str], aliases: tuple[str, ...]) -> bool:
        golds = [form for form in self.forms.of(aliases) if form]
        if self.match == "words":
            golds = [f" {' '.join(tokens(gold))} " for gold in golds]
        needles = [_encoded(max(gold.split(), key=len)) for gold in golds]
        for text in texts:
            if _lacks_all(text, needles, self.forms.normalize):
                continue
            normal = self._normal_of(text)
            if any(gold in normal for gold in golds):
                return True
        return False

    def _normal_of(self, text: str) -> str:
        normal = self._normal.get(text)
        if normal is None:
            normal = self.forms.normalize(text)
            if self.match == "words":
                normal = f" {' '.join(tokens(normal))} "
            self._normal[text] = normal
        return normal


_MARKS = string.punctuation.encode()


def _lacks_all(text: str, needles: Sequence[bytes], normalize: Normalizer) -> bool:
    """Return whether no word of `needles`, in UTF-8, can be in the normal form of a text.

    `squad` removes punctuation and whole words, so that a word without white space in its result
    is also in the text without punctuation. This test is much faster than the normalization.
    """
    if normalize is not squad:
        return False
    plain = _encoded(text.lower()).translate(None, _MARKS)
    return not any(needle in plain for needle in needles)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

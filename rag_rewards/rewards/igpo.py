"""The reward of IGPO: the answer, and how much each turn raises its likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rag_rewards.errors import DataError
from rag_rewards.evidence.needs import Baseline, Need, TurnLogProbsNeed
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.information_gain import Kind, gain_over, information_gains, rises
from rag_rewards.rewards.search import (
    RepeatedAnswer,
    answer_of,
    details_of,
    entries_of,
    penalties,
)
from rag_rewards.rewards.turn_likelihoods import LikelihoodReader, TurnLikelihoods
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.turn_entries import total
from rag_rewards.turns.order import is_balanced
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

Tokens = Literal["multiset", "set"]
Count = Literal["all", "rises"]


def set_f1(prediction: str, aliases: Sequence[str]) -> float:
    """Return F1 of the sets of words of two lower-case texts, for the best alias, 0 to 1.

    Words are separated by white space, and keep their punctuation. Source: IGPO, released code at
    745078b, info_gain.py.

    >>> set_f1("Paris Paris, France", ["paris"])
    0.5
    """
    words = set(prediction.lower().split())
    return max((_f1_of_sets(words, set(alias.lower().split())) for alias in aliases), default=0.0)


def _f1_of_sets(prediction: set[str], gold: set[str]) -> float:
    return 2 * len(prediction & gold) / (len(prediction) + len(gold)) if prediction else 0.0


def _has_words(text: str | None) -> bool:
    """Return whether a text has a letter or a digit outside of citation markers."""
    return any(map(str.isalnum, strip_markers(text or "", compiled())))


@dataclass(frozen=True)
class Curriculum:
    """Weights that change over `steps` training steps: outcome 0.5 to 1, gain 1 to 0.5.

    With 0 steps, both weights are 1. Source: IGPO, released code at 745078b, info_gain.py.

    >>> Curriculum(100).weights(50)
    (0.75, 0.75)
    """

    steps: int = 0

    def weights(self, step: int | None) -> tuple[float, float]:
        """Return the weights of the outcome and of the gain. Raises DataError without a step."""
        if not self.steps:
            return 1.0, 1.0
        if step is None:
            raise DataError("missing; gain.curriculum requires the training step", "step")
        done = min(max(step / self.steps, 0.0), 1.0)
        return 0.5 + 0.5 * done, 1.0 - 0.5 * done


@dataclass(frozen=True)
@check_choices
class IgpoReward:
    """The reward of IGPO, with an entry for each turn but the last one, and the outcome.

    kind        `prob`: gains of p = exp V; `log`: gains of V, in nats
    baseline    what V after a turn is compared with: V after the `previous` turn, V as if the
                search had no hits (`empty`), or V with results of other prompts (`random`)
    draws       number of other prompts for the baseline `random`
    count       `all` gains, or only `rises` above the greatest likelihood of the rollout so far
    gated       whether a rollout earns gains only if its outcome is positive
    weight      weight of the gains, and `curriculum`: change of the weights over the training
    likelihood  how V is computed from log-probabilities
    template    text between a turn and the answer
    answer      F1 of the answer with the gold answers, and `tokens`: what it compares
    exact       comparison that decides whether the answer is correct
    bad_format  outcome without an answer, without words in it, or with unbalanced tags
    reading     how the turns are read
    repeated    whether the last of several answers counts, or none
    malformed   penalty of a malformed turn

    A rollout with one turn has only an outcome and needs no likelihoods. Raises DataError and
    EvidenceError for missing and impossible log-probabilities. Source: IGPO, released code at
    745078b, scrl/llm_agent/generation.py and info_gain.py.
    """

    kind: Kind = "prob"
    baseline: Baseline = "previous"
    draws: int = 3
    count: Count = "all"
    gated: bool = False
    weight: float = 1.0
    curriculum: Curriculum = Curriculum()
    likelihood: LikelihoodReader = LikelihoodReader()
    template: str = "igpo"
    answer: AnswerMatch = AnswerMatch("outcome", metric="f1")
    tokens: Tokens = "multiset"
    exact: AnswerMatch = AnswerMatch("exact")
    bad_format: float = -2.0
    reading: Reading = READING
    repeated: RepeatedAnswer = "last"
    malformed: float = 0.0
    scope: Literal["rollout"] = "rollout"

    @property
    def name(self) -> str:
        if not self.curriculum.steps:
            return f"outcome + {self.weight:g}·info_gain + malformed"
        return (
            f"w_outcome·outcome + {self.weight:g}·w_gain·info_gain + malformed, w_outcome 0.5 to 1 "
            f"and w_gain 1 to 0.5 in {self.curriculum.steps} steps"
        )

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        needs = self.answer.needs_of(rollout, answer_of(run, self.repeated))
        return [*needs, self._need(run)] if len(run.turns) > 1 and rollout.gold else needs

    def _need(self, run: Trajectory) -> TurnLogProbsNeed:
        return TurnLogProbsNeed(
            len(run.turns),
            self.baseline,
            self.draws if self.baseline == "random" else 0,
            self.template,
            "first" if self.likelihood.alias == "first" else "all",
            self.reading,
        )

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        forms = GoldForms(self.answer.normalize), GoldForms(self.exact.normalize)
        return [self._score(rollout, *forms) for rollout in rollouts]

    def _score(self, rollout: Rollout, forms: GoldForms, exact: GoldForms) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        outcome, decision = self._outcome(rollout, text or "", forms)
        if not is_balanced(run) or not (outcome or _has_words(text)):
            outcome = self.bad_format
        correct = self.exact.value_of(rollout, text, exact)
        likelihoods = self._likelihoods(rollout, run)
        gains = self._counted(likelihoods, outcome) if likelihoods else []
        gains += [None] * (len(run.turns) - len(gains))
        of_outcome, of_gain = self.curriculum.weights(rollout.step)
        process = [None if g is None else self.weight * of_gain * g for g in gains]
        subtracted = penalties(run, self.malformed)
        entries = entries_of(process, subtracted, of_outcome * outcome)
        known = [g for g in gains if g is not None]
        logs = likelihoods.previous if likelihoods else []
        components = {
            "outcome": outcome,
            "info_gain": math.fsum(known) if known else None,
            "prior": math.exp(logs[0]) if logs else None,
            "posterior": math.exp(logs[-1]) if logs else None,
            "malformed": math.fsum(subtracted),
        }
        after = [math.exp(v) for v in logs[1:]]
        per_turn = {
            "info_gain": gains,
            "likelihood": [*after, *[None] * (len(run.turns) - len(after))],
        }
        details = details_of(run, text, per_turn) | decision
        return Score(total(entries), components, correct, details, entries)

    def _outcome(
        self, rollout: Rollout, text: str, forms: GoldForms
    ) -> tuple[float, dict[str, Any]]:
        """Return the value of the answer, and the details of the decision on it."""
        if self.answer.is_decided or self.tokens == "multiset" or self.answer.metric != "f1":
            return self.answer.decided_value(rollout, text, forms)
        f1 = math.fsum(set_f1(text, aliases) for aliases in rollout.gold) / len(rollout.gold)
        return f1, {}

    def _likelihoods(self, rollout: Rollout, run: Trajectory) -> TurnLikelihoods | None:
        """Return the likelihoods; None for one turn without evidence, which needs none."""
        if len(run.turns) == 1 and rollout.turn_logprobs is None:
            return None
        need = self._need(run)
        if len(run.turns) == 1:
            need = replace(need, baseline="previous")
        return self.likelihood(rollout, run, need)

    def _counted(self, likelihoods: TurnLikelihoods, outcome: float) -> list[float | None]:
        """Return the gain of each turn but the last one, as far as it counts."""
        gains = self._gains(likelihoods)
        if self.count == "rises":
            gains = rises(likelihoods.previous, gains, self.kind)
        if self.gated and outcome <= 0:
            return [None if gain is None else min(gain, 0.0) for gain in gains]
        return gains

    def _gains(self, likelihoods: TurnLikelihoods) -> list[float | None]:
        if self.baseline == "previous":
            return [*information_gains(likelihoods.previous, self.kind)]
        pairs = zip(likelihoods.previous[1:], likelihoods.other, strict=False)
        return [None if draws is None else gain_over(v, draws, self.kind) for v, draws in pairs]

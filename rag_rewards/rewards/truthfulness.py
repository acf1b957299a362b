"""Truthfulness: correct, uncertain or incorrect answers, and reasoning (TruthRL)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError, SettingError, check_choice
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.correctness import (
    EMPTY,
    UNDECIDED,
    Correctness,
    Decision,
    Required,
    Undecided,
    references_of,
)
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.latex import first_box, last_box, plain_latex
from rag_rewards.text.normalize import (
    NORMALIZER,
    Normalizer,
    NormalizerName,
    normalizer,
)
from rag_rewards.text.refusal import (
    ABSTENTIONS,
    EDGES,
    contains_phrase,
    is_explained_abstention,
    phrase,
)

Truth = Literal["correct", "uncertain", "incorrect"]
Scheme = Literal["ternary", "binary", "geometric"]
Fixed = Literal["ternary", "binary"]
"""The schemes whose rewards do not depend on the initial policy."""
Combine = Literal["multiplicative", "additive", "conditional"]

_SCHEMES: dict[str, dict[str, float]] = {
    "ternary": {"correct": 1.0, "uncertain": 0.0, "incorrect": -1.0},
    "binary": {"correct": 1.0, "uncertain": -1.0, "incorrect": -1.0},
}
_VERIFIERS = ("judge", "cascade", "exact", "substring")
_DECISIONS: dict[Truth, Decision] = {
    "correct": Decision("right", "equal"),
    "uncertain": Decision("wrong", "abstention"),
    "incorrect": EMPTY,
}
"""The decisions on answers that need no comparison other than an exact match."""
_INVALID = "invalid question"
_F1_AT_LEAST = re.compile(r"f1>=(0(?:\.\d+)?|1(?:\.0+)?)")
_RATE = (
    "with scheme=geometric, {}: the share of {} answers of the initial policy, which evaluate "
    "measures; above 0"
)
_UNSET = "ours: unset, because it is measured"


def outcome_reward(truth: Truth, scheme: Scheme = "ternary", *, enhanced: bool = False) -> float:
    """Return the reward of a truth value: −1, 0 or 1.

    `ternary`: 1 correct, 0 uncertain, −1 incorrect. `binary`: 1 correct, −1 otherwise. `enhanced`
    is for out-of-knowledge rows in the knowledge-enhanced variants: 1 uncertain, −1 otherwise.
    Source: TruthRL, section 3.2.

    >>> outcome_reward("uncertain"), outcome_reward("correct", enhanced=True)
    (0.0, -1.0)
    """
    reward = _SCHEMES.get(scheme, {}).get(truth)
    if reward is None:
        check_choice("truth", truth, Truth)
        check_choice("scheme", scheme, Fixed)
    if reward is None or enhanced:
        return 1.0 if truth == "uncertain" else -1.0
    return reward


def geometric_reward(
    truth: Truth, correct_rate: float, wrong_rate: float, *, abstain: bool = False
) -> float:
    """Return y0 for a correct answer, 0 for an abstention and −x0 for a wrong answer.

    correct_rate  x0, the share of correct answers of the initial policy
    wrong_rate    y0, its share of wrong answers
    abstain       whether the question has no answer: y0 for an abstention, −x0 otherwise

    Range −x0 to y0. The expected reward of the initial policy on answerable questions is 0. Source:
    FaithRL, aintdoin/FaithRL@e0f257a verl/trainer/ppo/ray_trainer.py.

    >>> [geometric_reward(t, 0.4, 0.3) for t in ("correct", "uncertain", "incorrect")]
    [0.3, 0.0, -0.4]
    """
    check_choice("truth", truth, Truth)
    if abstain:
        return wrong_rate if truth == "uncertain" else -correct_rate
    return {"correct": wrong_rate, "uncertain": 0.0, "incorrect": -correct_rate}[truth]


def combine_reasoning(
    outcome: float, reasoning: float, how: Combine = "multiplicative", weight: float = 0.5
) -> float:
    """Combine the outcome r_o with the reasoning r_r ∈ {0, 1}.

    multiplicative  r_o·(1 + r_r); a wrong answer with good reasoning gets −2
    additive        r_o + λ·r_r, where λ is `weight`
    conditional     r_o·r_r if r_o > 0, else r_o; a right answer with bad reasoning equals an
                    abstention

    Source: TruthRL, section 4.6.

    >>> [combine_reasoning(-1, 1), combine_reasoning(1, 0, "conditional")]
    [-2, 0]
    """
    check_choice("how", how, Combine)
    if how == "multiplicative":
        return outcome * (1 + reasoning)
    if how == "additive":
        return outcome + weight * reasoning
    return outcome * reasoning if outcome > 0 else outcome


@dataclass(frozen=True)
@check_choices
class Outcome(RolloutReward):
    r"""TruthRL's outcome reward of the boxed answer: −1, 0 or 1.

    An abstention is uncertain, a right answer is correct, and any other response is incorrect, as
    is a response without a box.

    Raises DataError for a row without gold answers, or without the verdict or the label that it
    needs. Source: TruthRL, section 3.2.
    """

    verifier: Annotated[
        str,
        about(
            "comparison of the answer with the gold answers: judge (an exact match needs no "
            "verdict), cascade (an answer is right or wrong by rules, or a judge decides), exact, "
            "f1>=x or substring",
            "TruthRL, section 3.2 and Table 5: judge",
            pattern=rf"^({'|'.join(_VERIFIERS)}|{_F1_AT_LEAST.pattern})$",
        ),
    ] = "judge"
    scheme: Annotated[
        Scheme,
        about(
            "rewards of correct, uncertain and incorrect answers: ternary 1, 0, −1; binary 1, "
            "−1, −1; geometric (FaithRL) y0, 0, −x0, and on a row with answerable=false −x0, y0, "
            "−x0",
            "TruthRL, section 3.2: ternary",
        ),
    ] = "ternary"
    knowledge_enhanced: Annotated[
        bool,
        about(
            "for out-of-knowledge questions, only an abstention is correct",
            "TruthRL, section 3.2, Table 3",
        ),
    ] = False
    box: Annotated[
        Literal["last", "first"],
        about(
            "box that is read; last: the last one outside the thinking section, with nested "
            "braces; first: the first one",
            "ours: the final answer; the authors' code reads the first box",
        ),
    ] = "last"
    unwrap_text: Annotated[
        bool,
        about(
            r"read LaTeX in the box as text: \text{Paris} as Paris, \$5 as $5, \frac{1}{2} as 1/2",
            "ours: gold answers are plain text; the authors' code reads LaTeX as it is",
        ),
    ] = True
    phrases: Annotated[
        tuple[str, ...],
        about(
            "texts that count as an abstention",
            "ours: three spellings of that in the authors' code",
            key="abstention.phrases",
            min_length=1,
        ),
    ] = ABSTENTIONS
    alone: Annotated[
        bool,
        about(
            "an abstention counts only alone or with a reason that names no answer",
            "ours: off, as in the authors' code",
            key="abstention.alone",
        ),
    ] = False
    normalizer: Annotated[
        NormalizerName, about(NORMALIZER, "TruthRL, authors' code", key="accuracy.normalizer")
    ] = "squad"
    undecided: Annotated[Undecided, about(*UNDECIDED, key="accuracy.undecided")] = "match"
    extra: Annotated[
        Literal["allow", "reject"],
        about(
            "several required answers; reject: an exact match is a list of the same items; allow: "
            "the list can contain other items",
            "TruthRL, Table 11: exactly the same items",
            key="accuracy.extra",
        ),
    ] = "reject"
    name: str = "outcome"
    scope: Literal["rollout"] = "rollout"
    correct_rate: Annotated[
        float,
        about(_RATE.format("x0", "correct"), _UNSET, key="geometric.correct_rate", ge=0, le=1),
    ] = 0.0
    wrong_rate: Annotated[
        float, about(_RATE.format("y0", "wrong"), _UNSET, key="geometric.wrong_rate", ge=0, le=1)
    ] = 0.0

    def __post_init__(self) -> None:
        if self.verifier not in _VERIFIERS and not _F1_AT_LEAST.fullmatch(self.verifier):
            raise SettingError(
                f"verifier must be {', '.join(_VERIFIERS)} or f1>=x with x from 0 to 1, "
                f"found {self.verifier!r}"
            )
        rates = {"correct": self.correct_rate, "wrong": self.wrong_rate}
        for name, rate in rates.items():
            if self.scheme == "geometric" and not rate > 0:
                raise SettingError(
                    f"setting geometric.{name}_rate: missing: scheme=geometric requires the share "
                    f"of {name} answers of the initial policy, a number above 0. Measure it with "
                    "rag-rewards evaluate --metrics truthfulness"
                )

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.needs_of(rollout, self.answer(rollout))

    def needs_of(self, rollout: Rollout, answer: str | None) -> list[Need]:
        """Return the verdict that an answer needs, if no rule decides its truth value."""
        if not self.correctness.can_ask or answer is None or self._must_abstain(rollout):
            return []
        if self.is_decided:
            is_judged = self.decide(rollout, answer).is_judged
        else:
            is_judged = self._truth_by_rule(rollout, answer) is None
        return [self.correctness.verdict_need(rollout, answer)] if is_judged else []

    @cached_property
    def correctness(self) -> Correctness:
        """How the verifier decides on an answer that is no abstention."""
        metric, _, _ = self.verifier.partition(">=")
        return Correctness(
            metric,  # type: ignore[arg-type]
            self.undecided,
            self.extra,
            self.name,
            asks="outcome",
            normalize=self.normalize,
        )

    @cached_property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        return self.correctness.is_decided

    def answer(self, rollout: Rollout) -> str | None:
        """Return the content of the box, or None if there is no box."""
        response = rollout.parsed
        content = first_box(response.text) if self.box == "first" else last_box(response.visible)
        return plain_latex(content) if content and self.unwrap_text else content

    def score(self, rollout: Rollout) -> Score:
        answer = self.answer(rollout)
        unanswerable = self.scheme == "geometric" and self._must_abstain(rollout)
        if unanswerable:
            text, explanation = answer or "", None
            abstains = text.strip() and self._abstains(rollout, text, (), phrase(text))
            truth: Truth = "uncertain" if abstains else "incorrect"
        else:
            truth, explanation = self.verify(rollout, answer)
        enhanced = False
        if self.knowledge_enhanced:
            if rollout.out_of_knowledge is None:
                raise DataError(
                    "missing: knowledge_enhanced requires this label", "out_of_knowledge"
                )
            enhanced = rollout.out_of_knowledge
        details: dict[str, Any] = {
            "answer": answer,
            "truth": truth,
            "refused": truth == "uncertain",
        }
        if explanation:
            details |= explanation.details
        is_right = truth == ("uncertain" if unanswerable else "correct")
        reward = self._reward(truth, abstain=enhanced or unanswerable)
        return Score(reward, correct=float(is_right), details=details)

    def _reward(self, truth: Truth, *, abstain: bool) -> float:
        if self.scheme == "geometric":
            return geometric_reward(truth, self.correct_rate, self.wrong_rate, abstain=abstain)
        return outcome_reward(truth, self.scheme, enhanced=abstain)

    def _must_abstain(self, rollout: Rollout) -> bool:
        return self.scheme == "geometric" and rollout.answerable is False

    def verify(self, rollout: Rollout, answer: str | None) -> tuple[Truth, Decision | None]:
        """Return the truth value of an answer, and its decision if `matching.decide` decides.

        answer  None for a response without a box
        """
        if self.is_decided:
            decision = self.decide(rollout, answer)
            if decision is _DECISIONS["uncertain"]:
                return "uncertain", decision
            is_right = decision.is_right(rollout, self.name)
            return ("correct" if is_right else "incorrect"), decision
        truth = self._truth_by_rule(rollout, answer)
        if truth or answer is None:
            return truth or "incorrect", None
        value = self.correctness.value_of(rollout, answer)
        return ("correct" if value >= self._least_value else "incorrect"), None

    @cached_property
    def _least_value(self) -> float:
        """The lowest value of a correct answer."""
        return float(self.verifier.partition(">=")[2] or 1)

    def decide(self, rollout: Rollout, answer: str | None) -> Decision:
        """Return the decision on an answer."""
        truth = self._truth_by_rule(rollout, answer)
        if truth:
            return _DECISIONS[truth]
        return self.correctness.decide(rollout, answer)

    def _truth_by_rule(self, rollout: Rollout, answer: str | None) -> Truth | None:
        """Return the truth value if no verifier other than an exact match is needed, else None."""
        required = rollout.gold
        if answer is None or not answer.strip():
            return "incorrect"
        flat = required[0] if len(required) == 1 else [a for aliases in required for a in aliases]
        text = phrase(answer)
        if self._abstains(rollout, answer, flat, text):
            return "uncertain"
        if not _has_letter(text) and not _is_symbol(text, flat) and any(map(_has_letter, flat)):
            return "incorrect"  # the answer contains nothing that a judge could compare
        if _INVALID in text:
            is_answer = not self.alone or text.strip(EDGES) == _INVALID
            is_gold = is_answer and any(_INVALID in alias.lower() for alias in flat)
            return "correct" if is_gold else "incorrect"
        if self.is_decided or self.verifier not in ("judge", "exact"):
            return None
        if self._is_exact(required, answer) and self._is_accepted(rollout, answer):
            return "correct"
        return "incorrect" if self.verifier == "exact" else None

    def _is_exact(self, required: Required, answer: str) -> bool:
        if any("\\" in "".join(aliases) for aliases in required):
            required = tuple((*each, *map(plain_latex, each)) for each in required)
        return self._exact.match(required, answer, self.normalize(answer)) == 1.0

    @cached_property
    def _exact(self) -> Correctness:
        return Correctness("exact", extra=self.extra, normalize=self.normalize)

    def _is_accepted(self, rollout: Rollout, answer: str) -> bool:
        """Return whether an exact match needs no verdict of a judge."""
        return self.undecided == "match" or self._exact.decide(rollout, answer).value == "right"

    def _abstains(self, rollout: Rollout, answer: str, golds: Sequence[str], text: str) -> bool:
        """Return whether an answer, which is `text` in the form of phrases, is an abstention."""
        if contains_phrase(text, self._phrases, golds, alone=self.alone):
            return True
        question = rollout.question or ""
        return self.alone and is_explained_abstention(answer, self._phrases, golds, question)

    @cached_property
    def _phrases(self) -> tuple[str, ...]:
        return tuple(map(phrase, self.phrases))

    @property
    def normalize(self) -> Normalizer:
        return normalizer(
            self.normalizer,
            spellings=self.verifier == "exact",
        )


def _has_letter(text: str) -> bool:
    return text[:1].isalnum() or any(map(str.isalnum, text))


def _is_symbol(text: str, aliases: Sequence[str]) -> bool:
    """Return whether a text without letters is a gold answer without letters, as an emoji."""
    return any(phrase(alias) in (text, text.strip(EDGES)) for alias in aliases)


@dataclass(frozen=True)
@check_choices
class Reasoning(RolloutReward):
    """A judge's verdict, 0 or 1, on the reasoning of the whole response.

    The judge gets the question, the gold answers and the response with its thinking, as in the
    examples of the authors' prompt. A blank response gets 0 without a verdict.

    Raises DataError for a row without the verdict. Source: TruthRL, section 4.6 and Table 12.
    """

    name: str = "reasoning"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        response = rollout.parsed.text
        if not response.strip():
            return []
        text, time = rollout.question or "", rollout.query_time
        gold = references_of(rollout)
        question = JudgeQuestion("reasoning", text, response, gold, query_time=time)
        return [VerdictNeed(self.name, (question,))]

    def score(self, rollout: Rollout) -> Score:
        return Score(self.value_of(rollout))

    def value_of(self, rollout: Rollout) -> float:
        """Return the verdict on the reasoning of a response, 0 or 1."""
        if not rollout.parsed.text.strip():
            return 0.0
        return float(VerdictNeed(self.name).read(rollout))

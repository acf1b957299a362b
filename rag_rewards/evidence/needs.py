"""Needs: the model outputs that a reward requires for a rollout.

`needs(rollout)` of a reward returns them. Evidence of the rollout meets a need; otherwise a model
of the kind `model_kind` provides it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rag_rewards.errors import DataError, shorten
from rag_rewards.evidence.protocols import EntityQuestion, JudgeQuestion
from rag_rewards.rollout import Rollout
from rag_rewards.text.sections import Tags
from rag_rewards.turns.trajectory import READING, Reading

ModelKind = Literal["policy", "entailment", "similarity", "judge"]
"""The four kinds of models."""
Baseline = Literal["previous", "empty", "random"]
"""What the likelihood of an answer after a turn is compared with."""


@dataclass(frozen=True)
class LogProbsNeed:
    """Token log-probabilities of the response, with all documents and without each of these."""

    model_kind: ClassVar[ModelKind] = "policy"
    without: tuple[str, ...]

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.logprobs is not None and all(
            values_without(rollout, label) is not None for label in self.without
        )


@dataclass(frozen=True)
class MaskedAnswersNeed:
    """LEAR's answer from a context in which everything except one part is masked."""

    model_kind: ClassVar[ModelKind] = "policy"
    part: str  # "rationale" or "evidence"
    temperature: float = 0.0
    max_tokens: int = 64
    tags: Tags | None = field(default=None, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return getattr(rollout.masked_answers, self.part, None) is not None


@dataclass(frozen=True)
class MaskedLogProbsNeed:
    """Log-probabilities of each gold alias after one of LEAR's contexts."""

    model_kind: ClassVar[ModelKind] = "policy"
    part: str  # "rationale", "evidence" or "full"
    tags: Tags | None = field(default=None, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return getattr(rollout.masked_logprobs, self.part, None) is not None


@dataclass(frozen=True)
class TurnLogProbsNeed:
    """Log-probabilities of the gold aliases before and after the turns of a search agent.

    turns     number of turns
    baseline  `previous`: after the prompt and after each turn but the last one; `empty`: also as if
              the search of a turn had no hits; `random`: also with results of other prompts
    draws     with baseline=random, number of prompts whose results replace those of a turn
    template  text between a turn and the answer, see `evidence.answer_template`
    aliases   `first`: only the first alias of each required answer
    reading   how the turns are read
    """

    model_kind: ClassVar[ModelKind] = "policy"
    turns: int
    baseline: Baseline = "previous"
    draws: int = 0
    template: str = "igpo"
    aliases: Literal["first", "all"] = "all"
    reading: Reading = field(default=READING, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        evidence = rollout.turn_logprobs
        if evidence is None or self.baseline == "previous":
            return evidence is not None
        return getattr(evidence, self.baseline) is not None


@dataclass(frozen=True)
class EntailmentNeed:
    """The probability that the premise entails the hypothesis."""

    model_kind: ClassVar[ModelKind] = "entailment"
    premise: str
    hypothesis: str

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.entailment(self.premise, self.hypothesis) is not None


@dataclass(frozen=True)
class ContradictionNeed:
    """The probability that the premise contradicts the hypothesis."""

    model_kind: ClassVar[ModelKind] = "entailment"
    premise: str
    hypothesis: str

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.contradiction(self.premise, self.hypothesis) is not None


@dataclass(frozen=True)
class SimilarityNeed:
    """The similarity of a text to a reference."""

    model_kind: ClassVar[ModelKind] = "similarity"
    text: str
    reference: str

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.similarity_to(self.text, self.reference) is not None


@dataclass(frozen=True)
class VerdictNeed:
    """The verdict of a judge on a component: 1 if the answer to any of the questions is 1."""

    model_kind: ClassVar[ModelKind] = "judge"
    component: str
    questions: tuple[JudgeQuestion, ...] = field(default=(), compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.verdict(self.component) is not None


@dataclass(frozen=True)
class EntitiesNeed:
    """The names that a response states for these placeholders."""

    model_kind: ClassVar[ModelKind] = "judge"
    placeholders: tuple[str, ...]
    question: EntityQuestion | None = field(default=None, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.entities is not None and all(
            placeholder in rollout.entities for placeholder in self.placeholders
        )


Need = (
    LogProbsNeed
    | MaskedAnswersNeed
    | MaskedLogProbsNeed
    | TurnLogProbsNeed
    | EntailmentNeed
    | ContradictionNeed
    | SimilarityNeed
    | VerdictNeed
    | EntitiesNeed
)


def unmet(need: Need) -> DataError:
    """Return the error for an unmet need: the missing field, and how to add it."""
    if isinstance(need, LogProbsNeed):
        parts = "`full`" + "".join(f", `without.{label}`" for label in need.without)
        return DataError(
            f"missing; add {parts}, with one value per response token, or set the option model",
            "logprobs",
        )
    if isinstance(need, MaskedAnswersNeed):
        return DataError(
            "missing; add the answer from the masked context, or set the option model",
            f"masked_answers.{need.part}",
        )
    if isinstance(need, MaskedLogProbsNeed):
        return DataError(
            "missing; add one list per gold alias, or set the option model",
            f"masked_logprobs.{need.part}",
        )
    if isinstance(need, TurnLogProbsNeed):
        parts = "`prior` and `after`, with one list per gold alias"
        if need.baseline != "previous":
            parts = f"`{need.baseline}`, with an entry for each turn but the last one"
        return DataError(f"missing; add {parts}, or set the option model", "turn_logprobs")
    if isinstance(need, EntailmentNeed):
        return DataError(
            f"no entry for premise {shorten(need.premise, 60)!r} and hypothesis "
            f"{shorten(need.hypothesis, 60)!r}; add it, set the option nli to an entailment "
            "model, or set citation.judge_by=gold if the recipe has this setting",
            "nli",
        )
    if isinstance(need, ContradictionNeed):
        return DataError(
            f"no entry with `contradiction` for premise {shorten(need.premise, 60)!r} and "
            f"hypothesis {shorten(need.hypothesis, 60)!r}; add it, or set the option nli to a "
            "model with the label contradiction",
            "nli",
        )
    if isinstance(need, EntitiesNeed):
        names = ", ".join(need.placeholders)
        return DataError(
            f"missing; add the name that the response states for each of {names}, or null, or set "
            "the option judge",
            "entities",
        )
    if isinstance(need, SimilarityNeed):
        text = shorten(need.text, 60)
        return DataError(
            f"no entry for text {text!r}; add it, or set the option similarity", "similarity"
        )
    return DataError(
        "missing; add the verdict of a judge (0 or 1), set the option judge, or choose a setting "
        "without a judge",
        f"verdicts.{need.component}",
    )


def values_without(rollout: Rollout, label: str) -> tuple[float, ...] | None:
    """Return the log-probabilities without one document, None if the evidence has none.

    The evidence can refer to the document by its id or by its label.
    """
    without = rollout.logprobs.without if rollout.logprobs else {}
    if (values := without.get(label)) is not None:
        return values
    for reference, values in without.items():
        if values is not None and rollout.label_of(reference) == label:
            return values
    return None

"""Needs: what a reward must know about a rollout that only a model can say.

A reward's `needs(rollout)` lists them; evidence on the rollout answers them. A need knows whether
the rollout already answers it, which kind of model it asks, and how to say what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rag_rewards.errors import DataError
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.rollout import Rollout
from rag_rewards.text.sections import Tags

ModelKind = Literal["policy", "entailment", "similarity", "judge"]


@dataclass(frozen=True)
class LogProbsNeed:
    """Token log-probabilities of the response, in full and without each of these documents."""

    model_kind: ClassVar[ModelKind] = "policy"
    without: tuple[str, ...]

    def is_met(self, rollout: Rollout) -> bool:
        known = rollout.logprobs
        return known is not None and all(
            values_without(rollout, label) is not None for label in self.without
        )


@dataclass(frozen=True)
class MaskedAnswersNeed:
    """LEAR's answer from a context in which all but one part is masked."""

    model_kind: ClassVar[ModelKind] = "policy"
    part: str  # "rationale" or "evidence"
    temperature: float = 0.0
    max_tokens: int = 64
    tags: Tags | None = field(default=None, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return getattr(rollout.masked_answers, self.part, None) is not None


@dataclass(frozen=True)
class MaskedLogProbsNeed:
    """Log-probabilities of every gold alias under one of LEAR's contexts."""

    model_kind: ClassVar[ModelKind] = "policy"
    part: str  # "rationale", "evidence" or "full"
    tags: Tags | None = field(default=None, compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return getattr(rollout.masked_logprobs, self.part, None) is not None


@dataclass(frozen=True)
class EntailmentNeed:
    """P(premise entails hypothesis)."""

    model_kind: ClassVar[ModelKind] = "entailment"
    premise: str
    hypothesis: str

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.entailment(self.premise, self.hypothesis) is not None


@dataclass(frozen=True)
class SimilarityNeed:
    """Similarity of a text to a reference."""

    model_kind: ClassVar[ModelKind] = "similarity"
    text: str
    reference: str

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.similarity_to(self.text, self.reference) is not None


@dataclass(frozen=True)
class VerdictNeed:
    """A judge's 0 or 1 on a component: 1 where any of the questions is answered by 1."""

    model_kind: ClassVar[ModelKind] = "judge"
    component: str
    questions: tuple[JudgeQuestion, ...] = field(default=(), compare=False, repr=False)

    def is_met(self, rollout: Rollout) -> bool:
        return rollout.verdict(self.component) is not None


Need = (
    LogProbsNeed
    | MaskedAnswersNeed
    | MaskedLogProbsNeed
    | EntailmentNeed
    | SimilarityNeed
    | VerdictNeed
)


def unmet(need: Need) -> DataError:
    """The error for a need that nothing answers: which field is missing, and the way out."""
    if isinstance(need, LogProbsNeed):
        parts = "`full`" + "".join(f", `without.{label}`" for label in need.without)
        return DataError(f"missing; needed are {parts}, one value per response token", "logprobs")
    if isinstance(need, MaskedAnswersNeed):
        return DataError(
            "missing; the answer from the masked context", f"masked_answers.{need.part}"
        )
    if isinstance(need, MaskedLogProbsNeed):
        return DataError("missing; one list per gold alias", f"masked_logprobs.{need.part}")
    if isinstance(need, EntailmentNeed):
        return DataError(
            f"no entry for premise {_short(need.premise)} and hypothesis "
            f"{_short(need.hypothesis)}; add it, or set citation.judge_by=gold where the recipe "
            "has it",
            "nli",
        )
    if isinstance(need, SimilarityNeed):
        return DataError(f"no entry for text {_short(need.text)}", "similarity")
    return DataError(
        "missing; a judge's 0 or 1, or choose a setting that needs no judge",
        f"verdicts.{need.component}",
    )


def values_without(rollout: Rollout, label: str) -> tuple[float, ...] | None:
    """Log-probabilities with one document left out; evidence may name it by id or label."""
    known = rollout.logprobs.without if rollout.logprobs else {}
    if (values := known.get(label)) is not None:
        return values
    for reference, values in known.items():
        if values is not None and rollout.label_of(reference) == label:
            return values
    return None


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 60 else flat[:57] + "...")

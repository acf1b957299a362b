"""The options of `select`: which questions to select, and which training set to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.output_check import refuse_overwriting_with_card
from rag_rewards.files.version import sha256
from rag_rewards.loading import RecipeSource
from rag_rewards.recipe_object import Recipe
from rag_rewards.selection.models import Purpose
from rag_rewards.selection.rules import Likelihood
from rag_rewards.selection.run import CorrectnessOptions, RunOptions
from rag_rewards.selection.sampling import SamplingOptions
from rag_rewards.selection.training_sets import ChatMaker, Style, TrainingSetKind
from rag_rewards.settings import did_you_mean


@dataclass(frozen=True, kw_only=True)
class SelectionCriteria(CorrectnessOptions):
    """Which questions to select."""

    std_of: str = "S"
    """Quantity for --min-std: S (log-likelihood) or E (component evidential_contribution)."""
    min_std: float | None = None
    """Keep groups whose standard deviation of --std-of is greater than this value, in nats."""
    min_spread: float | None = None
    """Keep groups whose rewards differ by more than this value. 0 drops groups of equal rewards."""
    min_samples: int = 1
    """Keep groups with at least this number of responses."""
    unique: bool = False
    """Keep each question once, even if its documents differ."""
    exclude: str | None = None
    """Exclude the questions of this file."""
    sample: int | None = None
    """Sample this number of questions."""
    seed: int = 0
    """Random seed of --sample and of --model."""


@dataclass(frozen=True, kw_only=True)
class TrainingSetOptions:
    """Which training set to write."""

    make: str | None = None
    """Write a training set for this method: r-tuning, rft, dpo, sft, trust-sft or trust-dpo (see
    docs/selection.md)."""
    style: str = "direct"
    """Target texts of sft: the gold answer with a prompt that requests only the answer (direct) or
    with the prompt of the row (gold), a correct response (reasoning), or a response from gold data
    and a rationale (rationale)."""
    sections: str | None = None
    """With --style reasoning, keep only these sections of the response, such as reason,extract."""
    prompt: str | None = None
    """With --style reasoning, use this prompt of the recipe in place of the prompt of the row."""
    texts: int = 1
    """Number of rationales or responses that --model writes from the gold data of a question."""
    temperature: float = 1.0
    """Sampling temperature of these texts."""
    max_tokens: int = 1024
    """Maximum number of tokens of such a text."""
    rollouts: bool = False
    """Write all rollouts of the selected questions instead of one row per question."""


@dataclass(frozen=True, kw_only=True)
class SelectOptions(SelectionCriteria, TrainingSetOptions, RunOptions):
    """The options of `select`. `passes` are ranges of pass rates as text, see `window`.

    Raises UsageError when options contradict each other, and when an input would be overwritten.
    """

    passes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, value, names in (
            ("likelihood", self.std_of, get_args(Likelihood)),
            ("training set", self.make or "sft", get_args(TrainingSetKind)),
            ("style", self.style, get_args(Style)),
        ):
            if value not in names:
                raise UsageError(
                    f"unknown {kind} {value!r}{did_you_mean(value, names)}; choose from "
                    f"{', '.join(names)}"
                )
        if self.rollouts and self.make:
            raise OptionError(
                "{rollouts} copies rows and {make} writes other rows: use one of them"
            )
        self._check_models()
        if self.sample is not None and self.sample < 1:
            raise OptionError("{sample} must be at least 1, found {value}", value=self.sample)
        refuse_overwriting_with_card({"output": self.output}, (self.source, self.exclude))

    def _check_models(self) -> None:
        if self.style != "direct" and self.make != "sft":
            raise OptionError("{style} describes the target texts of sft: set {make} sft")
        if self.style != "reasoning" and (self.sections or self.prompt):
            raise OptionError(
                "{sections} and {prompt} change sampled responses: set {style} reasoning"
            )
        if self.sections is not None and not self.section_names:
            raise OptionError(
                "{sections} {value!r} contains no name: name the sections to keep, such as "
                "reason,extract",
                value=self.sections,
            )
        if self.purpose == "rationale" and self.recipe is None:
            raise OptionError(
                "{style} rationale requires {recipe}, which assembles and scores the responses"
            )
        if self.models.model and not self.purpose:
            raise OptionError(
                "{model} writes texts from gold data: set {make} trust-sft or trust-dpo, or {make} "
                "sft with {style} rationale"
            )
        if self.models.is_set and self.scoring_recipe is None:
            raise OptionError("models provide evidence for a recipe: set {recipe}")
        _ = self.sampling  # raises for invalid values

    @property
    def purpose(self) -> Purpose:
        """What the rows are scored for."""
        if self.make in ("trust-sft", "trust-dpo"):
            return "trust-align"
        return "rationale" if self.make == "sft" and self.style == "rationale" else ""

    @property
    def scoring_recipe(self) -> RecipeSource | None:
        """The recipe that scores rows or determines the prompt of a training set."""
        is_default = self.recipe is None and self.purpose == "trust-align"
        return "ground-grpo" if is_default else self.recipe

    @property
    def sampling(self) -> SamplingOptions:
        """How a policy samples texts."""
        return SamplingOptions(
            samples=self.texts,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )

    @property
    def section_names(self) -> tuple[str, ...]:
        """The sections of the response to keep; () keeps the response."""
        return tuple(filter(None, map(str.strip, (self.sections or "").split(","))))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that affect the selection, for its signature."""
        others = {"source", "output", "recipe", "exclude", "models"}
        if not self.models.model:
            others |= {"texts", "temperature", "max_tokens"}
        others |= {name for name in ("sections", "prompt") if getattr(self, name) is None}
        names = [name for name in self.__dataclass_fields__ if name not in others]
        digest = {"exclude": sha256(self.exclude)} if self.exclude else {}
        return {name: getattr(self, name) for name in names} | digest

    def maker(self, recipe: Recipe | None) -> ChatMaker | None:
        """Return the maker of the training set with the prompt and output form of a recipe."""
        if self.make is None:
            return None
        kind: TrainingSetKind = msgspec.convert(self.make, TrainingSetKind)
        style: Style = msgspec.convert(self.style, Style)
        return ChatMaker(kind, style, recipe or "", self.seed, self.section_names, self.prompt)

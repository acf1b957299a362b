"""The models of `probe` and `select`: those of a reward, and the policy that writes texts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Policy
from rag_rewards.loading import RecipeSource, RecipeSpec, load_recipe
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.recipe_object import Recipe
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.selection.questions import ErrorLog, Question, ScoresRollouts
from rag_rewards.selection.rationales import RationaleScorer
from rag_rewards.selection.sampling import SampleFile, Sampler, SamplingOptions
from rag_rewards.selection.trust_align import (
    PROMPT_NAME,
    WRITER_PROMPT_NAME,
    GoldAnswerScorer,
    TrustAlignScorer,
    text_request,
)
from rag_rewards.selection.written_texts import TextSampler, TextScorer
from rag_rewards.signature import Signature, signature_of

K = TypeVar("K")
Purpose = Literal["", "label", "rationale", "trust-align"]
"""What the rows are scored for: the recipe, correctness, ARENA's rationales, or Trust-Align."""


@dataclass
class SelectionModels:
    """The scorer of the rollouts, and the policy that writes texts.

    For labels, the scorer uses only the recipe's reward for correctness. For rationales, the
    responses of the rows are the texts unless a policy writes them.
    """

    recipe: RecipeSource | None
    options: ModelOptions
    purpose: Purpose = ""
    scorer: Scorer | None = field(init=False, default=None)
    policy: Policy | None = field(init=False, default=None)
    row_scorer: ScoresRollouts | None = field(init=False, default=None)
    """Scores the rows of the file."""
    text_scorer: TextScorer | None = field(init=False, default=None)
    """Scores the texts of the policy."""
    signature: str = field(init=False, default="")
    """What decides whether a response is correct."""
    sampler: Sampler | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.recipe is None:
            return
        spec = RecipeSpec.of(self.recipe)
        if self.purpose == "label":
            recipe, correctness = _correctness(spec)
            scorer = Scorer(correctness, prompt=PromptOptions.of(self.options))
            self.text_scorer = TextScorer(scorer.prompt, scorer.score_each)
        else:
            scorer = Scorer.load(spec)
        self.scorer = self.row_scorer = scorer
        if self.purpose == "rationale":
            rationales = RationaleScorer(scorer)
            self.text_scorer = TextScorer(
                rationales.prompt, rationales.score_each, rationales.request
            )
        elif self.purpose == "trust-align":
            _check_trust_align(scorer)
        if self.options.is_set:  # models are loaded after the recipe was checked
            models = self.options.for_profile(hardened=spec.hardened).load()
            self.policy = models.policy
            scorer.models = replace(models, policy=None)
        self.signature = scorer.signature
        if self.purpose == "label":
            self.signature = signature_of(recipe, scorer.models.fingerprints)
        if self.purpose == "rationale" and self.policy is None:
            self.row_scorer = RationaleScorer(scorer)
        elif self.purpose == "trust-align":
            gatherer = Gatherer(scorer.models)
            self.row_scorer = measure = TrustAlignScorer(gatherer)
            prompt = scorer.recipes[0].prompts[WRITER_PROMPT_NAME]
            score_each = GoldAnswerScorer(measure).score_each
            self.text_scorer = TextScorer(prompt, score_each, text_request, keeps_responses=True)
            self.signature = str(Signature(recipe="trust-align", models=gatherer.fingerprints))

    def with_texts(
        self,
        questions: Iterable[tuple[K, Question]],
        path: str,
        sampling: SamplingOptions,
        errors: ErrorLog,
        right_at: float = 1.0,
    ) -> Generator[tuple[K, Question], None, None]:
        """Yield the questions, with texts of the policy if there is one.

        `path` stores the texts, so that the next run continues an interrupted one.
        """
        if self.policy is None or self.text_scorer is None:
            yield from questions
            return
        samples = SampleFile(path, {"model": self.policy.fingerprint, **sampling.settings})
        try:
            self.sampler = Sampler(
                self.policy, sampling, samples, self.text_scorer.prompt, self.options.truncate
            )
            yield from TextSampler(self.sampler, self.text_scorer, errors, right_at)(questions)
        finally:
            samples.close()

    def close(self) -> None:
        if self.scorer is not None:
            self.scorer.close()
        if self.policy is not None:
            asyncio.run(self.policy.close())


def _correctness(spec: RecipeSpec) -> tuple[Recipe, Recipe]:
    """Return a recipe, and its reward for correctness. Raises UsageError without one."""
    recipe = load_recipe(spec)
    if not isinstance(recipe, Recipe):
        raise UsageError(
            "a curriculum has several recipes: choose the one that decides whether a response is "
            "correct"
        )
    if recipe.correct is None:
        raise UsageError(
            f"recipe {recipe.name} does not decide whether a response is correct: choose another "
            "recipe"
        )
    return recipe, replace(recipe, components=(recipe.correct,), total=recipe.correct)


def _check_trust_align(scorer: Scorer) -> None:
    recipe = scorer.recipes[0]
    if len(scorer.recipes) > 1 or PROMPT_NAME not in recipe.prompts:
        raise OptionError(
            "{recipe} {name} has no prompt for Trust-Align: use ground-grpo", name=recipe.name
        )

"""The models of a selection: those that a recipe needs, and the policy that writes rationales."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rag_rewards.datasets.questions import ErrorLog, Question, ScoresRollouts
from rag_rewards.datasets.rationales import RationaleSampler, RationaleScorer
from rag_rewards.datasets.sampling import SampleFile, Sampler, SamplingOptions
from rag_rewards.evidence.protocols import Policy
from rag_rewards.loading import RecipeSource
from rag_rewards.model_options import ModelOptions
from rag_rewards.scorer import Scorer

K = TypeVar("K")


@dataclass
class SelectionModels:
    """The scorer of the rollouts, and the policy that writes rationales.

    With `rationales`, the responses of the rows are rationales unless a policy writes them.
    """

    recipe: RecipeSource | None
    options: ModelOptions
    rationales: bool = False
    scorer: Scorer | None = field(init=False, default=None)
    policy: Policy | None = field(init=False, default=None)
    rationale_scorer: RationaleScorer | None = field(init=False, default=None)
    sampler: Sampler | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.recipe is None:
            return
        self.scorer = Scorer.load(self.recipe)
        if self.rationales:
            self.rationale_scorer = RationaleScorer(self.scorer)
        if self.options.is_set:  # models are loaded after the recipe was checked
            models = self.options.load()
            self.policy = models.policy
            self.scorer.models = replace(models, policy=None)

    @property
    def row_scorer(self) -> ScoresRollouts | None:
        """Scores the rows of the file."""
        writes = self.policy is not None
        return self.scorer if writes or not self.rationales else self.rationale_scorer

    def with_rationales(
        self,
        questions: Iterable[tuple[K, Question]],
        path: str,
        sampling: SamplingOptions,
        errors: ErrorLog,
    ) -> Iterator[tuple[K, Question]]:
        """Yield the questions, with rationales of the policy if there is one.

        `path` stores the rationales, so that the next run continues an interrupted one.
        """
        if self.policy is None or self.rationale_scorer is None:
            yield from questions
            return
        samples = SampleFile(path, {"model": self.policy.fingerprint, **sampling.settings})
        try:
            prompt = self.rationale_scorer.recipe.prompts[self.rationale_scorer.form.prompt]
            self.sampler = Sampler(self.policy, sampling, samples, prompt, self.options.truncate)
            yield from RationaleSampler(self.sampler, self.rationale_scorer, errors)(questions)
        finally:
            samples.close()

    def close(self) -> None:
        if self.scorer is not None:
            self.scorer.close()
        if self.policy is not None:
            asyncio.run(self.policy.close())

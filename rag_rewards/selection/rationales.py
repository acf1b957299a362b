"""Responses from gold data and rationales: the training set of ARENA's SFT-reasoning.

A rationale explains how the supporting documents lead to the gold answer. It is the response of a
row, or a policy samples it. A response that is assembled from it is used only if it earns the full
reward. Source: ARENA, appendix D, Table 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_rewards.errors import OptionError, RolloutError
from rag_rewards.groups import Groups
from rag_rewards.prompts import GoldRationale, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.scorer import Scorer
from rag_rewards.selection.written_texts import question_only, without_response


@dataclass(frozen=True)
class RationaleScorer:
    """Scores rationales by the responses that are assembled from them.

    `correct` of a score is 1 if each required component of the recipe is 1, otherwise 0. The detail
    `assembled` contains the response. Raises OptionError for a recipe without rationales.
    """

    scorer: Scorer

    def __post_init__(self) -> None:
        _ = self.form

    @property
    def recipe(self) -> Recipe:
        """The recipe that scores the assembled responses."""
        return self.scorer.recipes[0]

    @property
    def form(self) -> GoldRationale:
        """How the recipe assembles a response."""
        definition = self.recipe.definition
        if len(self.scorer.recipes) > 1 or definition is None or definition.rationale is None:
            raise OptionError(
                "{recipe} {name} has no form for rationales: use arena", name=self.recipe.name
            )
        return definition.rationale

    @property
    def prompt(self) -> Prompt:
        """The prompt that requests a rationale."""
        return self.recipe.prompts[self.form.prompt]

    def request(self, row: Rollout) -> Rollout:
        """Return the question. Raises RolloutError for a row without the gold data."""
        self.form.gold(row)
        _ = row.gold_text
        return question_only(row)

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score for each rationale, or the error of a row without gold data."""
        assembled = [self._assemble(rollout) for rollout in rollouts]
        scored = iter(
            self.scorer.score_each([row for row in assembled if isinstance(row, Rollout)])
        )
        return [
            row if isinstance(row, RolloutError) else self._marked(row, rationale, next(scored))
            for row, rationale in zip(assembled, rollouts, strict=True)
        ]

    def _assemble(self, rollout: Rollout | RolloutError) -> Rollout | RolloutError:
        """Return the row with the assembled response."""
        if isinstance(rollout, RolloutError):
            return rollout
        try:
            rationale = rollout.parsed.visible
            response = self.form.assemble(self.recipe.output_form, rollout, rationale)
        except RolloutError as error:
            return error.with_traceback(None)
        return without_response(rollout, response)

    def _marked(
        self, row: Rollout, rationale: Rollout | RolloutError, score: ScoreOrError
    ) -> ScoreOrError:
        """Return the score with `correct` and the assembled response."""
        if isinstance(score, RolloutError) or isinstance(rationale, RolloutError):
            return score
        earned = all(score.components[name] == 1.0 for name in self.form.required)
        is_right = earned and bool(rationale.parsed.visible.strip())
        details = {**score.details, "assembled": row.response}
        return Score(score.value, score.components, float(is_right), details)

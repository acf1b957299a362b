"""Responses from gold data and rationales: the training set of ARENA's SFT-reasoning.

A rationale explains how the supporting documents lead to the gold answer. It is the response of a
row, or a policy samples it. A response that is assembled from it is used only if it earns the full
reward. Source: ARENA, appendix D, Table 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import msgspec

from rag_rewards.datasets.questions import ErrorLog, Question, question_of
from rag_rewards.datasets.sampling import Sampler
from rag_rewards.definition import Recipe
from rag_rewards.errors import OptionError, RolloutError, RowError
from rag_rewards.gold_rationale import GoldRationale
from rag_rewards.groups import Groups, first_error
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score, ScoreOrError
from rag_rewards.scorer import Scorer

K = TypeVar("K")


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


def without_response(row: Rollout, response: str = "") -> Rollout:
    """Return a row with another response, without the prompt and the evidence of its own."""
    evidence = dict.fromkeys(set(EVIDENCE_FIELDS) & set(row.__struct_fields__))
    return msgspec.structs.replace(
        row, response=response, prompt=None, response_prefix=None, **evidence
    )


@dataclass(frozen=True)
class RationaleSampler:
    """Samples rationales for questions from a policy.

    A question whose rationales are missing is added to `errors`. The next run samples them.
    """

    sampler: Sampler
    scorer: RationaleScorer
    errors: ErrorLog

    def __call__(self, questions: Iterable[tuple[K, Question]]) -> Iterator[tuple[K, Question]]:
        """Yield each key and its question, with rationales in place of its responses."""
        options = self.sampler.options
        waiting = iter(questions)
        while batch := list(islice(waiting, max(1, options.batch // options.samples))):
            rows = [without_response(question.row) for _, question in batch]
            for (key, question), rollouts in zip(batch, self._sample(rows), strict=True):
                result = self._question(question, rollouts)
                if isinstance(result, Question):
                    yield key, result
                    continue
                for line in [each[:2] for each in question.rollouts] or [question.line]:
                    self.errors.add(*line, result)

    def _sample(self, rows: Sequence[Rollout]) -> list[list[Rollout] | RolloutError]:
        """Return the rationales for each row. A row without gold data is not sent to the policy."""
        faults = [_fault(row, self.scorer.form) for row in rows]
        usable = iter(
            self.sampler.rollouts(
                [row for row, fault in zip(rows, faults, strict=True) if fault is None]
            )
        )
        return [next(usable) if fault is None else fault for fault in faults]

    def _question(
        self, question: Question, rollouts: list[Rollout] | RolloutError
    ) -> Question | RolloutError:
        if isinstance(rollouts, RolloutError):
            return rollouts
        scores = self.scorer.score_each(rollouts)
        if (error := first_error(scores)) is not None:
            return error
        return question_of([question.line] * len(rollouts), rollouts, scores, 1.0)


def _fault(row: Rollout, form: GoldRationale) -> RolloutError | None:
    """Return the reason why a row has no gold data, None if it has them."""
    try:
        form.gold(row)
        _ = row.gold_text
    except RolloutError as error:
        return error.with_traceback(None)
    return None if row.question else RowError("missing", "question")

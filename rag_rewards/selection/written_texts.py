"""Texts that a policy writes from gold data: rationales, and responses with numbered answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.files.questions import ErrorLog, Question, ScoresRollouts, question_of
from rag_rewards.groups import first_error
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout
from rag_rewards.selection.sampling import Sampler

K = TypeVar("K")


class TextScorer(ScoresRollouts, Protocol):
    """Scores texts that were written from gold data, by the responses that contain them."""

    @property
    def prompt(self) -> Prompt:
        """The prompt that requests a text."""
        ...

    @property
    def keeps_responses(self) -> bool:
        """Whether the responses of a question are kept beside its texts."""
        ...

    def needs_text(self, row: Rollout) -> bool:
        """Return whether a text is written for a question. Raises DataError if that is unknown."""
        ...

    def check(self, row: Rollout) -> None:
        """Raise DataError for a row without the gold data."""
        ...


def without_response(row: Rollout, response: str = "") -> Rollout:
    """Return a row with another response, without the prompt and the evidence of its own."""
    evidence = dict.fromkeys(set(EVIDENCE_FIELDS) & set(row.__struct_fields__))
    return msgspec.structs.replace(
        row, response=response, prompt=None, response_prefix=None, **evidence
    )


@dataclass(frozen=True)
class TextSampler:
    """Samples texts for questions from a policy.

    A question whose texts are missing is added to `errors`. The next run samples them.
    """

    sampler: Sampler
    scorer: TextScorer
    errors: ErrorLog

    def __call__(self, questions: Iterable[tuple[K, Question]]) -> Iterator[tuple[K, Question]]:
        """Yield each key and its question with the texts among its responses."""
        options = self.sampler.options
        waiting = iter(questions)
        while batch := list(islice(waiting, max(1, options.batch // options.samples))):
            results = self._sample([question for _, question in batch])
            for (key, question), result in zip(batch, results, strict=True):
                if isinstance(result, Question):
                    yield key, result
                    continue
                for line in [each[:2] for each in question.rollouts] or [question.line]:
                    self.errors.add(*line, result)

    def _sample(self, questions: Sequence[Question]) -> list[Question | RolloutError]:
        """Return the questions with texts. A row without gold data is not sent to the policy."""
        plans = [self._plan(question) for question in questions]
        rows = [plan for plan in plans if isinstance(plan, Rollout)]
        sampled = iter(self.sampler.rollouts(rows))
        return [
            question
            if plan is None
            else plan
            if isinstance(plan, RolloutError)
            else self._with_texts(question, next(sampled))
            for question, plan in zip(questions, plans, strict=True)
        ]

    def _plan(self, question: Question) -> Rollout | RolloutError | None:
        """Return the row to sample a text for, the reason why it has no text, or None."""
        row = question.row
        try:
            if not self.scorer.needs_text(row):
                return None
            self.scorer.check(row)
        except RolloutError as error:
            return error.with_traceback(None)
        return without_response(row) if row.question else RowError("missing", "question")

    def _with_texts(
        self, question: Question, rollouts: list[Rollout] | RolloutError
    ) -> Question | RolloutError:
        if isinstance(rollouts, RolloutError):
            return rollouts
        scores = self.scorer.score_each(rollouts)
        if (error := first_error(scores)) is not None:
            return error
        texts = question_of([question.line] * len(rollouts), rollouts, scores, 1.0).rollouts
        responses = question.rollouts if self.scorer.keeps_responses else ()
        return Question(question.line, question.row, (*responses, *texts))

"""Texts that a policy writes for questions: responses, rationales, and numbered answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.groups import Groups, first_error
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, ScoreOrError
from rag_rewards.selection.questions import ErrorLog, Question, question_of
from rag_rewards.selection.sampling import Sampler

K = TypeVar("K")


@dataclass(frozen=True)
class TextScorer:
    """How the texts of a policy are requested and scored.

    prompt           requests a text for a row without a prompt
    score_each       scores the responses of a group that contain the texts
    request          returns the row for whose prompt a text is sampled, or None if a question needs
                     no text. It raises RolloutError for a row that lacks data. By default, the row
    keeps_responses  whether the responses of a question are kept beside its texts
    """

    prompt: Prompt
    score_each: Callable[[Sequence[Rollout | RolloutError], Groups], Sequence[ScoreOrError]]
    request: Callable[[Rollout], Rollout | None] = lambda row: row
    keeps_responses: bool = False


def without_response(row: Rollout, response: str = "") -> Rollout:
    """Return a row with another response, without the prompt and the evidence of its own."""
    evidence = dict.fromkeys(set(EVIDENCE_FIELDS) & set(row.__struct_fields__))
    return msgspec.structs.replace(
        row, response=response, prompt=None, response_prefix=None, **evidence
    )


def question_only(row: Rollout) -> Rollout:
    """Return a row without its prompt and response. Raises RowError if it has no question."""
    if not row.question:
        raise RowError("missing", "question")
    return without_response(row)


@dataclass(frozen=True)
class TextSampler:
    """Samples texts for questions from a policy.

    A question whose texts are missing is added to `errors`. The next run samples them.
    """

    sampler: Sampler
    scorer: TextScorer
    errors: ErrorLog
    right_at: float = 1.0

    def __call__(self, questions: Iterable[tuple[K, Question]]) -> Iterator[tuple[K, Question]]:
        """Yield each key and its question with the texts among its responses."""
        size = max(1, self.sampler.batch // self.sampler.options.samples)
        waiting = iter(questions)
        while batch := list(islice(waiting, size)):
            results = self._sample([question for _, question in batch])
            for (key, question), result in zip(batch, results, strict=True):
                if isinstance(result, Question):
                    yield key, result
                    continue
                for line in [each[:2] for each in question.rollouts] or [question.line]:
                    self.errors.add(*line, result)

    def _sample(self, questions: Sequence[Question]) -> list[Question | RolloutError]:
        """Return the questions with texts. A row that lacks data is not sent to the policy."""
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
        try:
            return self.scorer.request(question.row)
        except RolloutError as error:
            return error.with_traceback(None)

    def _with_texts(
        self, question: Question, rollouts: list[Rollout] | RolloutError
    ) -> Question | RolloutError:
        if isinstance(rollouts, RolloutError):
            return rollouts
        scores = self.scorer.score_each(rollouts, [range(len(rollouts))])
        if (error := first_error(scores)) is not None:
            return error
        lines = [question.line] * len(rollouts)
        texts = question_of(lines, rollouts, scores, self.right_at).rollouts
        responses = question.rollouts if self.scorer.keeps_responses else ()
        return Question(question.line, question.row, (*responses, *texts))

"""The sources of scores: a column, a metric, a recipe, or an entailment model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rag_rewards.calibration.claims import claim_statements, read_claim
from rag_rewards.calibration.orders import TextOrders, orders_of
from rag_rewards.calibration.samples import Result, RowBatch, valid
from rag_rewards.errors import (
    BackendError,
    DataError,
    GroupError,
    OptionError,
    RolloutError,
    RowError,
    UsageError,
    shorten,
)
from rag_rewards.evidence.exchange import call_model
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import EntailmentModel, Models
from rag_rewards.metrics.measurement import MetricNeeds, with_evidence
from rag_rewards.metrics.metric import AnswerCache, RowMetric, row_value
from rag_rewards.rollout import Score
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer
from rag_rewards.settings import did_you_mean


def score_of(value: Any, column: str) -> float | None:
    """Return a value as a finite score, or None if it is missing. A boolean is 1 or 0.

    Raises RowError for a value that is not a finite number.
    """
    if value is None:
        return None
    if isinstance(value, (bool, int, float)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise RowError(
        f"expected a finite number as the score, found {shorten(repr(value), 60)}", column
    )


@dataclass(frozen=True)
class ColumnScores:
    """The numbers of a column."""

    column: str

    @property
    def name(self) -> str:
        return self.column

    def scores(self, batch: RowBatch) -> list[Result]:
        return [self._score(columns) for columns in batch.columns]

    def _score(self, columns: dict[str, Any]) -> Result:
        try:
            return score_of(columns[self.column], self.column)
        except RolloutError as error:
            return error


@dataclass(frozen=True)
class MetricScores:
    """The value of a metric for each row.

    Raises UsageError for a metric that has no value for a single row.
    """

    metric: RowMetric
    models: Models

    def __post_init__(self) -> None:
        if self.metric.unit != "row":
            raise UsageError(
                f"{self.metric!r} has one value per {self.metric.unit}: choose a metric with a "
                "value for each row, such as em, f1, lenient or judge"
            )

    @property
    def name(self) -> str:
        return repr(self.metric)

    @cached_property
    def gatherer(self) -> Gatherer:
        """The gatherer, which requests evidence from the models."""
        return Gatherer(self.models)

    def scores(self, batch: RowBatch) -> list[Result]:
        rows = batch.rollouts
        good = [row for row in rows if not isinstance(row, RolloutError)]
        if self.models == Models():
            gathered = iter(list[ScoredRow | RolloutError](good))
        else:
            gathered = iter(self.gatherer.gather_sync(MetricNeeds([self.metric]), good))
        gauge = self.metric.gauge(AnswerCache())
        results: list[Result] = []
        for row in rows:
            try:
                numbers = gauge(with_evidence(self.metric, valid(row), next(gathered)))
            except RolloutError as error:
                results.append(error.with_traceback(None))
                continue
            results.append(row_value(self.metric, numbers))
        return results


@dataclass
class RecipeScores:
    """A score of a recipe: `correct`, `reward` or a component.

    `orders` are the responses that a judge has graded in several orders of their group, and `rows`
    is the number of rows so far.
    """

    scorer: Scorer
    score: str
    orders: list[TextOrders] = field(default_factory=list)
    rows: int = 0

    @classmethod
    def of(cls, scorer: Scorer, score: str | None) -> RecipeScores:
        """Return the chosen score of a recipe; by default `correct`, or `reward` without it.

        Raises OptionError for a score that the recipe does not have.
        """
        has_correct = any(recipe.correct for recipe in scorer.recipes)
        names = ["correct"] * has_correct + ["reward"]
        names += dict.fromkeys(n for recipe in scorer.recipes for n in recipe.component_names)
        if score is not None and score not in names:
            raise OptionError(
                "{score}: recipe {recipe} has no score {value!r}{hint}",
                recipe=scorer.reward.name,
                value=score,
                hint=did_you_mean(score, names),
            )
        return cls(scorer, score or names[0])

    @property
    def name(self) -> str:
        return f"{self.scorer.reward.name}:{self.score}"

    def scores(self, batch: RowBatch) -> list[Result]:
        rows = list(batch.rollouts)
        chunk = batch.chunk
        for group, problem in zip(chunk.groups or (), chunk.problems, strict=bool(chunk.groups)):
            for at in group if problem else ():
                rows[at] = GroupError(problem)
        rows = self.scorer.gather(rows, chunk.groups)
        if chunk.groups:
            own = orders_of(self.scorer, rows, chunk.groups)
            self.orders.extend(text._replace(row=self.rows + text.row) for text in own)
        self.rows += len(rows)
        results = self.scorer.score_each(rows, chunk.groups)
        return [r if isinstance(r, RolloutError) else self._value(r) for r in results]

    def _value(self, score: Score) -> float | None:
        if self.score == "reward":
            return score.value
        return score.correct if self.score == "correct" else score.components.get(self.score)


# --- claims --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntailmentScores:
    """P(premise entails claim) by an entailment model.

    With `by_statement`, the claim is cut into its statements, and the score is the lowest of their
    probabilities: a claim is supported if all of its statements are.
    """

    model: EntailmentModel
    by_statement: bool = False

    @property
    def name(self) -> str:
        return "nli of statements" if self.by_statement else "nli of claims"

    def scores(self, batch: RowBatch) -> list[Result]:
        pairs: list[tuple[str, str]] = []
        spans: list[range | RolloutError] = []
        for line in batch.chunk.lines:
            try:
                premise, claim = read_claim(line)
            except RolloutError as error:
                spans.append(error)
                continue
            parts = claim_statements(claim) if self.by_statement else [claim]
            spans.append(range(len(pairs), len(pairs) + len(parts)))
            pairs.extend((premise, part) for part in parts)
        values = asyncio.run(call_model(lambda: self.model.entail(pairs), len(pairs)))
        return [span if isinstance(span, RolloutError) else _lowest(values, span) for span in spans]


def _lowest(values: Sequence[Any], span: range) -> Result:
    """Return the lowest probability of a claim, or the error of a part without one."""
    for at in span:
        if isinstance(values[at], RolloutError):
            return values[at]  # type: ignore[no-any-return]
        if isinstance(values[at], BaseException):
            return DataError(str(values[at]), "claim")
    try:
        return min(_probability(values[at]) for at in span)
    except RolloutError as error:
        return error.with_traceback(None)


def _probability(value: Any) -> float:
    """Return the output of an entailment model. Raises BackendError if it is no probability."""
    number = float(value)
    if 0.0 <= number <= 1.0:
        return number
    raise BackendError(f"the entailment model returned {number}, which is not from 0 to 1", "claim")

"""The mean of a value that a scoring wrote: the reward, `correct`, or a component."""

from __future__ import annotations

from dataclasses import dataclass

from rag_rewards.errors import DataError
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.rows import ScoredRow


@dataclass(frozen=True, repr=False)
class ScoreValue(MetricBase):
    """(1/N) Σ value over the rows that have the value. The range is that of the value.

    field  `reward`, `correct`, or `components.NAME`

    A row without the value (null) is not counted. A row without the field is excluded.

    >>> ScoreValue("components.accuracy")
    components.accuracy
    """

    field: str

    reads_response = False

    @property
    def name(self) -> str:
        return self.field

    def __repr__(self) -> str:
        return self.field

    def gauge(self, cache: AnswerCache) -> Gauge:
        def measure(row: ScoredRow) -> tuple[float, ...]:
            value = self._value(row)
            return (0.0, 0.0) if value is None else (value, 1.0)

        return measure

    def _value(self, row: ScoredRow) -> float | None:
        if self.field == "reward":
            known, value = row.reward is not None or row.is_scored, row.reward
        elif self.field == "correct":
            known, value = row.correct is not None or row.is_scored, row.correct
        else:
            name = self.field.removeprefix("components.")
            components = row.components or {}
            known, value = name in components, components.get(name)
        if not known and row.components and self.field.startswith("components."):
            names = ", ".join(row.components)
            raise DataError(f"missing: the row has the components {names}", self.field)
        if not known:
            raise DataError("missing: score the rows first", self.field)
        return value

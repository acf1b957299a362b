"""Means of scored rows by training step."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rag_rewards.rollout import Score
from rag_rewards.rows import Totals

MAX_STEPS = 100_000
"""Steps whose means are kept. Rows of further steps are left out."""


class _Scored(msgspec.Struct):
    reward: float | None = None
    correct: float | None = None
    components: dict[str, float | None] | None = None
    step: int | None = None


_SCORED = msgspec.json.Decoder(_Scored)


class StepMeans:
    """The means of the reward, `correct` and the components of each training step."""

    def __init__(self) -> None:
        self._totals: dict[int, Totals] = {}

    def add_lines(self, output: bytes) -> None:
        """Add scored rows as JSON lines. Rows without a step are left out."""
        for line in output.splitlines():
            row = _SCORED.decode(line)
            if row.step is None:
                continue
            if row.step not in self._totals and len(self._totals) >= MAX_STEPS:
                continue
            score = Score(row.reward, row.components or {}, row.correct)
            self._totals.setdefault(row.step, Totals()).add(score, False)

    def means(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield each step with its means, in increasing order."""
        for step, totals in sorted(self._totals.items()):
            yield step, totals.means()

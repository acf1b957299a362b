"""Changes from the first to the last quarter of the steps of a training run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from rag_rewards.report.turn_statistics import turn_drift
from rag_rewards.training.advantages import mean, mean_std


class TrainingStep(msgspec.Struct, frozen=True):
    """Means over the rollouts of one training step, or of several adjacent steps."""

    step: int
    n: int
    values: dict[str, float | None]


class Alarm(msgspec.Struct, frozen=True):
    """A change from the first to the last quarter of the training steps."""

    name: str
    message: str


def alarms(
    steps: Sequence[TrainingStep], columns: dict[str, Any], searches: float = 0.0
) -> list[Alarm]:
    """Return the changes from the first to the last quarter of the steps.

    They are: length, tags or citations by half or more; abstentions, cut responses and groups
    without signal by 0.2 or more; a component whose mean reaches 98% of its range; a reward that
    falls by half its standard deviation. `turn_drift` describes those of search agents, where
    `searches` is the largest number of searches of a rollout.
    """
    if len(steps) < 4:
        return []
    quarter = max(len(steps) // 4, 1)
    result: list[Alarm] = []

    def means(name: str) -> tuple[float, float] | None:
        first = mean_of(step.values.get(name) for step in steps[:quarter])
        last = mean_of(step.values.get(name) for step in steps[-quarter:])
        return None if first is None or last is None else (first, last)

    for name, title in (("words", "length"), ("tags", "tags"), ("citations", "citations")):
        if (pair := means(name)) and max(pair) >= 1 and max(pair) >= 1.5 * min(pair):
            change = f"from {pair[0]:.3g} to {pair[1]:.3g}"
            result.append(Alarm(title, f"{name} per response changed {change}"))
    for name in ("abstentions and refusals", "cut at the length limit", "groups without signal"):
        if (pair := means(name)) and pair[1] - pair[0] >= 0.2:
            result.append(Alarm(name, f"increased from {pair[0]:.0%} to {pair[1]:.0%}"))
    for name in steps[0].values:
        if pair := means(name):
            result += [Alarm(*each) for each in turn_drift(name, *pair, searches)]
    for name, values in columns.items():
        if name not in ("reward", "correct") and (pair := means(name)):
            result += _saturation(name, [value for value in values if value is not None], pair)
    if (pair := means("reward")) and pair[1] < pair[0]:
        spread = mean_std([v for v in columns["reward"] if v is not None])[1]
        if pair[0] - pair[1] > 0.5 * spread > 0:
            result.append(Alarm("reward", f"decreased from {pair[0]:.3g} to {pair[1]:.3g}"))
    return result


def _saturation(name: str, values: Sequence[float], means: tuple[float, float]) -> Iterator[Alarm]:
    """Yield an alarm for a component whose mean has come close to an end of its range."""
    low, high = min(values), max(values)
    if low == high:
        return
    first, last = ((each - low) / (high - low) for each in means)
    for end, before, after in ((high, first, last), (low, 1 - first, 1 - last)):
        if after >= 0.98 and before < 0.9:
            yield Alarm(
                f"{name} saturated",
                f"the mean changed from {means[0]:.3g} to {means[1]:.3g}, and the range ends at "
                f"{end:g}: the component gives hardly any training signal",
            )


def mean_of(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present else None

"""Compare the results of two runs of the tiny world with what a paper claims.

The values are those of each seed in the list of runs of benchmarks/results/teaches/NAME.md, which
are sampled at temperature 1. Runs of the same seed have the same base model and the same questions,
so that their values are paired.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

import msgspec

TEACHES = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "teaches"
_RUN = re.compile(r"^- (.+), seed (\d+): (.+)$", re.MULTILINE)
_VALUE = re.compile(r"(.+) (-?\d+\.\d+)")
Outcome = Literal["shown", "no separation", "contradicts"]
Values = dict[tuple[str, str], dict[int, float]]
"""(run, measure) → seed → value."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs, of which one has the higher value of a measure according to the paper.

    result         name of the page in benchmarks/results/teaches, without .md
    higher, lower  names of the runs
    measure        name of a column
    lower_measure  column of the run `lower` if it is another one
    """

    result: str
    higher: str
    lower: str
    measure: str
    lower_measure: str = ""

    @property
    def differences(self) -> list[float]:
        """The differences of the runs, one per seed. Raises ValueError if a value is missing."""
        values = results(self.result)
        pairs = [(self.higher, self.measure), (self.lower, self.lower_measure or self.measure)]
        for name, measure in pairs:
            if (name, measure) not in values:
                raise ValueError(f"{self.result}: no value of {measure!r} of the run {name!r}")
        high, low = (values[pair] for pair in pairs)
        if high.keys() != low.keys() or len(high) < 2:
            raise ValueError(f"{self.result}: {self.higher!r} and {self.lower!r} need equal seeds")
        return [high[seed] - low[seed] for seed in sorted(high)]

    @property
    def outcome(self) -> Outcome:
        return outcome(self.differences)

    def __str__(self) -> str:
        mean, margin = estimate(self.differences)
        other = f" ({self.lower_measure})" if self.lower_measure else ""
        number = f"{mean:+.3f}".replace("-", "−")
        return (
            f"{self.outcome}: {self.measure}, `{self.higher}` − `{self.lower}`{other}: "
            f"{number} ± {margin:.3f}"
        )


def estimate(differences: list[float]) -> tuple[float, float]:
    """Return the mean of paired differences and two standard errors of it."""
    return fmean(differences), 2 * stdev(differences) / math.sqrt(len(differences))


def outcome(differences: list[float]) -> Outcome:
    """Compare differences, which are positive according to the paper, with two standard errors.

    >>> outcome([0.2, 0.3, 0.25]), outcome([0.2, -0.1, 0.0]), outcome([-0.2, -0.3, -0.25])
    ('shown', 'no separation', 'contradicts')
    """
    mean, margin = estimate(differences)
    if abs(mean) <= margin:
        return "no separation"
    return "shown" if mean > 0 else "contradicts"


@cache
def results(name: str) -> Values:
    """Return the values of a page. Raises ValueError if the page does not exist."""
    file = TEACHES / f"{name}.md"
    if not file.is_file():
        raise ValueError(f"{name}: no such page in benchmarks/results/teaches")
    return read(file.read_text("utf-8"))


def read(text: str) -> Values:
    """Return the values of the list of runs of a page. A value that does not exist is left out.

    >>> read("- a, b, seed 2: KL to base 0.250, reward first –")
    {('a, b', 'KL to base'): {2: 0.25}}
    """
    values: Values = {}
    for name, seed, figures in _RUN.findall(text):
        for each in figures.split(", "):
            if match := _VALUE.fullmatch(each):
                values.setdefault((name, match[1]), {})[int(seed)] = float(match[2])
    return values

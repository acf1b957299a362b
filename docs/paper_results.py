"""Compare the results of two runs of the tiny world with what a paper claims.

The values are those of each seed in benchmarks/results/teaches/NAME.json, for greedy decoding and
sampled at temperature 1. Where there is only a page, NAME.md, they are those of its list of runs,
which are sampled. Runs of the same seed have the same base model and the same questions, so that
their values are paired.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

import msgspec

TEACHES = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "teaches"
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5% quantiles of Student's t with 1 to 9 degrees of freedom, for 2 to 10 seeds."""
_RUN = re.compile(r"^- (.+), seed (\d+): (.+)$", re.MULTILINE)
_VALUE = re.compile(r"(.+) (-?\d+\.\d+)")
Outcome = Literal["shown", "no separation", "contradicts"]
Decoding = Literal["sampled", "greedy"]
Values = dict[tuple[str, str], dict[int, float]]
"""(run, measure) → seed → value."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs, of which one has the higher value of a measure according to the paper.

    result         name of the page in benchmarks/results/teaches, without .md
    higher, lower  names of the runs
    measure        name of a column
    lower_measure  column of the run `lower` if it is another one
    minus          column that is subtracted from the values of both runs
    """

    result: str
    higher: str
    lower: str
    measure: str
    lower_measure: str = ""
    minus: str = ""

    @property
    def differences(self) -> dict[Decoding, list[float]]:
        """The differences of the runs, one per seed, for each decoding that has the values.

        Raises ValueError if a sampled value is missing, or if the runs have other seeds.
        """
        stored = results(self.result)
        values: dict[Decoding, list[float]] = {"sampled": self._differences(stored["sampled"])}
        if "greedy" in stored and all(pair in stored["greedy"] for pair in self._columns):
            values["greedy"] = self._differences(stored["greedy"])
        return values

    @property
    def _columns(self) -> list[tuple[str, str]]:
        """The runs and measures of the comparison: higher, lower, and those of `minus`."""
        columns = [(self.higher, self.measure), (self.lower, self.lower_measure or self.measure)]
        return columns + [(name, self.minus) for name in (self.higher, self.lower) if self.minus]

    def _differences(self, values: Values) -> list[float]:
        for name, measure in self._columns:
            if (name, measure) not in values:
                raise ValueError(f"{self.result}: no value of {measure!r} of the run {name!r}")
        columns = [values[column] for column in self._columns]
        seeds = columns[0].keys()
        if any(each.keys() != seeds for each in columns) or not 2 <= len(seeds) <= 10:
            raise ValueError(
                f"{self.result}: {self.higher!r} and {self.lower!r} need equal seeds, 2 to 10"
            )
        signs = (1, -1, -1, 1)
        # Rounded, so that equal values have the difference 0.
        return [
            round(sum(sign * each[seed] for sign, each in zip(signs, columns, strict=False)), 9)
            for seed in sorted(seeds)
        ]

    @property
    def outcome(self) -> Outcome:
        """What both decodings show; no separation if they do not agree."""
        outcomes = {outcome(each) for each in self.differences.values()}
        return outcomes.pop() if len(outcomes) == 1 else "no separation"

    def __str__(self) -> str:
        other = f" ({self.lower_measure})" if self.lower_measure else ""
        minus = f" − {self.minus}" if self.minus else ""
        numbers = [f"{_number(each)} {name}" for name, each in self.differences.items()]
        if len(numbers) == 1:
            numbers[0] += " only"
        return (
            f"{self.outcome}: {self.measure}{minus}, `{self.higher}` − `{self.lower}`{other}: "
            f"{', '.join(numbers)}"
        )


def _number(differences: list[float]) -> str:
    mean, margin = estimate(differences)
    return f"{mean:+.3f} ± {margin:.3f}".replace("-", "−")


def estimate(differences: list[float]) -> tuple[float, float]:
    """Return the mean of 2 to 10 paired differences and half of its 95% interval (Student's t)."""
    count = len(differences)
    return fmean(differences), QUANTILES[count - 2] * stdev(differences) / math.sqrt(count)


def outcome(differences: list[float]) -> Outcome:
    """Compare differences, which are positive according to the paper, with 0.

    >>> outcome([0.2, 0.3, 0.25]), outcome([0.2, -0.1, 0.0]), outcome([-0.2, -0.3, -0.25])
    ('shown', 'no separation', 'contradicts')
    """
    mean, margin = estimate(differences)
    if abs(mean) <= margin:
        return "no separation"
    return "shown" if mean > 0 else "contradicts"


@cache
def results(name: str) -> dict[Decoding, Values]:
    """Return the values of a result. Raises ValueError if its page does not exist."""
    file = TEACHES / f"{name}.md"
    if not file.is_file():
        raise ValueError(f"{name}: no such page in benchmarks/results/teaches")
    stored = file.with_suffix(".json")
    if not stored.is_file():
        return {"sampled": read(file.read_text("utf-8"))}
    return read_stored(stored.read_text("utf-8"))


def read_stored(text: str) -> dict[Decoding, Values]:
    """Return the stored values. A value that does not exist is left out."""
    content = json.loads(text)
    values: dict[Decoding, Values] = {"sampled": {}, "greedy": {}}
    for name, runs in content["runs"].items():
        for seed, run in zip(content["seeds"], runs, strict=True):
            for decoding, by_run in values.items():
                for measure, value in run["figures"][decoding].items():
                    if value is not None:
                        by_run.setdefault((name, measure), {})[seed] = value
    return values


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

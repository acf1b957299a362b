"""Rules for the selection of questions: ranges of pass rates, other conditions, and the sample.

Source of the ranges and of the standard deviation: CTRL-RAG, appendix A (pass@8 is the
share of 8 responses that are right).
"""

from __future__ import annotations

import math
import random
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from rag_rewards.datasets.question_list import question_digest
from rag_rewards.errors import OptionError
from rag_rewards.selection.questions import Question, ScoredRollout
from rag_rewards.settings import check_choices
from rag_rewards.training.advantages import mean_std

Likelihood = Literal["S", "E"]

_WINDOW = re.compile(r"(\d+\.?\d*):(\d+\.?\d*)(?:=(\d+\.?\d*))?")


class Window(NamedTuple):
    """Pass rates from `low` to `high`, both included, and their share of the sample."""

    low: float
    high: float
    share: float | None = None

    def contains(self, rate: float) -> bool:
        return self.low <= rate <= self.high

    def __str__(self) -> str:
        share = "" if self.share is None else f"={self.share:g}"
        return f"{self.low:g}:{self.high:g}{share}"


def window(text: str) -> Window:
    """Parse `LOW:HIGH` or `LOW:HIGH=SHARE`. Raises OptionError for any other text.

    >>> window("0.1:0.875=0.9")
    Window(low=0.1, high=0.875, share=0.9)
    """
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise OptionError("{passes} expects LOW:HIGH or LOW:HIGH=SHARE, found {text!r}", text=text)
    low, high = float(match[1]), float(match[2])
    share = None if match[3] is None else float(match[3])
    if not 0 <= low <= high <= 1 or not 0 < (1 if share is None else share) <= 1:
        raise OptionError(
            "{passes} {text}: pass rates must be from 0 to 1, and a share above 0 and at most 1",
            text=text,
        )
    return Window(low, high, share)


def windows(texts: Iterable[str]) -> tuple[Window, ...]:
    """Return the windows in their order.

    Raises OptionError when windows overlap, and when only some have shares or their sum is not 1.
    """
    ranges = sorted(map(window, texts))
    for one, other in pairwise(ranges):
        if other.low <= one.high:
            raise OptionError(
                "{passes} {one} and {other} overlap: each pass rate must be in at most one range",
                one=one,
                other=other,
            )
    shares = [each.share for each in ranges if each.share is not None]
    if shares and (len(shares) < len(ranges) or abs(sum(shares) - 1) > 1e-6):
        raise OptionError("{passes}: set the shares of all ranges, with the sum 1, or of none")
    return tuple(ranges)


# --- measures ------------------------------------------------------------------------------------


def log_likelihood(rollout: ScoredRollout) -> float | None:
    """Return S = Σ log P(y_t | y_<t, q, D) of a response, in nats; None if it is unknown."""
    logprob = rollout.score.details.get("logprob")
    if isinstance(logprob, (int, float)):
        return float(logprob)
    logprobs = rollout.rollout.logprobs
    return math.fsum(logprobs.full) if logprobs is not None else None


def contribution(rollout: ScoredRollout) -> float | None:
    """Return E of a response, in nats, from its score by ctrl-rag; None if it is unknown."""
    return rollout.score.components.get("evidential_contribution")


def std_of(question: Question, likelihood: Likelihood) -> float | None:
    """Return the population standard deviation of S or E over the responses, in nats.

    None if it is unknown for a response.
    """
    measure = log_likelihood if likelihood == "S" else contribution
    values = _complete([measure(rollout) for rollout in question.rollouts])
    return mean_std(values)[1] if values else None


def spread(question: Question) -> float | None:
    """Return max − min of the rewards; None if a reward is unknown.

    A group with a spread of 0 has no training signal.
    """
    values = _complete([rollout.score.value for rollout in question.rollouts])
    return max(values) - min(values) if values else None


def _complete(values: Sequence[float | None]) -> list[float]:
    """The values, or none of them if one is unknown."""
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) else []


# --- steps ---------------------------------------------------------------------------------------


@dataclass
class SelectionStep:
    """A condition, with the number of questions before and after it."""

    name: str
    condition: Callable[[Question], bool]
    before: int = 0
    after: int = 0

    def __call__(self, question: Question) -> bool:
        self.before += 1
        passes = self.condition(question)
        self.after += passes
        return passes


@dataclass(frozen=True)
@check_choices
class Rules:
    """The conditions of a selection. `excluded` are digests of questions of other files."""

    windows: tuple[Window, ...] = ()
    min_samples: int = 1
    std_of: Likelihood = "S"
    min_std: float | None = None
    min_spread: float | None = None
    unique: bool = False
    excluded: frozenset[bytes] = frozenset()

    def steps(self) -> list[SelectionStep]:
        """Return the conditions in their order."""
        steps: list[SelectionStep] = []
        if self.min_samples > 1:
            least = self.min_samples
            steps.append(SelectionStep(f"at least {least} responses", lambda q: q.size >= least))
        if self.unique:
            steps.append(SelectionStep("unique question", _FirstOccurrence()))
        if self.excluded:
            steps.append(SelectionStep("not excluded", lambda q: digest(q) not in self.excluded))
        if self.windows:
            steps.append(SelectionStep("pass rate is known", lambda q: q.pass_rate is not None))
            name = "pass rate in " + ", ".join(f"{w.low:g}:{w.high:g}" for w in self.windows)
            steps.append(SelectionStep(name, lambda q: self.window_of(q) is not None))
        if self.min_std is not None:
            steps += _threshold(
                f"{self.std_of} of every response is known",
                f"standard deviation of {self.std_of} above {self.min_std:g}",
                lambda q: std_of(q, self.std_of),
                self.min_std,
            )
        if self.min_spread is not None:
            steps += _threshold(
                "every response has a reward",
                f"spread of the reward above {self.min_spread:g}",
                spread,
                self.min_spread,
            )
        return steps

    def window_of(self, question: Question) -> int | None:
        """Return the position of the window with its pass rate; 0 if there are no windows."""
        if not self.windows:
            return 0
        rate = question.pass_rate
        if rate is None:
            return None
        return next((i for i, each in enumerate(self.windows) if each.contains(rate)), None)


def _threshold(
    is_known: str, is_above: str, measure: Callable[[Question], float | None], least: float
) -> list[SelectionStep]:
    """Two steps: a measure of the question is known, and it is greater than a value."""
    return [
        SelectionStep(is_known, lambda q: measure(q) is not None),
        SelectionStep(is_above, lambda q: (measure(q) or 0.0) > least),
    ]


@dataclass
class _FirstOccurrence:
    """Whether a question occurs for the first time."""

    digests: set[bytes] = field(default_factory=set)

    def __call__(self, question: Question) -> bool:
        value = digest(question)
        is_new = value not in self.digests
        self.digests.add(value)
        return is_new


def digest(question: Question) -> bytes:
    """Return a digest of a question that ignores case, punctuation and articles."""
    return question_digest(question.row.question or question.name)


# --- sample --------------------------------------------------------------------------------------


def draw(
    numbers: Sequence[array[int]],
    windows: Sequence[Window],
    size: int | None,
    rng: random.Random,
) -> list[int]:
    """Return the numbers of a random sample of questions in ascending order.

    `numbers` are the questions of each window. Without a size, the sample has as many questions
    as the shares of the windows allow.

    >>> numbers = [array("q", range(10)), array("q", range(10, 13))]
    >>> windows = [Window(0.1, 0.875, 0.5), Window(1, 1, 0.5)]
    >>> len(draw(numbers, windows, None, random.Random(0)))
    6
    """
    if not windows or windows[0].share is None:
        every = sorted(number for members in numbers for number in members)
        return every if size is None else sorted(_sample(rng, every, size, "are left"))
    shares = [each.share or 0.0 for each in windows]
    if size is None:
        allowed = [len(members) / share for members, share in zip(numbers, shares, strict=True)]
        size = int(min(allowed) + 1e-9)
        if not size:
            scarce = windows[allowed.index(min(allowed))]
            raise OptionError(
                "too few questions have a pass rate in {low:g}:{high:g} for a share of {share:g}: "
                "remove this {passes}, or set other shares",
                **scarce._asdict(),
            )
    sample: list[int] = []
    for members, each, count in zip(numbers, windows, _apportion(size, shares), strict=True):
        sample += _sample(rng, members, count, f"have a pass rate in {each.low:g}:{each.high:g}")
    return sorted(sample)


def _apportion(size: int, shares: Sequence[float]) -> list[int]:
    """Integers with the sum `size` that are nearest to the shares: largest remainders first."""
    exact = [size * share for share in shares]
    counts = [int(each + 1e-9) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: size - sum(counts)]:
        counts[i] += 1
    return counts


def _sample(rng: random.Random, numbers: Sequence[int], size: int, condition: str) -> list[int]:
    if size > len(numbers):
        raise OptionError(
            "{sample} requires {size:,} questions, but only {count:,} {condition}: set a smaller "
            "{sample}",
            size=size,
            count=len(numbers),
            condition=condition,
        )
    return rng.sample(numbers, size)

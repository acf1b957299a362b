"""Which questions to train on: steps that questions pass one after the other, counted, and a draw.

Source of the windows and of the standard deviation: CTRL-RAG, implementation details (pass@8 is
the share of 8 responses that are right).
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, NamedTuple

from rag_rewards.datasets.files import Records
from rag_rewards.datasets.trials import Question, Sample
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.text.normalize import squad
from rag_rewards.training.advantages import mean_std

Likelihood = Literal["S", "E"]

_WINDOW = re.compile(r"(\d+\.?\d*):(\d+\.?\d*)(?:=(\d+\.?\d*))?")


class Window(NamedTuple):
    """Pass rates from `low` to `high`, both included, and their share of the rows to draw."""

    low: float
    high: float
    share: float | None = None

    def holds(self, rate: float) -> bool:
        return self.low <= rate <= self.high

    def __str__(self) -> str:
        share = "" if self.share is None else f"={self.share:g}"
        return f"{self.low:g}:{self.high:g}{share}"


def window(text: str) -> Window:
    """`LOW:HIGH` or `LOW:HIGH=SHARE`. UsageError for anything else.

    >>> window("0.1:0.875=0.9")
    Window(low=0.1, high=0.875, share=0.9)
    """
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise OptionError("{passes} expects LOW:HIGH or LOW:HIGH=SHARE, found {text!r}", text=text)
    low, high = float(found[1]), float(found[2])
    share = None if found[3] is None else float(found[3])
    if not 0 <= low <= high <= 1 or not 0 < (1 if share is None else share) <= 1:
        raise OptionError(
            "{passes} {text}: pass rates are 0 to 1, and a share is above 0 and at most 1",
            text=text,
        )
    return Window(low, high, share)


def windows(texts: Iterable[str]) -> tuple[Window, ...]:
    """Windows that do not overlap, all of them with shares that make 1, or none. UsageError."""
    read = sorted(map(window, texts))
    for one, other in pairwise(read):
        if other.low <= one.high:
            raise OptionError(
                "{passes} {one} and {other} overlap: a question belongs to one window",
                one=one,
                other=other,
            )
    shares = [each.share for each in read if each.share is not None]
    if shares and (len(shares) < len(read) or abs(sum(shares) - 1) > 1e-6):
        raise OptionError("{passes}: set the shares of all windows, with the sum 1, or of none")
    return tuple(read)


# --- what is measured ----------------------------------------------------------------------------


def log_likelihood(sample: Sample) -> float | None:
    """S = Σ log P(y_t | y_<t, q, D) of a response, in nats; None where it is not known."""
    known = sample.score.details.get("logprob")
    if isinstance(known, (int, float)):
        return float(known)
    logprobs = sample.rollout.logprobs
    return sum(logprobs.full) if logprobs is not None else None


def contribution(sample: Sample) -> float | None:
    """E of a response, in nats, as ctrl-rag scored it."""
    return sample.score.components.get("evidential_contribution")


def std_of(question: Question, what: Likelihood) -> float | None:
    """Population standard deviation of S or E over the responses, in nats."""
    measure = log_likelihood if what == "S" else contribution
    values = [measure(sample) for sample in question.samples]
    known = [value for value in values if value is not None]
    return mean_std(known)[1] if known and len(known) == len(values) else None


def spread(question: Question) -> float | None:
    """max − min of the rewards: 0 is a group without signal."""
    values = [sample.score.value for sample in question.samples]
    known = [value for value in values if value is not None]
    return max(known) - min(known) if known and len(known) == len(values) else None


# --- steps ---------------------------------------------------------------------------------------


@dataclass
class Step:
    """One condition, and how many questions came to it and went on."""

    name: str
    keeps: Callable[[Question], bool]
    before: int = 0
    after: int = 0

    def __call__(self, question: Question) -> bool:
        self.before += 1
        kept = self.keeps(question)
        self.after += kept
        return kept


@dataclass(frozen=True)
class Rules:
    """What a question must be like. `excluded` are digests of questions of other sets."""

    windows: tuple[Window, ...] = ()
    min_samples: int = 1
    std_of: Likelihood = "S"
    min_std: float | None = None
    min_spread: float | None = None
    unique: bool = False
    excluded: frozenset[bytes] = frozenset()

    def steps(self) -> list[Step]:
        """In the order in which questions pass them."""
        made: list[Step] = []
        if self.min_samples > 1:
            least = self.min_samples
            made.append(Step(f"at least {least} responses", lambda q: q.size >= least))
        if self.unique:
            made.append(Step("no question twice", _Unseen()))
        if self.excluded:
            made.append(Step("not excluded", lambda q: digest(q) not in self.excluded))
        if self.windows:
            made.append(Step("right or wrong is known", lambda q: q.pass_rate is not None))
            named = "pass rate in " + ", ".join(f"{w.low:g}:{w.high:g}" for w in self.windows)
            made.append(Step(named, lambda q: self.window_of(q) is not None))
        if self.min_std is not None:
            made += self._of_number(
                f"{self.std_of} of every response is known",
                f"standard deviation of {self.std_of} above {self.min_std:g}",
                lambda q: std_of(q, self.std_of),
                self.min_std,
            )
        if self.min_spread is not None:
            made += self._of_number(
                "every response has a reward",
                f"spread of the reward above {self.min_spread:g}",
                spread,
                self.min_spread,
            )
        return made

    def _of_number(
        self, known: str, above: str, measure: Callable[[Question], float | None], least: float
    ) -> list[Step]:
        return [
            Step(known, lambda q: measure(q) is not None),
            Step(above, lambda q: (measure(q) or 0.0) > least),
        ]

    def window_of(self, question: Question) -> int | None:
        """Which window holds its pass rate; 0 where there are none to choose from."""
        if not self.windows:
            return 0
        rate = question.pass_rate
        if rate is None:
            return None
        return next((i for i, each in enumerate(self.windows) if each.holds(rate)), None)


@dataclass
class _Unseen:
    """Whether a question comes for the first time; some bytes are held of each."""

    seen: set[bytes] = field(default_factory=set)

    def __call__(self, question: Question) -> bool:
        mark = digest(question)
        new = mark not in self.seen
        self.seen.add(mark)
        return new


def digest(question: Question) -> bytes:
    """By which a question is known whatever its case, punctuation and articles."""
    return _digest(question.rollout.question or question.name)


def _digest(text: str) -> bytes:
    return blake2b((squad(text) or text).encode("utf-8", "replace"), digest_size=8).digest()


def questions_in(path: str) -> frozenset[bytes]:
    """Digests of the questions of another set, to leave them out. UsageError."""
    found: set[bytes] = set()
    with Records(path) as records:
        for number, row in records:
            text = row.get("question") if isinstance(row, dict) else None
            if not isinstance(text, str):
                raise UsageError(f"{path}, row {number} has no `question` to exclude")
            found.add(_digest(text))
    return frozenset(found)


# --- the draw ------------------------------------------------------------------------------------


def draw(
    found: Sequence[array[int]],
    among: Sequence[Window],
    size: int | None,
    rng: random.Random,
) -> list[int]:
    """Numbers of the questions to keep, in their order, `size` of them where it is given.

    `found` holds the numbers in each window. With shares and no size: as many as they allow.

    >>> some = [array("q", range(10)), array("q", range(10, 13))]
    >>> len(draw(some, windows(["0.1:0.875=0.5", "1:1=0.5"]), None, random.Random(0)))
    6
    """
    if not among or among[0].share is None:
        every = sorted(number for numbers in found for number in numbers)
        return every if size is None else sorted(_drawn(rng, every, size, "are left"))
    shares = [each.share or 0.0 for each in among]
    if size is None:
        allowed = [len(numbers) / share for numbers, share in zip(found, shares, strict=True)]
        size = int(min(allowed) + 1e-9)
        if not size:
            scarce = among[allowed.index(min(allowed))]
            raise UsageError(
                f"too few questions have a pass rate in {scarce.low:g}:{scarce.high:g} for its "
                f"share of {scarce.share:g}: leave the window out, or give shares that the file has"
            )
    kept: list[int] = []
    for numbers, each, count in zip(found, among, _apportioned(size, shares), strict=True):
        kept += _drawn(rng, numbers, count, f"have a pass rate in {each.low:g}:{each.high:g}")
    return sorted(kept)


def _apportioned(size: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that make `size`, those nearest to the shares: largest remainders first."""
    exact = [size * share for share in shares]
    counts = [int(each + 1e-9) for each in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_rest[: size - sum(counts)]:
        counts[i] += 1
    return counts


def _drawn(rng: random.Random, numbers: Sequence[int], size: int, what: str) -> list[int]:
    if size > len(numbers):
        raise OptionError(
            "{sample} is {size:,} questions and {count:,} {what}: set a smaller {sample}",
            size=size,
            count=len(numbers),
            what=what,
        )
    return rng.sample(numbers, size)

"""Composition: rewards out of rewards. Each is a small value whose repr reads as the formula.

    reward = Sum(((1.0, accuracy), (0.1, Gate(format, length))))     # any Reward, any function
    scores = reward(rollouts)

A composite with a group part has group scope: it must see whole groups. A part that is not
scored (None) leaves what is made of it not scored.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import Groups, group_by_key
from rag_rewards.rollout import Rollout, Score
from rag_rewards.training.advantages import group_advantages, zscores

Scope = Literal["rollout", "group"]
Value = float | None


@runtime_checkable
class Reward(Protocol):
    """What every reward is: a batch goes in, a list of equal length comes out."""

    @property
    def name(self) -> str: ...
    @property
    def scope(self) -> Scope: ...
    def needs(self, rollout: Rollout) -> Sequence[Need]: ...
    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]: ...


class Batch:
    """Rollouts scored together: every part of a composition is computed once."""

    def __init__(self, rollouts: Iterable[Rollout], groups: Groups | None = None) -> None:
        self.rollouts = list(rollouts)
        self._groups = groups
        self._scores: dict[int, tuple[Any, list[Score]]] = {}
        self._values: dict[int, tuple[Any, list[Value]]] = {}

    def __call__(self, reward: Reward) -> list[Score]:
        found = self._scores.get(id(reward))
        if found is None:
            if isinstance(reward, (Composite, Component, CorrectOf)):
                scores = [Score(value) for value in self.values(reward)]
            else:
                scores = reward(self.rollouts)
                if len(scores) != len(self.rollouts):
                    raise UsageError(
                        f"reward {reward.name} gave {len(scores)} scores for "
                        f"{len(self.rollouts)} rollouts"
                    )
            found = self._scores[id(reward)] = (reward, scores)
        return found[1]

    def values(self, reward: Reward) -> list[Value]:
        found = self._values.get(id(reward))
        if found is None:
            if isinstance(reward, (Composite, Component, CorrectOf)):
                values = reward.values(self)
            else:
                values = [score.value for score in self(reward)]
            found = self._values[id(reward)] = (reward, values)
        return found[1]

    @functools.cached_property
    def groups(self) -> list[list[int]]:
        """The positions of the members of each group: as given, otherwise by key."""
        if self._groups is not None:
            return [list(group) for group in self._groups]
        return group_by_key(self.rollouts)


_HOLD_ONE = ("reward", "condition", "then", "single", "among")
_HOLD_MANY = ("factors", "of")


@dataclass(frozen=True, repr=False)
class Composite:
    """What the combinators share: scope and needs come from the parts, the batch from the call.

    A function of a rollout, or a batch callable, stands wherever a reward can.
    """

    def __post_init__(self) -> None:
        for name in _HOLD_ONE:
            if (part := getattr(self, name, None)) is not None:
                object.__setattr__(self, name, as_reward(part))
        for name in _HOLD_MANY:
            if (parts := getattr(self, name, None)) is not None:
                object.__setattr__(self, name, tuple(map(as_reward, parts)))
        if (terms := getattr(self, "terms", None)) is not None:
            pairs = tuple((weight, as_reward(part)) for weight, part in terms)
            object.__setattr__(self, "terms", pairs)

    @property
    def parts(self) -> tuple[Reward, ...]:
        raise NotImplementedError

    def values(self, batch: Batch) -> list[Value]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return repr(self)

    @property
    def scope(self) -> Scope:
        return "group" if any(part.scope == "group" for part in self.parts) else "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return list(dict.fromkeys(need for part in self.parts for need in part.needs(rollout)))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return Batch(rollouts)(self)


def number(value: float) -> str:
    """A number inside a formula: short, and always the same number when read again."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def formula(reward: Reward) -> str:
    """How a reward reads inside a formula: a composite by its formula, a leaf by its name."""
    return f"({reward!r})" if isinstance(reward, Sum) else getattr(reward, "name", repr(reward))


@dataclass(frozen=True, repr=False)
class Sum(Composite):
    """Σ w_i · r_i."""

    terms: tuple[tuple[float, Reward], ...]

    @property
    def parts(self) -> tuple[Reward, ...]:
        return tuple(part for _, part in self.terms)

    def __repr__(self) -> str:
        text = ""
        for weight, part in self.terms:
            size = "" if abs(weight) == 1 else f"{number(abs(weight))}·"
            minus = math.copysign(1.0, weight) < 0  # −0·cost is subtracted too
            sign = (" − " if minus else " + ") if text else ("−" if minus else "")
            text += sign + size + formula(part)
        return text or "0"

    def values(self, batch: Batch) -> list[Value]:
        weights = [weight for weight, _ in self.terms]
        columns = [batch.values(part) for part in self.parts]
        if all(weight == 1 for weight in weights):
            return [None if None in row else sum(row) for row in zip(*columns, strict=True)]
        return [
            None if None in row else sum(map(operator.mul, weights, row))
            for row in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Product(Composite):
    """Π r_i."""

    factors: tuple[Reward, ...]

    @property
    def parts(self) -> tuple[Reward, ...]:
        return self.factors

    def __repr__(self) -> str:
        return " × ".join(map(formula, self.factors))

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.factors]
        return [None if None in row else math.prod(row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, repr=False)
class Gate(Composite):
    """`then` where the condition is at least `at_least`, else `otherwise`."""

    condition: Reward
    then: Reward
    at_least: float = 1.0
    otherwise: float = 0.0

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.condition, self.then)

    def __repr__(self) -> str:
        text = f"[{formula(self.condition)} ≥ {number(self.at_least)}]·{formula(self.then)}"
        return f"{text} else {number(self.otherwise)}" if self.otherwise else text

    def values(self, batch: Batch) -> list[Value]:
        return [
            None if open_ is None else (value if open_ >= self.at_least else self.otherwise)
            for open_, value in zip(
                batch.values(self.condition), batch.values(self.then), strict=True
            )
        ]


@dataclass(frozen=True, repr=False)
class AllOnes(Composite):
    """`value` where every part is 1, else 0 (ARENA's bonus)."""

    of: tuple[Reward, ...]
    value: float
    label: str = ""

    @property
    def parts(self) -> tuple[Reward, ...]:
        return self.of

    @property
    def name(self) -> str:
        return self.label or repr(self)

    def __repr__(self) -> str:
        return f"{number(self.value)}·[{' = '.join(map(formula, self.of))} = 1]"

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        return [
            None if None in row else (self.value if row.count(1.0) == len(row) else 0.0)
            for row in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Threshold(Composite):
    """r where r > above, else 0."""

    reward: Reward
    above: float

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    def __repr__(self) -> str:
        inner = formula(self.reward)
        return f"{inner}·1[{inner} > {number(self.above)}]"

    def values(self, batch: Batch) -> list[Value]:
        return [v if v is None or v > self.above else 0.0 for v in batch.values(self.reward)]


@dataclass(frozen=True, repr=False)
class Clip(Composite):
    """r, kept between low and high."""

    reward: Reward
    low: float
    high: float

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    def __repr__(self) -> str:
        return f"clip({formula(self.reward)}, {number(self.low)}, {number(self.high)})"

    def values(self, batch: Batch) -> list[Value]:
        return [
            None if v is None else min(max(v, self.low), self.high)
            for v in batch.values(self.reward)
        ]


@dataclass(frozen=True, repr=False)
class Mean(Composite):
    """(1/n) Σ r_i."""

    of: tuple[Reward, ...]
    label: str = ""

    @property
    def parts(self) -> tuple[Reward, ...]:
        return self.of

    @property
    def name(self) -> str:
        return self.label or repr(self)

    def __repr__(self) -> str:
        return f"mean({', '.join(map(formula, self.of))})"

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        n = len(columns)
        return [None if None in row else sum(row) / n for row in zip(*columns, strict=True)]


@dataclass(frozen=True, repr=False)
class Mapped(Composite):
    """f(r_1, …, r_n) for a plain function of the parts' values; `text` is its formula."""

    function: Callable[..., float]
    of: tuple[Reward, ...]
    label: str
    text: str

    @property
    def parts(self) -> tuple[Reward, ...]:
        return self.of

    @property
    def name(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return self.text

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        return [None if None in row else self.function(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Component:
    """One named component of a reward that computes several at once."""

    of: Reward
    name: str

    @property
    def scope(self) -> Scope:
        return self.of.scope

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.of,)

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self.of.needs(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return Batch(rollouts)(self)

    def values(self, batch: Batch) -> list[Value]:
        name = self.name
        return [score.components[name] for score in batch(self.of)]


@dataclass(frozen=True)
class CorrectOf:
    """What a reward itself calls correct, 0 to 1, as a reward."""

    of: Reward
    name: str = "correct"

    @property
    def scope(self) -> Scope:
        return self.of.scope

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.of,)

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self.of.needs(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return Batch(rollouts)(self)

    def values(self, batch: Batch) -> list[Value]:
        return [score.correct for score in batch(self.of)]


# --- group scope -------------------------------------------------------------------------------


def min_max(
    values: Sequence[float],
    *,
    epsilon: float = 1e-8,
    min_spread: float = 0.0,
    no_spread: Literal["zero", "one"] = "zero",
    floor: float = 0.0,
) -> list[float]:
    """R′ = (R − min)/(max − min + ε) over a group, in [floor, 1].

    A group whose spread is at most `min_spread` is all `no_spread`. With a floor f the result
    is f + (1 − f)·R′. Source: CTRL-RAG, Eq. 14.

    >>> min_max([1.0, 1.0]), [round(v, 6) for v in min_max([0.0, 1.0, 4.0])]
    ([0.0, 0.0], [0.0, 0.25, 1.0])
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if high - low <= min_spread:
        return [1.0 if no_spread == "one" else 0.0] * len(values)
    scale = high - low + epsilon
    return [floor + (1.0 - floor) * ((value - low) / scale) for value in values]


@dataclass(frozen=True, repr=False)
class GroupMinMax(Composite):
    """Min-max scaling within the group.

    A group of one (validation) gets 1 where `single` (default: the reward itself) is above
    `single_above`, else the floor.
    `among` restricts minimum and maximum to the rollouts where that reward is positive; the
    others get 0. Members that are not scored, or not by `among`, are left out and stay so.
    """

    reward: Reward
    epsilon: float = 1e-8
    min_spread: float = 0.0
    no_spread: Literal["zero", "one"] = "zero"
    single: Reward | None = None
    single_above: float = 0.0
    floor: float = 0.0
    among: Reward | None = None
    label: str = ""

    @property
    def parts(self) -> tuple[Reward, ...]:
        return tuple(part for part in (self.reward, self.single, self.among) if part)

    @property
    def name(self) -> str:
        return self.label or repr(self)

    @property
    def scope(self) -> Scope:
        return "group"

    def __repr__(self) -> str:
        among = f" among {formula(self.among)} > 0" if self.among else ""
        said = [
            f", {name} {number(value)}"
            for name, value, default in (
                ("floor", self.floor, 0.0),
                ("min_spread", self.min_spread, 0.0),
                ("ε", self.epsilon, 1e-8),
                ("alone above", self.single_above, 0.0),
            )
            if value != default
        ]
        if self.single:
            said.append(f", alone by {formula(self.single)}")
        if self.no_spread != "zero":
            said.append(f", no_spread {self.no_spread}")
        return f"minmax({formula(self.reward)}{among}{''.join(said)})"

    def values(self, batch: Batch) -> list[Value]:
        values = batch.values(self.reward)
        gate = batch.values(self.among) if self.among else None
        single = batch.values(self.single) if self.single else values
        out: list[Value] = [
            None if v is None or (gate and gate[i] is None) else 0.0 for i, v in enumerate(values)
        ]
        for group in batch.groups:
            members = [i for i in group if out[i] is not None and (not gate or gate[i])]
            known = [value for i in members if (value := values[i]) is not None]
            if len(group) == 1 and known:
                alone = single[group[0]]
                above = None if alone is None else alone > self.single_above
                out[group[0]] = None if above is None else (1.0 if above else self.floor)
                continue
            scaled = min_max(
                known,
                epsilon=self.epsilon,
                min_spread=self.min_spread,
                no_spread=self.no_spread,
                floor=self.floor,
            )
            for i, value in zip(members, scaled, strict=True):
                out[i] = value
        return out


@dataclass(frozen=True, repr=False)
class GroupZScore(Composite):
    """(R − mean)/(std + ε) within the group, population std."""

    reward: Reward
    epsilon: float = 1e-8

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    @property
    def scope(self) -> Scope:
        return "group"

    def __repr__(self) -> str:
        epsilon = f", ε {number(self.epsilon)}" if self.epsilon != 1e-8 else ""
        return f"zscore({formula(self.reward)}{epsilon})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(batch, self.reward, lambda v: zscores(v, epsilon=self.epsilon))


@dataclass(frozen=True, repr=False)
class GroupAdvantage(Composite):
    """(R − mean)/max(std, floor) within the group, population std (LEAR's clipped std)."""

    reward: Reward
    std_floor: float = 0.1

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    @property
    def scope(self) -> Scope:
        return "group"

    def __repr__(self) -> str:
        return f"advantage({formula(self.reward)}, std ≥ {number(self.std_floor)})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(
            batch, self.reward, lambda v: group_advantages(v, std_floor=self.std_floor)
        )


def _per_group(
    batch: Batch, reward: Reward, function: Callable[[list[float]], list[float]]
) -> list[Value]:
    values = batch.values(reward)
    out: list[Value] = [None] * len(values)
    for group in batch.groups:
        members = [i for i in group if values[i] is not None]
        scaled = function([v for i in members if (v := values[i]) is not None])
        for i, value in zip(members, scaled, strict=True):
            out[i] = value
    return out


# --- one's own rewards -------------------------------------------------------------------------


@dataclass(frozen=True)
class FunctionReward:
    """A plain function of one rollout as a reward. None is "not scored"."""

    function: Callable[[Rollout], float | int | bool | Score | None]
    name: str
    scope: Scope = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._score(rollout) for rollout in rollouts]

    def _score(self, rollout: Rollout) -> Score:
        result = self.function(rollout)
        if result is None or isinstance(result, Score):
            return result or Score(None)
        try:
            return Score(float(result))
        except (TypeError, ValueError) as error:
            where = f" on rollout {rollout.id}" if rollout.id is not None else ""
            raise UsageError(
                f"reward function {self.name} gave {result!r}{where}; it must give a finite "
                "number, or None for not scored"
            ) from error


@dataclass(frozen=True)
class BatchReward:
    """A callable of a batch that is no whole Reward; what it says of scope and needs counts."""

    function: Callable[[Sequence[Rollout]], list[Score]]
    name: str
    scope: Scope = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        asks = getattr(self.function, "needs", None)
        return list(asks(rollout)) if asks else []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = list(self.function(rollouts))
        for score in scores:
            if not isinstance(score, Score):
                raise UsageError(
                    f"reward {self.name} gave {score!r}; a reward of a batch gives a Score for "
                    "each rollout"
                )
        return scores


def as_reward(reward: Any) -> Reward:
    """Anything that scores, as a Reward: a reward, a function of a rollout, a batch callable.

    >>> def short(rollout): return 1 / (1 + len(rollout.parsed.text.split()))
    >>> as_reward(short)([Rollout(response="yes")])[0].value
    0.5
    """
    if isinstance(reward, Reward):
        return reward
    if isinstance(reward, (types.FunctionType, types.BuiltinFunctionType, functools.partial)):
        function = reward.func if isinstance(reward, functools.partial) else reward
        return FunctionReward(reward, str(getattr(function, "__name__", "function")))
    if callable(reward):
        called = getattr(reward, "name", type(reward).__name__)
        return BatchReward(reward, called, getattr(reward, "scope", "rollout"))
    raise UsageError(f"{reward!r} is neither a reward nor a function of a rollout")


def weighted(*terms: tuple[float, Any]) -> Sum:
    """Σ w_i · r_i over rewards or plain functions.

    >>> def yes(rollout): return 1
    >>> weighted((0.5, yes), (-2, yes))
    0.5·yes − 2·yes
    """
    return Sum(tuple((float(weight), as_reward(part)) for weight, part in terms))


def walk(reward: Reward) -> Iterator[Reward]:
    """A reward and everything it is made of."""
    yield reward
    for part in getattr(reward, "parts", ()):
        yield from walk(part)

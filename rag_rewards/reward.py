"""The protocol of rewards, batches of rollouts, and functions as rewards."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import Groups, group_by_key
from rag_rewards.rollout import Rollout, Score

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


def walk(reward: Reward) -> Iterator[Reward]:
    """A reward and everything it is made of."""
    yield reward
    for part in getattr(reward, "parts", ()):
        yield from walk(part)

"""The protocol of rewards, batches of rollouts, and functions as rewards."""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

from rag_rewards.errors import UsageError, shorten
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import Groups, Scope, groups_of, raise_errors, rows_of
from rag_rewards.rollout import Rollout, Score, TurnEntries
from rag_rewards.settings import check_choices

Value = float | None


@runtime_checkable
class Reward(Protocol):
    """A reward: a callable that returns one score for each rollout of a batch.

    name   name of the component
    scope  `group` if the reward compares the rollouts of a group, else `rollout`
    needs  the evidence that the reward reads for a rollout
    """

    @property
    def name(self) -> str: ...
    @property
    def scope(self) -> Scope: ...
    def needs(self, rollout: Rollout) -> Sequence[Need]: ...
    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]: ...


def is_reward(value: object) -> TypeGuard[Reward]:
    """Return whether a value is a Reward, much faster than `isinstance` with a protocol."""
    return callable(value) and all(hasattr(value, name) for name in ("needs", "scope", "name"))


class RolloutReward:
    """Base of the rewards that score each rollout by itself and, by default, need no evidence.

    A subclass is a frozen dataclass with the fields `name` and `scope`, and the method `score`.
    """

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def score(self, rollout: Rollout) -> Score:
        """Return the score of one rollout."""
        raise NotImplementedError

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return list(map(self.score, rollouts))


class Batch:
    """Rollouts that are scored together. Each part of a composition is computed once.

    `groups` contains the positions of the members of each group; by default, rollouts with equal
    keys form a group. Raises UsageError for groups in which a position is missing, repeated or
    outside of the batch.
    """

    def __init__(self, rollouts: Iterable[Rollout], groups: Groups | None = None) -> None:
        self.rollouts: list[Rollout] = rows_of(rollouts, (Rollout,))
        self._groups = None if groups is None else groups_of(self.rollouts, groups)
        self._scores: dict[int, tuple[Any, list[Score]]] = {}
        self._values: dict[int, tuple[Any, list[Value]]] = {}
        self._entries: dict[int, tuple[Any, list[TurnEntries]]] = {}

    def __call__(self, reward: Reward) -> list[Score]:
        """Return the scores of a reward, in the order of the rollouts."""
        entry = self._scores.get(id(reward))
        if entry is None:
            if isinstance(reward, Composite):
                pairs = zip(self.values(reward), self.entries(reward), strict=True)
                scores = [Score(value, turns=entries) for value, entries in pairs]
            else:
                scores = self._scored(reward)
                if len(scores) != len(self.rollouts):
                    raise UsageError(
                        f"reward {reward.name} returned {len(scores)} scores for "
                        f"{len(self.rollouts)} rollouts: return one score for each rollout"
                    )
            entry = self._scores[id(reward)] = (reward, scores)
        return entry[1]

    def _scored(self, reward: Reward) -> list[Score]:
        """Call a reward. One that takes groups, such as a recipe, gets those of the batch."""
        score_each = getattr(reward, "score_each", None)
        if score_each is None or self._groups is None:
            return reward(self.rollouts)
        return raise_errors(score_each(self.rollouts, self._groups))

    def values(self, reward: Reward) -> list[Value]:
        """Return the values of a reward, in the order of the rollouts."""
        entry = self._values.get(id(reward))
        if entry is None:
            if isinstance(reward, Composite):
                values = reward.values(self)
            else:
                values = list(map(_VALUE, self(reward)))
            entry = self._values[id(reward)] = (reward, values)
        return entry[1]

    def entries(self, reward: Reward) -> list[TurnEntries]:
        """Return the turn entries of a reward, empty for a reward of the whole response."""
        entry = self._entries.get(id(reward))
        if entry is None:
            if isinstance(reward, Composite):
                entries = reward.entries(self)
            else:
                entries = list(map(_TURNS, self(reward)))
            entry = self._entries[id(reward)] = (reward, entries)
        return entry[1]

    @functools.cached_property
    def groups(self) -> Groups:
        """The positions of the members of each group."""
        return groups_of(self.rollouts) if self._groups is None else self._groups


_VALUE, _TURNS = attrgetter("value"), attrgetter("turns")


@dataclass(frozen=True, repr=False)
class Composite:
    """Base of the rewards that combine other rewards, its parts.

    The parts are the rewards in all fields, also in tuples, lists and mappings. A function of a
    rollout, or a callable of a batch, is a part if the annotation of its field contains `Reward`.
    Lists become tuples. The scope is `group` if a part has this scope, and the needs are those of
    all parts. The name is the field `label`, if there is one, or else the formula.
    """

    compares_rollouts: ClassVar[bool] = False
    """Whether the scope is `group` for any parts."""
    parts: tuple[Reward, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts: list[Reward] = []
        for each in fields(self):
            if each.name != "parts":
                value = getattr(self, each.name)
                missing = value is None and each.default is None
                declared = _REWARD.search(str(each.type)) is not None and not missing
                value = _with_rewards(value, declared, parts)
                object.__setattr__(self, each.name, value)
        object.__setattr__(self, "parts", tuple(parts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(part.name for part in self.parts)})"

    def values(self, batch: Batch) -> list[Value]:
        raise NotImplementedError

    def entries(self, batch: Batch) -> list[TurnEntries]:
        """Return the turn entries of each rollout. By default, the value is at the last turn."""
        return [()] * len(batch.rollouts)

    @property
    def name(self) -> str:
        return getattr(self, "label", "") or repr(self)

    @property
    def scope(self) -> Scope:
        compares = self.compares_rollouts or any(part.scope == "group" for part in self.parts)
        return "group" if compares else "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return list(dict.fromkeys(need for part in self.parts for need in part.needs(rollout)))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return Batch(rollouts)(self)


_REWARD = re.compile(r"\bReward\b")


def _with_rewards(value: Any, declared: bool, parts: list[Reward], depth: int = 0) -> Any:
    """Return the value of a field with functions as rewards, and add its rewards to `parts`.

    `declared` is whether the field contains rewards by its annotation. Other objects are then an
    error, except beside a reward, as the weight in a term of a sum.
    """
    if isinstance(value, (tuple, list)):
        members = [_with_rewards(each, declared, parts, depth + 1) for each in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if isinstance(value, Mapping):
        return {key: _with_rewards(each, declared, parts, depth + 1) for key, each in value.items()}
    if declared and (depth < 2 or callable(value)):
        value = as_reward(value)
    if not isinstance(value, type) and is_reward(value):
        parts.append(value)
    return value


class PartScore(Score, frozen=True, gc=False):
    """A score of a reward that computes several components, which can have turn entries.

    entries  entries of a component, by its name; without them, its value is at the last turn
    """

    entries: Mapping[str, TurnEntries] = {}


@dataclass(frozen=True, repr=False)
class Component(Composite):
    """One component, by its name, of a reward that computes several components.

    prefix   what the name begins with, besides the name of the component in the scores of `reward`
    default  value of a component that was not computed
    """

    reward: Reward
    component: str
    prefix: str = ""
    default: float | None = None

    def __repr__(self) -> str:
        return self.prefix + self.component

    def values(self, batch: Batch) -> list[Value]:
        values = [score.components[self.component] for score in batch(self.reward)]
        if self.default is None:
            return values
        return [self.default if value is None else value for value in values]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return [
            score.entries.get(self.component, ()) if isinstance(score, PartScore) else ()
            for score in batch(self.reward)
        ]


@dataclass(frozen=True, repr=False)
class CorrectOf(Composite):
    """The field `correct` of another reward's scores, 0 to 1, as a reward."""

    reward: Reward
    label: str = "correct"

    def __repr__(self) -> str:
        return self.label

    def values(self, batch: Batch) -> list[Value]:
        return [score.correct for score in batch(self.reward)]


@dataclass(frozen=True)
@check_choices
class FunctionReward(RolloutReward):
    """A plain function of one rollout as a reward. A result of None leaves the rollout unscored."""

    function: Callable[[Rollout], float | int | bool | Score | None] = field(repr=False)
    name: str
    scope: Scope = "rollout"

    def score(self, rollout: Rollout) -> Score:
        result = self.function(rollout)
        if result is None or isinstance(result, Score):
            return result or Score(None)
        try:
            return Score(float(result))
        except (TypeError, ValueError) as error:
            where = f" on rollout {rollout.id}" if rollout.id is not None else ""
            raise UsageError(
                f"reward function {self.name} returned {result!r}{where}: return a finite number, "
                "or None for an unscored rollout"
            ) from error


@dataclass(frozen=True)
@check_choices
class BatchReward:
    """A callable of a batch that lacks attributes of a Reward; those that it has are used."""

    function: Callable[[Sequence[Rollout]], list[Score]] = field(repr=False)
    name: str
    scope: Scope = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        needs = getattr(self.function, "needs", None)
        return list(needs(rollout)) if needs else []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = list(self.function(rollouts))
        for score in scores:
            if not isinstance(score, Score):
                raise UsageError(
                    f"reward {self.name} returned {score!r}: return a Score for each rollout"
                )
        return scores


def as_reward(reward: Any) -> Reward:
    """Return a reward, a function of a rollout, or a callable of a batch as a Reward.

    Raises UsageError for any other object.

    >>> def short(rollout): return 1 / (1 + len(rollout.parsed.text.split()))
    >>> as_reward(short)([Rollout(response="yes")])[0].value
    0.5
    """
    if is_reward(reward):
        return reward
    if isinstance(reward, (types.FunctionType, types.BuiltinFunctionType, functools.partial)):
        function = reward.func if isinstance(reward, functools.partial) else reward
        return FunctionReward(reward, str(getattr(function, "__name__", "function")))
    if callable(reward):
        name = getattr(reward, "name", type(reward).__name__)
        return BatchReward(reward, name, getattr(reward, "scope", "rollout"))
    raise UsageError(
        f"found {shorten(repr(reward), 60)} ({type(reward).__name__}), which is neither a reward "
        "nor a function of a rollout: give one of them"
    )


def walk(reward: Reward) -> Iterator[Reward]:
    """Yield a reward and all its parts, at any depth."""
    yield reward
    for part in getattr(reward, "parts", ()):
        yield from walk(part)


# --- turn entries --------------------------------------------------------------------------------
# A rollout without entries has its reward at its last turn.


def total(entries: Sequence[float | None]) -> float:
    """Return the sum of the entries. None adds nothing.

    >>> total((0.5, None, 1.0))
    1.5
    """
    return math.fsum(entry for entry in entries if entry is not None)


def scaled(entries: TurnEntries, factor: float) -> TurnEntries:
    """Return every entry times a factor.

    >>> scaled((0.5, None, 1.0), 2)
    (1.0, None, 2.0)
    """
    return tuple(None if entry is None else factor * entry for entry in entries)


def with_total(entries: TurnEntries, value: float | None) -> TurnEntries:
    """Return entries with another last one, so that their sum is a value.

    >>> with_total((0.25, None, 1.0), 0.5)
    (0.25, None, 0.25)
    """
    if not entries or value is None:
        return ()
    return (*entries[:-1], value - total(entries[:-1]))


def combined(parts: Sequence[tuple[float, TurnEntries, float | None]]) -> TurnEntries:
    """Return the sum of weighted parts, turn by turn.

    Each part is its weight, its entries and its value. A part without entries has its value at the
    last turn. The result is empty if no part has entries, if a value is None, or if the parts do
    not have the same number of turns.

    >>> combined([(1.0, (0.5, None, 1.0), 1.5), (0.5, (), 2.0)])
    (0.5, None, 2.0)
    """
    lengths = {len(entries) for _, entries, _ in parts if entries}
    if len(lengths) != 1:
        return ()
    sums: list[float | None] = [None] * lengths.pop()
    for weight, entries, value in parts:
        if value is None:
            return ()
        if not entries:
            sums[-1] = (sums[-1] or 0.0) + weight * value
        for i, entry in enumerate(entries):
            if entry is not None:
                sums[i] = (sums[i] or 0.0) + weight * entry
    return tuple(sums)

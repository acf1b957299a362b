"""A recipe: a composition with a name, named components, settings and a signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from rag_rewards.compose import (
    Batch,
    Component,
    Composite,
    CorrectOf,
    FunctionReward,
    Reward,
    Scope,
    as_reward,
    walk,
)
from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.evidence import Need
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import Settings, flatten
from rag_rewards.version import __version__

Scored = Score | RolloutError


@dataclass(frozen=True)
class Recipe:
    """Scores batches of rollouts; every Score carries components, `correct` and details.

    `total` is the reward, an expression over the components. A recipe is a Reward itself, so it
    can be a part of another composition.
    """

    name: str
    components: tuple[Reward, ...]
    total: Reward
    correct: Reward | None = None
    settings: Settings | None = None

    @property
    def scope(self) -> Scope:
        """`group` when any part must see whole groups."""
        return self.total.scope

    @property
    def equation(self) -> str:
        """The reward as a formula over its components."""
        return repr(self.total) if isinstance(self.total, Composite) else self.total.name

    @property
    def component_names(self) -> tuple[str, ...]:
        return tuple(component.name for component in self.components)

    @cached_property
    def _leaves(self) -> tuple[Reward, ...]:
        """The parts that read rollouts, each once: they hold the details."""
        leaves: dict[int, Reward] = {}
        for root in (*self.components, self.total, *([self.correct] if self.correct else ())):
            for part in walk(root):
                if not isinstance(part, (Composite, Component, CorrectOf)):
                    leaves[id(part)] = part
        return tuple(leaves.values())

    @cached_property
    def signature(self) -> str:
        """One line that reproduces the score: version, recipe, every setting that counts."""
        if self.settings is not None:
            said: dict[str, Any] = flatten(self.settings)
        else:
            said = {
                "formula": self.equation,
                "parts": [
                    leaf.name if isinstance(leaf, FunctionReward) else repr(leaf)
                    for leaf in self._leaves
                ],
            }
        text = msgspec.json.encode(said).decode()
        return f"rag-rewards {__version__} {self.name} {text}"

    def needs(self, rollout: Rollout) -> list[Need]:
        """What must be known about a rollout before it can be scored."""
        return list(dict.fromkeys(n for leaf in self._leaves for n in leaf.needs(rollout)))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Scores, in the order of the rollouts. Raises the first rollout's error, named."""
        scores = []
        for result in self.score_each(rollouts):
            if isinstance(result, RolloutError):
                raise result
            scores.append(result)
        return scores

    def score_each(
        self, rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]] | None = None
    ) -> list[Scored]:
        """As the call, with the error of each rollout that cannot be scored in its place.

        In group scope the other members of its group get a GroupError. `groups` gives the
        positions of each group's members where the rollouts' own keys do not.
        """
        batch = Batch(rollouts, groups)
        try:
            return list(self._score(batch))
        except RolloutError:
            return self._score_apart(batch)

    def _score(self, batch: Batch) -> list[Score]:
        totals = batch.values(self.total)
        names = self.component_names
        columns = zip(*[batch.values(component) for component in self.components], strict=True)
        correct = batch.values(self.correct) if self.correct else [None] * len(totals)
        details = [[score.details for score in batch(leaf)] for leaf in self._leaves]
        merged = (
            details[0] if len(details) == 1 else [_merge(row) for row in zip(*details, strict=True)]
        )
        return [
            Score(total, dict(zip(names, values, strict=True)), right, detail)
            for total, values, right, detail in zip(totals, columns, correct, merged, strict=True)
        ]

    def _score_apart(self, batch: Batch) -> list[Scored]:
        """Scores unit by unit, so that one broken rollout costs no other its score."""
        rollouts = batch.rollouts
        results: list[Scored | None] = [None] * len(rollouts)
        units = batch.groups if self.scope == "group" else [[i] for i in range(len(rollouts))]
        for unit in units:
            for i, result in zip(unit, self._score_unit([rollouts[i] for i in unit]), strict=True):
                results[i] = result
        return [result for result in results if result is not None]

    def _score_unit(self, unit: list[Rollout]) -> list[Scored]:
        try:
            return list(self._score(Batch(unit, [range(len(unit))])))
        except RolloutError as error:
            if len(unit) == 1:
                return [named(error, unit[0])]
        errors = [self._error_of(rollout) for rollout in unit]
        broken = next((e for e in errors if e), None)
        if broken is None:
            raise UsageError(f"recipe {self.name} fails on a group, but on no member of it")
        return [
            error or named(GroupError(f"its group has a member in error ({broken})"), rollout)
            for error, rollout in zip(errors, unit, strict=True)
        ]

    def _error_of(self, rollout: Rollout) -> RolloutError | None:
        try:
            self._score(Batch([rollout]))
        except RolloutError as error:
            return named(error, rollout)
        return None


def _merge(details: Iterable[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in details:
        if part:
            merged.update(part)
    return merged


def named(error: RolloutError, rollout: Rollout) -> RolloutError:
    """The error, with the id of the rollout it is about."""
    if error.row is None and rollout.id is not None:
        error.row = str(rollout.id)
    return error.with_traceback(None)


def custom(
    name: str, reward: Any, *, components: Sequence[Any] = (), correct: Any = None
) -> Recipe:
    """One's own composition as a recipe: rewards, functions of a rollout, and built-ins alike.

    >>> def brief(rollout): return 1.0 if len(rollout.parsed.text) < 40 else 0.0
    >>> custom("brief", brief)([Rollout(response="Paris")])[0].components
    {'brief': 1.0}
    """
    total = as_reward(reward)
    parts = tuple(map(as_reward, components)) or getattr(total, "parts", ()) or (total,)
    return Recipe(
        name=name,
        components=parts,
        total=total,
        correct=as_reward(correct) if correct is not None else None,
    )


@dataclass(frozen=True)
class Flip:
    """One setting that the hardened profile changes, and the attacks (by number) it closes."""

    value: Any
    closes: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Blueprint:
    """What there is to know about a recipe before it is built."""

    name: str
    summary: str
    source: str
    output: str
    settings: type[Settings]
    build: Callable[[Any], Recipe]
    fields: tuple[str, ...]
    hardened: dict[str, Flip] = field(default_factory=dict)
    loopholes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    training: tuple[str, ...] = ()

"""`custom`, which makes a recipe of a composition of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rag_rewards.compose import Mean
from rag_rewards.definition import Recipe
from rag_rewards.reward import Component, CorrectOf, Reward, as_reward, walk

R = TypeVar("R", bound=Reward)


def custom(
    name: str, reward: Any, *, components: Sequence[Any] = (), correct: Any = None
) -> Recipe:
    """Return a composition of your own as a recipe.

    `reward`, `components` and `correct` are rewards or functions of a rollout. The default
    components are the parts of the reward, and the components of the recipes among them, as in
    `arena/format`, with their `correct`, as in `arena/correct`. The default of `correct` is that of
    the first of these recipes that has one. Different components of the same name have numbers, as
    in `arena-1` and `arena-2`.

    >>> from rag_rewards import Rollout
    >>> def brief(rollout): return 1.0 if len(rollout.parsed.text) < 40 else 0.0
    >>> custom("brief", brief)([Rollout(response="Paris")])[0].components
    {'brief': 1.0}
    """
    total = as_reward(reward)
    given = tuple(map(as_reward, components))
    parts = given or getattr(total, "parts", ()) or (total,)
    inner = _distinct(part for part in walk(total) if isinstance(part, Recipe))
    decides: list[Reward] = [CorrectOf(each) for each in inner if each.correct is not None]
    if correct is not None:
        decides.insert(0, as_reward(correct))
    # The recipes come first, so that `arena-2` and `arena-2/format` are of the same recipe.
    names = _names(_distinct((*(() if given else inner), *parts)))
    named = [_named(part, names[id(part)]) for part in _distinct(parts)]
    if not given:
        named += _inner_components(inner, names)
    return Recipe(
        name=name,
        components=tuple(named),
        total=total,
        correct=decides[0] if decides else None,
    )


def _distinct(rewards: Iterable[R]) -> list[R]:
    """Return the rewards without those that equal an earlier one, and have its values."""
    distinct: list[R] = []
    for reward in rewards:
        if reward not in distinct:
            distinct.append(reward)
    return distinct


def _names(rewards: Sequence[Reward]) -> dict[int, str]:
    """Return a name for each reward by its `id`. Names that several rewards have get numbers."""
    counts = Counter(reward.name for reward in rewards)
    numbers: Counter[str] = Counter()
    names = {}
    for reward in rewards:
        numbers[reward.name] += 1
        number = f"-{numbers[reward.name]}" if counts[reward.name] > 1 else ""
        names[id(reward)] = reward.name + number
    return names


def _named(reward: Reward, name: str) -> Reward:
    """Return a reward with this name."""
    return reward if reward.name == name else Mean((reward,), label=name)


def _inner_components(recipes: Sequence[Recipe], names: Mapping[int, str]) -> Iterator[Reward]:
    """Yield the components and `correct` of recipes, with the name of the recipe before each."""
    for recipe in recipes:
        prefix = f"{names[id(recipe)]}/"
        for name in recipe.component_names:
            yield Component(recipe, name, prefix)
        if recipe.correct is not None:
            yield CorrectOf(recipe, f"{prefix}correct")

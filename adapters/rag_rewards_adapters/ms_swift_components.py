"""Components of a recipe as rewards of ms-swift, which GDPO normalizes one by one.

    register("search-r1", settings={"scheme": "format"}, components=["outcome", "format"])

is used with `--reward_funcs search-r1/outcome search-r1/format --reward_weights 1 0.2
--scale_rewards gdpo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards_adapters.component_rewards import Column, SharedPass, check_components
from rag_rewards_adapters.ms_swift import RagReward, reward_class


def component_rewards(
    name: str, components: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Callable[..., ComponentReward]]:
    """Return what ms-swift instantiates with `args=`, by `NAME/COMPONENT`. Raises UsageError."""
    recipe = _Recipe(name, components, options)
    return {f"{name}/{component}": recipe.class_of(component) for component in recipe.components}


class _Recipe:
    """The reward whose components are rewards. It is created once, and scores a batch once."""

    def __init__(self, name: str, components: Sequence[str], options: Mapping[str, Any]) -> None:
        self.arguments = (name, tuple(components), dict(options))
        self.name = name
        self.reward_class = reward_class(name, **options)
        own = self.reward_class.options
        names = own.scorer.reward.component_names
        self.components = check_components(components, names, own.std_floor)
        self.shared = SharedPass()
        self._reward: RagReward | None = None

    def reward(self, args: Any) -> RagReward:
        """Return the reward with these arguments of the trainer."""
        if self._reward is None or self._reward.args is not args:
            self._reward = self.reward_class(args)
        return self._reward

    def class_of(self, component: str) -> type[ComponentReward]:
        """Return a class whose name ms-swift logs."""
        content = {"recipe": self, "component": component, "__module__": __name__}
        return type(f"{self.name}/{component}", (ComponentReward,), content)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Recipe, self.arguments


class ComponentReward:
    """A component of a recipe as a reward of ms-swift, one value per completion."""

    recipe: _Recipe
    component: str

    def __init__(self, args: Any = None, **_: Any) -> None:
        self.args = args
        self.reward = self.recipe.reward(args)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> Column:
        """Return the values of a batch: its texts, and one list for each column."""
        recipe = self.recipe
        return recipe.shared.take(
            self.component,
            completions,
            lambda: self.reward.component_values(recipe.components, completions, **columns),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.recipe, self.component, self.args)


def _rebuild(recipe: _Recipe, component: str, args: Any) -> ComponentReward:
    """Return a reward in a process that received its pickle and has no class of its name."""
    return recipe.class_of(component)(args)

"""What a plugin file of ms-swift calls: rewards, a search engine, and the KL penalty k2.

    register("search-r1", settings={"scheme": "format"}, components=["outcome", "format"])

is used with `--reward_funcs search-r1/outcome search-r1/format --reward_weights 1 0.2
--scale_rewards gdpo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards_adapters.component_rewards import Column, SharedPass, check_components
from rag_rewards_adapters.ms_swift.reward import RagReward, reward_class
from rag_rewards_adapters.reading import Retriever, SearchTool


def register(
    name: str, *, asynchronous: bool = False, components: Sequence[str] = (), **options: Any
) -> type[RagReward]:
    """Add a recipe to `swift.rewards.orms` under a name, and return its class.

    The recipe is the one of that name, `recipe=`, or `stages=`. All options are those of RagReward.
    With `asynchronous`, the reward runs concurrently with other asynchronous rewards, which suits
    recipes that wait for a judge. With `components`, each of them is also a reward of its own,
    `NAME/COMPONENT`, for `--scale_rewards gdpo`; these rewards are never asynchronous. Raises
    UsageError and SettingError for invalid options, before the model in training is loaded.
    """
    if "recipe" not in options and "stages" not in options:
        options["recipe"] = name
    reward = reward_class(name, asynchronous=asynchronous, **options)
    from swift.rewards import orms

    orms[name] = reward
    if components:
        orms.update(component_rewards(name, components, options))
    return reward


def register_search(
    search: Retriever | str,
    *,
    dialect: str = "search-r1",
    name: str = "search",
) -> type:
    """Add a scheduler with a search engine to `multi_turns` of ms-swift, and return its class.

    search   function from a query to a list of documents (`{id?, title?, text}`), or its
             `module:name`
    dialect  the dialect in which the policy searches: the scheduler answers the first query of each
             turn with a message of the user, until a turn has no query
    name     name for `--multi_turn_scheduler`; `--max_turns` limits the turns

    Raises UsageError for a dialect without tags.
    """
    from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

    tool = SearchTool(search, dialect)

    class Search(MultiTurnScheduler):  # type: ignore[misc]
        """Answers the queries of the policy."""

        def check_finished(
            self, infer_request: Any, response_choice: Any, current_turn: int
        ) -> bool:
            if tool.query_in(response_choice.message.content or "") is None:
                return True
            return bool(super().check_finished(infer_request, response_choice, current_turn))

        def step(
            self, infer_request: Any, response_choice: Any, current_turn: int
        ) -> dict[str, Any]:
            query = tool.query_in(response_choice.message.content) or ""
            reply = {"role": "user", "content": tool.block(tool.documents(query))}
            infer_request.messages.append(reply)
            return {"infer_request": infer_request}

    multi_turns[name] = Search
    return Search


def use_k2_penalty() -> None:
    """Train with the KL penalty k2 of ARENA instead of k3, for `swift rlhf --rlhf_type grpo`.

    A plugin file calls it. `swift megatron rlhf` has other trainers and keeps k3.
    """
    from swift.trainers.trainer_factory import TrainerFactory

    TrainerFactory.TRAINER_MAPPING["grpo"] = "rag_rewards_adapters.ms_swift.k2_trainer.K2Trainer"


# --- components ----------------------------------------------------------------------------------


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

"""verl's configuration as a Scorer.

The reward manager, `compute_score` and the agent loop read the same settings, below
`reward.custom_reward_function.reward_kwargs`. On the command line:

    +reward.custom_reward_function.reward_kwargs.recipe=arena
    +reward.custom_reward_function.reward_kwargs.settings.accuracy.metric=f1
    +reward.custom_reward_function.reward_kwargs.dump=/shared/run/rollouts.jsonl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import UsageError

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.scorer import Scorer

RESERVED_NAMES = frozenset(("acc", "reward", "score", "uid", "index"))
"""Names that have a meaning in verl, so no component can have them."""


def reward_options(config: Any) -> dict[str, Any]:
    """Return the settings of the reward from a trainer's configuration. UsageError without any."""
    function = config.reward.get("custom_reward_function") or {}
    options = plain_value(function.get("reward_kwargs") or {})
    if not options:
        raise UsageError(
            "no recipe is given: set +reward.custom_reward_function.reward_kwargs.recipe=NAME"
        )
    return dict(options)


def plain_value(value: Any) -> Any:
    """Return a node of a configuration as dicts and lists, at any depth.

    >>> plain_value({"stages": ({"recipe": "lear"},)})
    {'stages': [{'recipe': 'lear'}]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain_value(item) for item in value]
    return value


def template_arguments(config: Any) -> dict[str, Any]:
    """Return the arguments of the chat template (`enable_thinking`) from the data configuration."""
    return dict(plain_value(config.get("data", {}).get("apply_chat_template_kwargs") or {}))


def response_limit(rollout: Any, prompt_tokens: int) -> int:
    """Return the greatest number of tokens of a response, from verl's configuration of rollouts.

    The engines limit the prompt and the response together to `prompt_length + response_length` and
    to `max_model_len` tokens. SGLang leaves one token of the latter free (verl,
    `async_sglang_server.py`).
    """
    length = int(rollout.response_length)
    context = int(rollout.prompt_length) + length
    if rollout.get("max_model_len") is not None:
        free = int(rollout.get("name") == "sglang")
        context = min(context, int(rollout.max_model_len) - free)
    return min(length, context - prompt_tokens)


def load_scorer(
    options: Mapping[str, Any],
    *,
    template: Mapping[str, Any] | None = None,
    models: Models | None = None,
) -> Scorer:
    """Load the scorer of these settings.

    Besides the options of `Scorer.load`, `prompt` may be the `module:name` of a Prompt, which
    describes the documents in the user's own prompts. `models` replace those of the options,
    because an agent loop has the policy. Raises UsageError also for a model that every worker
    would load.
    """
    from rag_rewards.backends.addresses import is_url
    from rag_rewards.loading import import_object, load_recipe
    from rag_rewards.rollout_dump import split_dump
    from rag_rewards.scorer import Scorer, split_options

    options, dump = split_dump(options)
    prompt = options.pop("prompt", None)
    recipe, model_options = split_options(options)
    if model_options.model and not is_url(model_options.model):
        raise UsageError(
            f"model={model_options.model} would be loaded by every reward worker: set the URL of a "
            "scoring server (model=http://HOST:PORT backend=vllm), or use the policy's own "
            "rollout engine: actor_rollout_ref.rollout.agent.default_agent_loop=rag_group"
        )
    reward = load_recipe(recipe)
    if reserved := RESERVED_NAMES.intersection(reward.component_names):
        raise UsageError(
            f"component {min(reserved)!r}: verl reserves this name; rename the component"
        )
    return Scorer(
        reward,
        model_options.load() if models is None else models,
        prompt=import_object(prompt) if prompt else None,
        template=template,
        response_limit="data.max_prompt_length or data.max_response_length",
        dump=dump,
        **model_options.prompt_options,
    )


def compares_groups(options: Mapping[str, Any]) -> bool:
    """Return whether these settings compare the rollouts of a group. Loads no model."""
    from rag_rewards.evidence.protocols import Models

    return load_scorer(options, models=Models()).scope == "group"

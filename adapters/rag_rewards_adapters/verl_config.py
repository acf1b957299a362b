"""verl's configuration as a Scorer.

The reward manager, `compute_score` and the agent loop read the same settings, below
`reward.custom_reward_function.reward_kwargs`. On the command line:

    +reward.custom_reward_function.reward_kwargs.recipe=arena
    +reward.custom_reward_function.reward_kwargs.settings.accuracy.metric=f1
    +reward.custom_reward_function.reward_kwargs.dump=/shared/run/rollouts.jsonl
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import UsageError

if TYPE_CHECKING:
    from rag_rewards.evidence.needs import ModelKind
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.scorer import Scorer

CHECKED_ROWS = 2_000
"""The number of rows of each data file that are checked before training."""
GROUP_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop=rag_group"
REPLAY_BUFFER = (
    "trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler "
    "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer "
    "trainer.v1.sampler.sync_refill_failed_groups=True"
)
"""The settings that replace a group with a failed rollout, in `trainer.v1.trainer_mode=sync`."""

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
    from rag_rewards.loading import import_object, load_recipe
    from rag_rewards.models.addresses import is_url
    from rag_rewards.scorer import PromptOptions, Scorer, split_options

    options = dict(options)
    prompt = options.pop("prompt", None)
    recipe, model_options, dump = split_options(options)
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
        prompt=PromptOptions.of(
            model_options,
            prompt=import_object(prompt) if prompt else None,
            template=template or {},
            response_limit="data.max_prompt_length or data.max_response_length",
        ),
        dump=dump,
    )


def compares_groups(options: Mapping[str, Any]) -> bool:
    """Return whether these settings compare the rollouts of a group. Loads no model."""
    from rag_rewards.evidence.protocols import Models

    return load_scorer(options, models=Models()).scope == "group"


# --- checks before training ----------------------------------------------------------------------


def check_training(config: Any) -> None:
    """Check the recipe, its models and the first rows of the data files, before the training.

    No model is loaded. Raises UsageError for invalid settings, for a model that is not set, and for
    a configuration in which verl trains on the rest of a group after the failure of a model;
    RolloutError, with the file and the position, for a row that cannot be scored.
    """
    from rag_rewards.evidence.protocols import Models
    from rag_rewards_adapters.row_checks import check_rows
    from rag_rewards_adapters.verl_rows import rollout_from_row

    scorer = load_scorer(reward_options(config), models=Models())
    _check_models(config, scorer)
    if (config.data.get("custom_cls") or {}).get("path"):
        return  # the columns of another class of data sets are not known
    rollouts = (
        (name, rollout_from_row(row, response="", prompt=row.get("prompt"), step=0))
        for name, row in _first_rows(config.data)
    )
    check_rows(rollouts, scorer.recipes)


def check_own_judge(config: Any) -> None:
    """Ask the judge of a training one question. Raises BackendError if it returns no verdict."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.scorer import split_options
    from rag_rewards_adapters.row_checks import check_judge

    options = reward_options(config)
    recipes = load_scorer(options, models=Models()).recipes
    _, named, _ = split_options({key: options[key] for key in options if key != "prompt"})
    check_judge(named.load_judge() if named.judge else None, recipes)


def _check_models(config: Any, scorer: Scorer) -> None:
    """Raise UsageError for a model that is not set, and for groups that lose single rollouts."""
    from rag_rewards.models.model_options import missing_model
    from rag_rewards.scorer import required_models
    from rag_rewards_adapters.row_checks import example_rollouts

    options, uses_loop = reward_options(config), _uses_group_loop(config)
    given: dict[ModelKind, bool] = {
        "policy": bool(options.get("model")) or uses_loop,
        "judge": bool(options.get("judge")),
        "entailment": bool(options.get("nli")),
        "similarity": bool(options.get("similarity")),
    }
    examples = example_rollouts()
    required = {kind for recipe in scorer.recipes for kind in required_models(recipe, examples)}
    name = scorer.reward.name
    if missing := sorted(kind for kind in required if not given[kind]):
        way = f"use the policy's own rollout engine ({GROUP_LOOP}), or set"
        raise missing_model(name, missing[0], way if missing[0] == "policy" else "set")
    if required and not uses_loop and _keeps_partial_groups(config):
        raise UsageError(
            f"{name} calls models, and if one fails for a rollout, verl would train on the other "
            f"rollouts of the prompt: set {GROUP_LOOP}, or {REPLAY_BUFFER}"
        )


def _uses_group_loop(config: Any) -> bool:
    """Return whether an agent loop of this package, or one of the user, may score the groups."""
    agent = config.actor_rollout_ref.rollout.get("agent") or {}
    return agent.get("default_agent_loop") not in (None, "single_turn_agent", "tool_agent")


def _keeps_partial_groups(config: Any) -> bool:
    """Return whether verl trains on a group in which a rollout failed.

    Only the synchronous V1 trainer does, with its own replay buffer. The asynchronous modes replace
    the group, and an error ends the training of older trainers.
    """
    trainer = config.get("trainer") or {}
    v1 = trainer.get("v1") or {}
    if not trainer.get("use_v1") or v1.get("trainer_mode", "sync") != "sync":
        return False
    return not ((v1.get("sampler") or {}).get("custom_sampler") or {}).get("name")


def _first_rows(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first rows of each local data file, each with its name for errors."""
    for key in ("train_files", "val_files"):
        files = plain_value(data.get(key) or [])
        for file in dict.fromkeys([files] if isinstance(files, str) else files):
            if Path(file).is_file():
                for i, row in enumerate(islice(_rows(file), CHECKED_ROWS)):
                    yield f"{i} of {file}", row


def _rows(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file: Parquet, or one JSON object per line. verl reads no others."""
    if file.endswith(".parquet"):
        from pyarrow import parquet

        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    elif file.endswith(".jsonl"):
        import msgspec

        with Path(file).open("rb") as lines:
            yield from (msgspec.json.decode(line) for line in lines if line.strip())

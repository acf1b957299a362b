"""verl's configuration as a reward: its options, its scorer, and the checks before training.

The reward manager, `compute_score` and the agent loop read the same options, below
`reward.custom_reward_function.reward_kwargs`. On the command line:

    +reward.custom_reward_function.reward_kwargs.recipe=arena
    +reward.custom_reward_function.reward_kwargs.settings.accuracy.metric=f1
    +reward.custom_reward_function.reward_kwargs.dump=/shared/run/rollouts.jsonl
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import import_object, load_recipe
from rag_rewards.models.addresses import is_url
from rag_rewards.models.model_options import ModelOptions, missing_model
from rag_rewards.recipe_object import Recipe
from rag_rewards.scorer import PromptOptions, Scorer, required_models, split_options
from rag_rewards.scoring.rollout_dump import RolloutDump
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.displacement import DisplacementMonitor
from rag_rewards_adapters.row_checks import check_judge, check_rows, example_rollouts
from rag_rewards_adapters.verl.rows import rollout_from_row

CHECKED_ROWS = 2_000
"""The number of rows of each data file that are checked before training."""
GROUP_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop=rag_group"
REPLAY_BUFFER = (
    "trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler "
    "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer "
    "trainer.v1.sampler.sync_refill_failed_groups=True"
)
"""The settings that replace a group with a failed rollout, in `trainer.v1.trainer_mode=sync`."""
NEEDS_GROUP_LOOP = (
    f"recipe {{name}} compares the rollouts of a group, and a reward function sees one: set "
    f"{GROUP_LOOP}, and leave no other agent_name in the data (verl 0.9 and later, its V1 trainer)"
)
"""The error of a recipe of group scope that did not use the agent loop."""
NEEDS_ENGINE = f"displacement_every needs the rollout engine: set {GROUP_LOOP}"
"""The error of a monitor of likelihood displacement without the agent loop."""

RESERVED_NAMES = frozenset(("acc", "reward", "score", "uid", "index"))
"""Names that have a meaning in verl, so no component can have them."""
_OPTIONS: dict[ModelKind, str] = {
    "policy": "model",
    "generator": "generator",
    "judge": "judge",
    "entailment": "nli",
    "similarity": "similarity",
}
"""The option of each kind of model."""


@dataclass(frozen=True)
class RewardOptions:
    """The options of a reward, as objects.

    reward  the recipe or the curriculum
    models  the options of its models
    prompt  how the prompts of the policy are formed
    dump    the file of scored rollouts
    monitor the monitor of likelihood displacement (setting `displacement_every`)
    """

    reward: Recipe | Curriculum
    models: ModelOptions
    prompt: PromptOptions
    dump: RolloutDump | None = None
    monitor: DisplacementMonitor | None = None

    @classmethod
    def of(
        cls, options: Mapping[str, Any], template: Mapping[str, Any] | None = None
    ) -> RewardOptions:
        """Read `reward_kwargs`. No model is loaded.

        Besides the options of `Scorer.load`, `prompt` may be the `module:name` of a Prompt, which
        describes the documents in the user's own prompts. `template` contains the arguments of the
        chat template. Raises UsageError and SettingError for invalid options, and UsageError for a
        model that every worker would load.
        """
        options = dict(options)
        prompt = options.pop("prompt", None)
        monitor = DisplacementMonitor.of(options.pop("displacement_every", 0))
        recipe, models, dump = split_options(options)
        if models.model and not is_url(models.model):
            raise UsageError(
                f"model={models.model} would be loaded by every reward worker: set the URL of a "
                "scoring server (model=http://HOST:PORT backend=vllm), or use the policy's own "
                f"rollout engine: {GROUP_LOOP}"
            )
        reward = load_recipe(recipe)
        if reserved := RESERVED_NAMES.intersection(reward.component_names):
            raise UsageError(
                f"component {min(reserved)!r}: verl reserves this name; rename the component"
            )
        prompting = PromptOptions.of(
            models,
            prompt=import_object(prompt) if prompt else None,
            template=template or {},
            response_limit="data.max_prompt_length or data.max_response_length",
        )
        return cls(reward, models, prompting, dump, monitor)

    @classmethod
    def of_training(cls, config: Any) -> RewardOptions:
        """Read a trainer's configuration, and check it and the first rows of its data files.

        No model is loaded. Raises UsageError for invalid settings, for a model that is not set, and
        for a configuration in which verl trains on the rest of a group after the failure of a
        model; RolloutError, with the file and the position, for a row that cannot be scored.
        """
        function = config.reward.get("custom_reward_function") or {}
        options = plain_value(function.get("reward_kwargs") or {})
        if not options:
            raise UsageError(
                "no recipe is given: set +reward.custom_reward_function.reward_kwargs.recipe=NAME"
            )
        template = config.get("data", {}).get("apply_chat_template_kwargs") or {}
        result = cls.of(options, plain_value(template))
        if result.monitor is not None and not _uses_group_loop(config):
            raise UsageError(NEEDS_ENGINE)
        result._check_models(config)
        if not (config.data.get("custom_cls") or {}).get("path"):  # other columns are not known
            rollouts = (
                (name, rollout_from_row(row, response="", prompt=row.get("prompt"), step=0))
                for name, row in _first_rows(config.data)
            )
            check_rows(rollouts, result.reward.recipes)
        return result

    def scorer(self, models: Models | None = None) -> Scorer:
        """Return the scorer with these models; by default, those of the options are loaded."""
        models = self.models.load() if models is None else models
        return Scorer(self.reward, models, prompt=self.prompt, dump=self.dump)

    def check_judge(self) -> None:
        """Ask the judge one question. Raises BackendError if it returns no verdict."""
        judge = self.models.load_judge() if self.models.judge else None
        check_judge(judge, self.reward.recipes)

    def _check_models(self, config: Any) -> None:
        """Raise UsageError for a model that is not set, and for groups that lose rollouts."""
        uses_loop, examples = _uses_group_loop(config), example_rollouts()
        required = {
            kind for recipe in self.reward.recipes for kind in required_models(recipe, examples)
        }
        available = {kind for kind, option in _OPTIONS.items() if getattr(self.models, option)}
        if uses_loop or "policy" in available:  # the policy is the generator
            available |= {"policy", "generator"}
        if missing := sorted(required - available):
            raise model_to_set(self.reward, missing[0])
        if required and not uses_loop and _keeps_partial_groups(config):
            raise UsageError(
                f"{self.reward.name} calls models, and if one fails for a rollout, verl would "
                f"train on the other rollouts of the prompt: set {GROUP_LOOP}, or {REPLAY_BUFFER}"
            )


def model_to_set(reward: Recipe | Curriculum, kind: ModelKind) -> UsageError:
    """Return the error of a reward that requires a kind of model that is not set."""
    way = f"use the policy's own rollout engine ({GROUP_LOOP}), or set"
    return missing_model(reward.name, kind, way if kind in ("policy", "generator") else "set")


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
        with Path(file).open("rb") as lines:
            yield from (msgspec.json.decode(line) for line in lines if line.strip())

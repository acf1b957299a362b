"""Training scripts of verl: a shell script with settings of Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rag_rewards.training.credit.settings import Credit
from rag_rewards.training.scripts.start import GPUS, SEARCH_TURNS, Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    HERE,
    READ_SHELL_SETTINGS,
    SEARCH_CHECK,
    SEARCH_MODULE,
    SEARCH_TOOL,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    assignment,
    search_module,
    shell_script,
)
from rag_rewards.training.settings import NOT_STATED, Stated, Training

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_REWARD_ARGUMENTS = "+reward.custom_reward_function.reward_kwargs"
_SAMPLER = "trainer.v1.sampler"
_SAMPLER_COMMENT = f"{FOR_REWARD}: checks the rows, replaces unscored groups, logs components"
_NO_VALIDATION = f"{YOUR_SETUP}: without a validation file, no validation"
_KL_NAMES = {"k2": "mse", "k3": "low_var_kl"}
"""The names of the estimators in verl; `mse` is half a squared difference."""

_TOOLS = f'''"""The tool of the policy, which verl loads in each worker."""

import json
import sys
from pathlib import Path

from verl.tools.function_tool import function_tool

sys.path.insert(0, str(Path(__file__).resolve().parent))

from search import search as find


@function_tool
{SEARCH_TOOL}'''
_LOOPS = """- name: rag_group
  _target_: rag_rewards_adapters.verl_group.RagGroupAgentLoop
  inner: tool_agent
"""
_RESULT_CHARACTERS = 8192

_AGGREGATIONS = {"response": "seq-mean-token-mean", "token": "token-mean"}
"""The names of the aggregations in verl."""


def write(start: Start) -> dict[str, str]:
    """Return the script; the options of the recipe are arguments of its reward function.

    If the policy searches, also return its tool, the agent loop with tools, and the file with the
    search engine.
    """
    start = start.for_dialect("verl", ["tools"])
    command = "python3 -m verl.trainer.main_ppo"
    if not start.searches:
        return {"train.sh": shell_script(start, "verl", _lines(start), command)}
    command = SEARCH_CHECK + command
    return {
        "train.sh": shell_script(start, "verl", _lines(start), command),
        "tools.py": _TOOLS,
        "loops.yaml": _LOOPS,
        SEARCH_MODULE: search_module(start),
    }


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    yield YOUR_SETUP, (f"actor_rollout_ref.model.path={_hydra(start.policy)}",)
    yield YOUR_SETUP, (f"data.train_files={_hydra(start.data)}",)
    yield YOUR_SETUP, (f"data.val_files={_hydra(start.validation or start.data)}",)
    if start.validation:
        yield YOUR_SETUP, ("trainer.test_freq=20",)
    else:
        yield _NO_VALIDATION, ("trainer.val_before_train=False",)
        yield _NO_VALIDATION, ("trainer.test_freq=-1",)
    yield YOUR_SETUP, ("trainer.save_freq=20",)
    yield YOUR_SETUP, (f"trainer.n_gpus_per_node={GPUS}",)
    yield YOUR_SETUP, ("trainer.logger=[console]",)
    yield YOUR_SETUP, (f"{_ROLLOUT}.name=vllm",)
    if training.tensor_parallel.value is not None:
        yield assignment(f"{_ROLLOUT}.tensor_model_parallel_size", training.tensor_parallel)
    if training.memory_share.value is not None:
        yield assignment(f"{_ROLLOUT}.gpu_memory_utilization", training.memory_share)
    yield YOUR_SETUP, (f"{_ACTOR}.use_dynamic_bsz=True",)
    yield YOUR_SETUP, (f"trainer.experiment_name={start.name}",)
    yield FOR_REWARD, ("reward.reward_manager.name=rag_rewards",)
    for key, value in _flat(start.options):
        yield FOR_REWARD, (f"{_REWARD_ARGUMENTS}.{key}={_hydra(value)}",)
    yield from _sampling(training, start.response_tokens)
    yield assignment(f"{_ACTOR}.optim.lr", training.learning_rate)
    yield assignment(f"{_ACTOR}.optim.lr_scheduler_type", training.schedule)
    yield assignment(f"{_ACTOR}.optim.lr_warmup_steps_ratio", training.warmup)
    yield assignment(f"{_ACTOR}.ppo_epochs", training.iterations)
    yield assignment(f"{_ACTOR}.clip_ratio", training.clip)
    yield assignment(
        f"{_ACTOR}.loss_agg_mode", training.loss_aggregation, _AGGREGATIONS.__getitem__
    )
    if training.entropy_weight.source != NOT_STATED:
        yield assignment(f"{_ACTOR}.entropy_coeff", training.entropy_weight)
    yield assignment("trainer.total_epochs", training.epochs)
    yield from _kl(training)
    if start.components:
        yield from _gdpo(start.components)
    else:
        yield from _advantage(training) if start.credit is None else _turn_credit(start.credit)
    reads_groups = start.scores_groups or bool(start.components)
    if reads_groups or start.needs_trained_policy or start.needs_turns:
        loop = f"{_ROLLOUT}.agent.default_agent_loop=rag_group"
        yield f"{FOR_REWARD}: scores a group together", (loop,)
    yield from _replay_buffer()
    if start.searches:
        yield from _tools()


def _sampling(training: Training, response_tokens: Stated[int]) -> Iterator[Line]:
    prompts = training.prompts
    yield assignment("data.train_batch_size", prompts)
    yield (
        f"{prompts.source}: one update per step",
        (f"{_ACTOR}.ppo_mini_batch_size={prompts.value}",),
    )
    yield assignment("data.max_prompt_length", training.prompt_tokens)
    yield f"{FOR_REWARD}: excludes truncated prompts", ("data.filter_overlong_prompts=True",)
    yield assignment("data.max_response_length", response_tokens)
    yield assignment(f"{_ROLLOUT}.n", training.group)
    yield assignment(f"{_ROLLOUT}.temperature", training.temperature)
    yield assignment(f"{_ROLLOUT}.top_p", training.top_p)


def _kl(training: Training) -> Iterator[Line]:
    kl = training.kl
    if kl.value == "none":
        yield kl.source, (f"{_ACTOR}.use_kl_loss=False",)
        return
    yield kl.source, (f"{_ACTOR}.use_kl_loss=True",)
    yield assignment(f"{_ACTOR}.kl_loss_type", kl, _KL_NAMES.__getitem__)
    yield assignment(f"{_ACTOR}.kl_loss_coef", training.kl_weight)


def _advantage(training: Training) -> Iterator[Line]:
    floor = training.std_floor
    if floor.value is None:
        yield FOR_REWARD, ("algorithm.adv_estimator=grpo",)
        return
    yield floor.source, ("algorithm.adv_estimator=rag_grpo_clip_std",)
    yield assignment("+algorithm.std_floor", floor)


def _turn_credit(credit: Credit) -> Iterator[Line]:
    comment = f"{FOR_REWARD}: an advantage for each turn"
    yield comment, (f"algorithm.adv_estimator=rag_turn_{credit.method}",)
    for name, value in credit.options.items():
        yield comment, (f"+algorithm.rag_turn.{name}={_hydra(value)}",)


def _gdpo(components: Mapping[str, float]) -> Iterator[Line]:
    comment = f"{FOR_REWARD}: normalizes each component by itself (GDPO)"
    yield comment, ("algorithm.adv_estimator=rag_gdpo",)
    yield comment, (f"+algorithm.gdpo_reward_keys={_hydra(list(components))}",)
    yield comment, (f"+algorithm.gdpo_reward_weights={_hydra(list(components.values()))}",)


def _replay_buffer() -> Iterator[Line]:
    yield _SAMPLER_COMMENT, (f"{_SAMPLER}.sync_refill_failed_groups=True",)
    yield (
        _SAMPLER_COMMENT,
        (f"{_SAMPLER}.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler",),
    )
    yield _SAMPLER_COMMENT, (f"{_SAMPLER}.custom_sampler.name=RagReplayBuffer",)


def _tools() -> Iterator[Line]:
    turns = f"{_ROLLOUT}.multi_turn"
    comment = f"{FOR_REWARD}: searches with the tool of tools.py"
    yield comment, (f"{turns}.enable=True",)
    yield comment, (f"{turns}.function_tool_path={HERE}tools.py",)
    yield comment, (f"{_ROLLOUT}.agent.agent_loop_config_path={HERE}loops.yaml",)
    yield f"{YOUR_SETUP}: the form of calls of the model", (f"{turns}.format=hermes",)
    yield YOUR_SETUP, (f"{turns}.max_assistant_turns={SEARCH_TURNS}",)
    comment = f"{YOUR_SETUP}: characters of results; verl cuts longer ones, which breaks their JSON"
    yield comment, (f"{turns}.max_tool_response_length={_RESULT_CHARACTERS}",)


def _flat(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if key == "settings":
            yield from ((f"settings.{name}", setting) for name, setting in value.items())
        else:
            yield key, value


# --- values of Hydra's command line ------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z_./][\w./:@+-]*")
"""Texts that Hydra reads without quotes, except for literals."""
_LITERALS = {"true", "false", "null", "none", "nan", "inf"}


def _hydra(value: Any) -> str:
    """Return a value as Hydra's command line reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, str) and (not _BARE.fullmatch(value) or value.lower() in _LITERALS):
        return "'" + value.replace("'", "\\'") + "'"
    return str(value)


_CHECK = (
    READ_SHELL_SETTINGS
    + """
import verl
from hydra import compose, initialize_config_module
with initialize_config_module("verl.trainer.config", version_base=None):
    compose("ppo_trainer", overrides=words)
print(json.dumps({"unknown": []}))
"""
)

WRITER = ScriptWriter(write, "verl", _CHECK, has_components=True)

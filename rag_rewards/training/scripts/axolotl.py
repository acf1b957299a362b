"""Training configurations of Axolotl: a YAML file, and the module of the reward."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.training.scripts.start import Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    NO_SCALING,
    YOUR_SETUP,
    ScriptWriter,
    python_call,
)

Entry = tuple[str, str, Any]
"""The source of a value, its key and the value."""
_LOSS_TYPES = {"response": "grpo", "token": "dapo"}
_CONFIG = """# GRPO with Axolotl, with the reward {name}: axolotl train config.yaml
rl: grpo
{settings}
# {setup}: the rows that `rag-rewards prepare -t trl` wrote
datasets:
  - path: {data}
    ds_type: json
    split: train
    type: null
skip_prepare_dataset: true
val_set_size: 0.0

trl:
  # {for_reward}: the module rewards.py beside this file
  reward_funcs: [rewards.reward]
{trl}
"""
_REWARDS = """from rag_rewards_adapters.trl import RagReward

reward = {call}
"""


def write(start: Start) -> dict[str, str]:
    """Return the configuration and the module. Raise UsageError for what Axolotl cannot do."""
    start.refuse_searches("Axolotl")
    if start.needs_trained_policy:
        raise UsageError(
            f"{start.name} needs log-probabilities, and Axolotl passes no model to a reward: set "
            "--model URL --backend vllm"
        )
    return {
        "config.yaml": _CONFIG.format(
            name=start.name,
            data=json.dumps(start.data),
            settings="\n".join(_yaml(_settings(start), "")),
            trl="\n".join(_yaml(_trl(start), "  ")),
            setup=YOUR_SETUP,
            for_reward=FOR_REWARD,
        ),
        "rewards.py": _REWARDS.format(
            call=python_call("RagReward", _options(start), first="recipe")
        ),
    }


def _options(start: Start) -> dict[str, Any]:
    """Return the options of the reward, with the size of a group if it compares rollouts."""
    options = start.advantage_options
    if start.scores_groups or "std_floor" in options:
        options = options | {"group_size": start.training.group.value}
    return options


def _settings(start: Start) -> Iterator[Entry]:
    training = start.training
    yield YOUR_SETUP, "base_model", start.policy
    yield YOUR_SETUP, "output_dir", start.name
    yield YOUR_SETUP, "sequence_len", training.prompt_tokens.value + training.response_tokens.value
    yield YOUR_SETUP, "bf16", "auto"
    yield "the rollouts of one prompt", "micro_batch_size", training.group.value
    yield training.prompts.source, "gradient_accumulation_steps", training.prompts.value
    yield training.learning_rate.source, "learning_rate", training.learning_rate.value
    yield training.schedule.source, "lr_scheduler", training.schedule.value
    yield training.warmup.source, "warmup_ratio", training.warmup.value
    yield training.epochs.source, "num_epochs", training.epochs.value


def _trl(start: Start) -> Iterator[Entry]:
    training = start.training
    yield training.group.source, "num_generations", training.group.value
    kl, weight = training.kl, training.kl_weight
    note = f"{weight.source}. The penalty of the paper is k2, that of Axolotl k3"
    yield note if kl.value == "k2" else weight.source, "beta", weight.value
    yield training.iterations.source, "num_iterations", training.iterations.value
    yield training.clip.source, "epsilon", training.clip.value
    aggregation = training.loss_aggregation
    yield aggregation.source, "loss_type", _LOSS_TYPES[aggregation.value]
    yield training.temperature.source, "temperature", training.temperature.value
    yield training.top_p.source, "top_p", training.top_p.value
    tokens = training.response_tokens
    yield tokens.source, "max_completion_length", tokens.value
    floor = training.std_floor
    if floor.value is not None:
        yield NO_SCALING.format(floor.source), "scale_rewards", False


def _yaml(entries: Iterable[Entry], indentation: str) -> Iterator[str]:
    """Yield the lines of a mapping. Consecutive entries share an equal comment."""
    previous = None
    for comment, key, value in entries:
        if comment != previous:
            yield f"{indentation}# {comment}"
        previous = comment
        yield f"{indentation}{key}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return a number or a text in JSON, which YAML reads. `1e-06` needs a point in YAML 1.1."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


_CHECK = """
import json, sys
from pathlib import Path
import yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
config = yaml.safe_load((Path(folder) / "config.yaml").read_text())
known = AxolotlInputConfig.model_fields
trl = type(AxolotlInputConfig(**config).trl).model_fields
unknown = [key for key in config if key not in known]
unknown += [key for key in config["trl"] if key not in trl]
print("\\n" + json.dumps({"unknown": unknown}))
"""

WRITER = ScriptWriter(write, "axolotl", _CHECK)

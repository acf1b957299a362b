"""Files of NeMo Gym: a resources server, its configuration, and a training script of NeMo RL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rag_rewards.errors import UsageError
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.training.scripts.start import Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    HERE,
    SEARCH_CHECK,
    SEARCH_MODULE,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    assignment,
    search_module,
    shell_script,
)

NAME = "rag_rewards"
"""The name of the server, of its folder and of its configuration."""
NEMO_GYM_AGENT = "rag_rewards_simple_agent"
"""The agent of the configuration, which `rag-rewards prepare` writes into each row."""
_FOLDER = f"resources_servers/{NAME}"
_GYM = "$NEMO_RL/3rdparty/Gym-workspace/Gym"
_NOTE = f"""
# your setup: NEMO_RL is the folder of NeMo RL, and CONFIG a configuration of its folder
# examples/nemo_gym for your model. NeMo Gym finds the server in its own folder.
: "${{NEMO_RL:?set NEMO_RL}}" "${{CONFIG:?set CONFIG}}"
ln -sfn "$PWD/{_FOLDER}" "{_GYM}/{_FOLDER}"
"""
_COMMAND = 'cd "$NEMO_RL"\npython3 examples/nemo_gym/run_grpo_nemo_gym.py --config "$CONFIG"'
_MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
_TOKENS = "prompt and response"
_APP = """from rag_rewards_adapters.nemo_gym_server import RagRewardsServer

if __name__ == "__main__":
    RagRewardsServer.run_webserver()
"""
_EXTRAS = {"policy": "http", "entailment": "nli", "judge": "judge", "similarity": "semantic"}
"""The extra of each kind of model."""


def write(start: Start) -> dict[str, str]:
    """Return the files. Raise UsageError for a curriculum and for a reward of groups.

    Raise UsageError if the sum of turns is no reward, and if a model is missing.
    """
    start.check_sum("NeMo Gym")
    if isinstance(start.reward, Curriculum):
        raise UsageError(
            "NeMo Gym does not pass the training step to a reward: write a server for each stage"
        )
    if start.scores_groups:
        raise UsageError(
            f"{start.name} compares the rollouts of a group, and NeMo Gym verifies one at a time: "
            "choose another recipe or trainer"
        )
    start.check_model("NeMo Gym")
    start = start.for_dialect("NeMo Gym", ["tools"])
    command, files = _COMMAND, {}
    if start.searches:
        command = f"(cd {_FOLDER} && {SEARCH_CHECK.partition('  #')[0]})\n{command}"
        files = {f"{_FOLDER}/{SEARCH_MODULE}": search_module(start)}
    return {
        f"{_FOLDER}/app.py": _APP,
        f"{_FOLDER}/requirements.txt": f"{_requirement(start)}\n",
        f"{_FOLDER}/configs/{NAME}.yaml": yaml.safe_dump(configuration(start), sort_keys=False),
        "train.sh": shell_script(start, "NeMo RL", _lines(start), command, _NOTE),
        **files,
    }


def configuration(start: Start) -> dict[str, Any]:
    """Return the configuration of the server and of an agent that uses it."""
    server: dict[str, Any] = {
        "entrypoint": "app.py",
        "domain": "knowledge",
        "verified": False,
        "description": f"Retrieval-augmented answers with the reward {start.name}",
        "value": "Improve answers that are grounded in retrieved documents",
        "reward": start.options,
    }
    if start.searches:
        server["retriever"] = "search:search"
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": NAME},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "datasets": list(_datasets(start)),
    }
    return {
        NAME: {"resources_servers": {NAME: server}},
        NEMO_GYM_AGENT: {"responses_api_agents": {"simple_agent": agent}},
    }


def _datasets(start: Start) -> Iterator[dict[str, Any]]:
    files = (("train", start.data), ("validation", start.validation))
    for kind, path in files:
        if path:
            yield {"name": kind, "type": kind, "jsonl_fpath": path, "license": "TBD"}


def _requirement(start: Start) -> str:
    extras = [extra for kind, extra in _EXTRAS.items() if start.needs(kind)]  # type: ignore[arg-type]
    return f"rag-rewards[{','.join(extras)}]" if extras else "rag-rewards"


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    servers = f"{_MODEL},{_FOLDER}/configs/{NAME}.yaml"
    yield YOUR_SETUP, (f"policy.model_name={start.policy}",)
    yield YOUR_SETUP, (f"data.train.data_path={_path(start.data)}",)
    yield YOUR_SETUP, (f"data.validation.data_path={_path(start.validation or start.data)}",)
    if not start.validation:
        comment = f"{YOUR_SETUP}: without a validation file, no validation"
        yield comment, ("grpo.val_period=0",)
        yield comment, ("grpo.val_at_start=false",)
    yield YOUR_SETUP, (f"checkpointing.checkpoint_dir={HERE}{start.name}",)
    yield FOR_REWARD, (f"env.nemo_gym.config_paths=[{servers}]",)
    yield assignment("grpo.num_prompts_per_step", training.prompts)
    yield assignment("grpo.num_generations_per_prompt", training.group)
    yield assignment("grpo.max_num_epochs", training.epochs)
    yield assignment("policy.generation.temperature", training.temperature)
    yield assignment("policy.generation.top_p", training.top_p)
    yield assignment("policy.generation.max_new_tokens", training.response_tokens)
    length = training.prompt_tokens.value + training.response_tokens.value
    yield _TOKENS, (f"policy.max_total_sequence_length={length}",)
    yield assignment("policy.megatron_cfg.optimizer.lr", training.learning_rate)
    yield assignment("policy.megatron_cfg.scheduler.lr_decay_style", training.schedule)
    yield assignment("loss_fn.ratio_clip_min", training.clip)
    yield assignment("loss_fn.ratio_clip_max", training.clip)
    yield assignment("loss_fn.token_level_loss", training.loss_aggregation, _is_token_level)
    yield from _kl(start)
    yield FOR_REWARD, ("grpo.use_leave_one_out_baseline=false",)
    is_scaled = str(training.std_floor.value is None).lower()
    yield FOR_REWARD, (f"grpo.normalize_rewards={is_scaled}",)


def _kl(start: Start) -> Iterator[Line]:
    kl, weight = start.training.kl, start.training.kl_weight
    has_penalty = kl.value != "none"
    if has_penalty:
        yield assignment("loss_fn.reference_policy_kl_type", kl)
        yield assignment("loss_fn.reference_policy_kl_penalty", weight)
    else:
        yield kl.source, ("loss_fn.reference_policy_kl_penalty=0",)
    skips = str(not has_penalty).lower()
    yield kl.source, (f"grpo.skip_reference_policy_logprobs_calculation={skips}",)


def _is_token_level(aggregation: str) -> str:
    return str(aggregation == "token").lower()


def _path(path: str) -> str:
    """Return a path for a program that runs in another folder."""
    return path if Path(path).is_absolute() else f"{HERE}{path}"


_CHECK = f"""
import json
from pathlib import Path
import yaml
from rag_rewards_adapters.nemo_gym import Verifier
from rag_rewards_adapters.nemo_gym_server import RagRewardsConfig
path = Path(folder) / "{_FOLDER}/configs/{NAME}.yaml"
server = yaml.safe_load(path.read_text())["{NAME}"]["resources_servers"]["{NAME}"]
config = RagRewardsConfig(name="{NAME}", host="127.0.0.1", port=1, **server)
Verifier(config.reward)
print("\\n" + json.dumps({{"unknown": []}}))
"""

WRITER = ScriptWriter(write, "nemo-gym", _CHECK)

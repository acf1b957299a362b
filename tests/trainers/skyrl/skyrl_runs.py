"""Rollouts of the real generator of SkyRL, whose inference engine returns given texts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rag_rewards_adapters.skyrl import SkyRLRecipe, experiment
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.base import TrajectoryID
from skyrl_gym.envs import registration
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
from tiny_models import TEMPLATE, make_tokenizer

TOKENS = 4
"""Tokens of each generation, as in the log-probabilities of the golden rows."""
GIVEN = "rag-given-results"


class GivenResults(BaseTextEnv):
    """Replies to the first message with a given observation, and ends at the second one."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.observation = extras["observation"]
        self.rag_turns: list[dict[str, Any]] = []

    def step(self, action: str) -> BaseTextEnvStepOutput:
        is_done = bool(self.rag_turns)
        self.rag_turns.append({"text": action} if is_done else {"text": action, "results": []})
        messages = [] if is_done else [{"role": "user", "content": self.observation}]
        return BaseTextEnvStepOutput(observations=messages, reward=0.0, done=is_done, metadata={})

    def get_metrics(self) -> dict[str, Any]:
        return {"rag_turns": self.rag_turns}


class Engine:
    """An inference engine that returns the next text of a trajectory, with tokens of its own."""

    def __init__(self, texts: Sequence[Sequence[str]], reasons: Sequence[str]) -> None:
        self.texts = [list(of_one) for of_one in texts]
        self.reasons = list(reasons)

    async def generate(self, request: Any, model: str | None = None) -> dict[str, Any]:
        index = int(request["session_ids"][0].rpartition("_")[2])
        text = self.texts[index].pop(0)
        return {
            "responses": [text],
            "response_ids": [[5] * TOKENS],
            "stop_reasons": ["stop" if self.texts[index] else self.reasons[index]],
            "response_logprobs": [[-0.5] * TOKENS],
        }

    async def finish_session(self, session_id: str) -> None:
        """Do nothing: no session holds a replica."""


def config(**settings: Any) -> SkyRLTrainConfig:
    defaults = {
        "environment.env_class": "rag",
        "environment.skyrl_gym.max_env_workers": 0,
        "generator.max_turns": 4,
        "generator.max_input_length": 8192,
        "generator.inference_engine.enable_ray_prometheus_stats": False,
        "trainer.enable_ray_gpu_monitor": False,
        "trainer.train_batch_size": 1,
        "trainer.policy_mini_batch_size": 1,
        "trainer.algorithm.max_seq_len": 8192,
    }
    return SkyRLTrainConfig.from_cli_overrides({**defaults, **settings})


def tokenizer(opening: str = "") -> Any:
    """Return a tokenizer whose template opens the response with these words."""
    made = make_tokenizer()
    made.chat_template = TEMPLATE.replace("assistant\n{% endif", f"assistant\n{opening}{{% endif")
    return made


def batch_of(rows: Sequence[dict[str, Any]], env_class: str, group: str = "q") -> dict[str, Any]:
    """Return the input of the generator: all rows are rollouts of one prompt."""
    return {
        "prompts": [[{"role": "user", "content": "Into which sea?"}] for _ in rows],
        "env_classes": [env_class] * len(rows),
        "env_extras": [dict(row) for row in rows],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID(group, i) for i in range(len(rows))],
        "batch_metadata": None,
    }


def run(
    recipe: SkyRLRecipe,
    texts: Sequence[Sequence[str]],
    batch: dict[str, Any],
    settings: SkyRLTrainConfig,
    *,
    reasons: Sequence[str] = (),
    opening: str = "",
) -> tuple[dict[str, Any], Any]:
    """Return the output of the generator, and the batch of the trainer with its advantages."""
    registration.registry.setdefault(
        GIVEN, registration.EnvSpec(id=GIVEN, entry_point=GivenResults)
    )
    settings.generator.n_samples_per_prompt = len(texts)
    made = object.__new__(experiment(recipe))
    tokens = tokenizer(opening)
    engine = Engine(texts, reasons or ["stop"] * len(texts))
    generator = made.get_generator(settings, tokens, engine)
    trainer = made.get_trainer(
        cfg=settings,
        tracker=SimpleNamespace(),
        tokenizer=tokens,
        train_dataset=None,
        eval_dataset=None,
        inference_engine_client=engine,
        generator=generator,
        colocate_pg=None,
    )
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)  # one device, without workers
    uids = [identifier.instance_id for identifier in batch["trajectory_ids"]]
    output = asyncio.run(trainer.generate(batch))
    rewarded, uids = trainer.postprocess_generator_output(dict(output), uids)
    data = trainer.convert_to_training_input(rewarded, uids)
    data["values"] = None
    data.metadata["avg_response_length"] = 1.0
    logged = {"rollout_metrics": dict(trainer.all_metrics)}
    return {**output, **logged}, trainer.compute_advantages_and_returns(data)

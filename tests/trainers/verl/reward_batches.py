"""Batches as verl passes them to its reward loop, for the tests of this folder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BACKENDS = Path(__file__).resolve().parents[2] / "models"
sys.path.append(str(BACKENDS))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from judge_server import JudgeServer, Reply  # noqa: E402, F401
from tensordict import TensorDict  # noqa: E402
from tiny_models import make_tokenizer  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.reward_loop.reward_loop import (  # noqa: E402
    RewardLoopWorker,
    migrate_legacy_reward_impl,
)

KWARGS = "+reward.custom_reward_function.reward_kwargs"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)
"""ChatML with the tokens of the tiny tokenizer, and <think> opened as by reasoning models."""
DOCUMENTS = [
    {"title": "Paris", "text": "Paris lies on the Seine."},
    {"title": "Lyon", "text": "Lyon lies on the Rhône."},
]
GOLD = {"answers": ["Seine", "the Seine"], "supporting": [1], "answerable": True}
QUESTION = "Which river runs through Paris?"


def saved_tokenizer(folder: Path) -> Any:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def compose_config(tokenizer: Path, *overrides: str) -> Any:
    """Return verl's configuration, as `main_ppo` composes it, for two reward workers."""
    fixed = (
        f"actor_rollout_ref.model.path={tokenizer}",
        "actor_rollout_ref.rollout.response_length=1024",
        "reward.num_workers=2",
    )
    with initialize_config_module("verl.trainer.config", version_base=None):
        return migrate_legacy_reward_impl(compose("ppo_trainer", overrides=[*fixed, *overrides]))


def config_with_manager(tokenizer: Path, *overrides: str) -> Any:
    """Return the same configuration with the reward manager and the buffer of this package."""
    fixed = (
        "reward.reward_manager.name=rag_rewards",
        "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer",
    )
    return compose_config(tokenizer, *fixed, *overrides)


def worker_of(config: Any) -> RewardLoopWorker:
    """Return verl's own worker, in this process."""
    return RewardLoopWorker(config)


def score_batch(config: Any, data: DataProto) -> list[dict[str, Any]]:
    """Return the results of a worker, which is created in its event loop, as under Ray."""

    async def work() -> list[dict[str, Any]]:
        return await worker_of(config).compute_score_batch(data)

    return asyncio.run(work())


@dataclass
class ResponseRow:
    """One response and its row of the data set."""

    text: str
    ground_truth: Any = field(default_factory=lambda: dict(GOLD))
    extra_info: dict[str, Any] = field(
        default_factory=lambda: {"index": 7, "question": QUESTION, "documents": DOCUMENTS}
    )
    columns: dict[str, Any] = field(default_factory=dict)
    ids: list[int] | None = None
    ends: bool = True
    think: bool = False


def batch_of(tokenizer: Any, rows: Sequence[ResponseRow], pad: int = 4) -> DataProto:
    """Return a batch: prompts padded on the left, responses on the right, columns as arrays."""
    prompts, responses = [], []
    for row in rows:
        chat = [{"role": "user", "content": QUESTION}]
        text = tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, enable_thinking=row.think
        )
        prompts.append(tokenizer.encode(text, add_special_tokens=False))
        ids = row.ids or tokenizer.encode(row.text, add_special_tokens=False)
        responses.append(ids + [tokenizer.eos_token_id] * row.ends)
    before, after = (max(map(len, ids)) + pad for ids in (prompts, responses))
    shape = len(rows), before + after
    tokens = torch.full(shape, tokenizer.pad_token_id)
    mask = torch.zeros(shape, dtype=torch.long)
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        end = before + len(response)
        tokens[i, before - len(prompt) : end] = torch.tensor(prompt + response)
        mask[i, before - len(prompt) : end] = 1
    parts = {"prompts": tokens[:, :before], "responses": tokens[:, before:]}
    columns = [
        {
            "data_source": "river",
            "reward_model": {"style": "rule", "ground_truth": row.ground_truth},
            "extra_info": row.extra_info,
            "raw_prompt": [{"role": "user", "content": QUESTION}],
            **row.columns,
        }
        for row in rows
    ]
    return DataProto(
        batch=TensorDict(
            {**parts, "input_ids": tokens, "attention_mask": mask}, batch_size=len(rows)
        ),
        non_tensor_batch={name: _objects([c.get(name) for c in columns]) for name in columns[0]},
    )


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array

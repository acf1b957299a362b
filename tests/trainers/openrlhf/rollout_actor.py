"""OpenRLHF's own rollout actor without Ray, with a tiny model as its engine.

The real parts are the loading of `agent.py`, the concurrent samples of a prompt, the single-turn
executor and the conversion of its output. The engine returns outputs of the form of vLLM's
asynchronous engine (`vllm/v1/engine/async_llm.py`, `vllm/outputs.py`): `prompt_logprobs` has a row
for each token of the prompt, and the first one is None.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import openrlhf.utils.agent  # noqa: F401  (before the others, so that it stays: agent.py needs it)
from missing_modules import stand_ins

sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
from tiny_models import make_model, make_tokenizer


@dataclass
class SamplingParams:
    """The fields of vLLM's SamplingParams that are used here, with vLLM's defaults."""

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: list[str] = field(default_factory=list)
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_reading_prefix_cache: bool | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True


class Engine:
    """A double of vLLM's asynchronous engine with fixed replies and the scores of a model."""

    def __init__(self, replies: Sequence[str | Exception], limit: int = 1500) -> None:
        self.tokenizer, self.model = make_tokenizer(), make_model("qwen2")
        self.model_config = SimpleNamespace(
            model="tiny", dtype="torch.float32", max_model_len=limit
        )
        self.replies = replies
        self.calls: Counter[str] = Counter()
        self.updated: list[str] = []

    async def collective_rpc(self, method: str, args: Any = ()) -> None:
        self.updated.append(method)

    async def generate(
        self, prompt: Any, params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        ids = prompt["prompt_token_ids"]
        room = self.model_config.max_model_len - len(ids)
        if room < 1:
            raise ValueError(f"a prompt of {len(ids)} tokens leaves no room")
        await asyncio.sleep(0)
        rows = None
        if params.prompt_logprobs is not None:
            self.calls["scored"] += 1
            rows, token_ids = self.rows(ids), [5]
        elif params.stop:
            self.calls["masked"] += 1
            token_ids = self.greedy(ids, min(params.max_tokens or room, room), params.stop)
        else:
            reply = self.replies[self.calls["sampled"] % len(self.replies)]
            self.calls["sampled"] += 1
            if isinstance(reply, Exception):
                raise reply
            await asyncio.sleep(0.01 * (self.calls["sampled"] % 3))  # they end in another order
            token_ids = [*self.tokenizer.encode(reply, add_special_tokens=False), 2]
        token_ids = token_ids[: params.max_tokens]
        text = self.tokenizer.decode(token_ids, skip_special_tokens=params.skip_special_tokens)
        for stop in params.stop:
            text = text.partition(stop)[0]
        decoded = self.tokenizer.decode(token_ids)
        ended = token_ids[-1:] == [2] or any(stop in decoded for stop in params.stop)
        output = SimpleNamespace(
            token_ids=token_ids,
            text=text,
            finish_reason="stop" if ended else "length",
            logprobs=None,
        )
        yield SimpleNamespace(outputs=[output], prompt_logprobs=rows)

    def rows(self, ids: list[int]) -> list[Any]:
        import torch

        with torch.no_grad():
            values = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].float(), -1)
        return [
            None,
            *(
                {token: SimpleNamespace(logprob=values[i, token].item())}
                for i, token in enumerate(ids[1:])
            ),
        ]

    def greedy(self, ids: list[int], most: int, stop: list[str]) -> list[int]:
        import torch

        with torch.no_grad():
            found = self.model.generate(
                torch.tensor([ids]), max_new_tokens=most, do_sample=False, eos_token_id=2
            )
        return found[0, len(ids) :].tolist()


class Trainer:
    """OpenRLHF's modules, imported with the identity in place of Ray's decorator."""

    def __init__(self) -> None:
        with stand_ins():
            import ray
            import vllm
            import vllm.inputs

            ray.remote = lambda *args, **_: args[0] if args else (lambda actor: actor)
            vllm.SamplingParams = SamplingParams
            vllm.inputs.TokensPrompt = dict
            from openrlhf.trainer.ppo_utils import experience_maker, samples_generator
            from openrlhf.trainer.ray import vllm_engine

        self.engine: ModuleType = vllm_engine
        self.samples: ModuleType = samples_generator
        self.experience: ModuleType = experience_maker

    def actor(self, agent: Path, engine: Engine) -> Any:
        """Return a rollout actor, whose executor is loaded from a file as by the trainer."""
        actor = object.__new__(self.engine.RolloutRayActor)
        actor.executor = self.engine._load_agent_executor(str(agent))
        actor.llm, actor._mm_pad_token_ids = engine, None
        return actor

    def experiences(self, responses: list[dict[str, Any]]) -> list[Any]:
        """Return the experiences that the trainer creates from them."""
        convert = self.samples.SamplesGenerator._process_response_into_experience
        return [convert(None, response, max_len=4096) for response in responses]


def sampling(tokens: int = 400) -> SamplingParams:
    """Return the sampling parameters of the trainer for a prompt."""
    return SamplingParams(
        temperature=1.0, top_k=-1, max_tokens=tokens, min_tokens=1, skip_special_tokens=False
    )

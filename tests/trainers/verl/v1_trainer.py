"""verl's V1 trainer on two CPU cores, with doubles of the parts that need a GPU.

The real parts are the loop of the trainer, agent workers and loops, TransferQueue, replay buffer,
load balancer, client, data loader, batch balancing, advantages, validation and logging. The doubles
are the engine behind the server (a tiny model with fixed replies, which scores like vLLM), the
update of the actor, and the transfer of weights to the engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "models"))

import turn_rollouts  # noqa: E402
from tiny_models import TEMPLATE, save  # noqa: E402

__all__ = ["TEMPLATE", "save", "turn_rollouts"]


SAMPLER = "pkg://rag_rewards_adapters.verl_sampler"
LENGTHS = {"prompt_length": 700, "response_length": 160, "max_model_len": 1000}


# --- data ----------------------------------------------------------------------------------------


def question(name: str, **fields: Any) -> dict[str, Any]:
    """Return a row with two documents, of which the first supports the answer."""
    documents = [
        {"id": 1, "title": name, "text": f"{name} lies on the river Seine."},
        {"id": 2, "title": "Lyon", "text": "Lyon lies on the river Rhone."},
    ]
    question_text = f"Which river runs through {name}?"
    blocks = "\n\n".join(f"[{d['id']}] {d['title']}\n{d['text']}" for d in documents)
    return {
        "data_source": "rivers",
        "prompt": [{"role": "user", "content": f"{blocks}\n\n{question_text}"}],
        "reward_model": {
            "style": "rule",
            "ground_truth": json.dumps({"answers": ["Seine", "the Seine"], "supporting": [1]}),
        },
        "extra_info": {"index": name, "question": question_text, "documents": documents, **fields},
    }


def arena(answer: str, cited: str = "[1]", think: str = "") -> str:
    """Return a response in the format of ARENA."""
    return (
        f"<relevance>{cited}</relevance><analysis>{think or 'Look.'}</analysis>"
        f"<answer>{answer}</answer>"
    )


def rational(answer: str) -> str:
    """Return a response in the format of LEAR."""
    return f"<reason>It is there.</reason><extract>The Seine.</extract><answer>{answer}</answer>"


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    import pandas

    pandas.DataFrame(rows).to_parquet(path)
    return str(path)


# --- the engine ----------------------------------------------------------------------------------


class Engine:
    """A double of verl's vLLM server, with a tiny model in this process.

    `replies` maps a part of a prompt to the replies to it, in turn; None is a failure. The model
    continues a prompt that ends with an opened <answer>. The code follows verl's
    vLLMHttpServer.generate and extract_prompt_logprobs.
    """

    def __init__(self, folder: str, replies: dict[str, list[str | None]], limit: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.replies, self.limit = replies, limit
        self.global_steps = 0
        self.turns: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        room = self.limit - len(prompt_ids)
        if room < 1:
            raise ValueError(f"Prompt length ({len(prompt_ids)}) leaves no room to generate")
        most = min(sampling_params.pop("max_tokens", LENGTHS["response_length"]), room)
        fields: dict[str, Any] = {"global_steps": self.global_steps, "num_cached_tokens": 0}
        await asyncio.sleep(0)
        if sampling_params.get("prompt_logprobs") is not None:
            self.calls["scored"] += 1
            fields.update(self.prompt_logprobs(prompt_ids))
            token_ids = [2]
        else:
            token_ids = self.reply_tokens(prompt_ids, sampling_params.get("stop"))
        token_ids = token_ids[:most]
        logprobs = [-0.5] * len(token_ids) if sampling_params.pop("logprobs", False) else None
        return TokenOutput(
            token_ids=token_ids, log_probs=logprobs, stop_reason="completed", extra_fields=fields
        )

    def prompt_logprobs(self, ids: list[int]) -> dict[str, Any]:
        import torch

        with torch.no_grad():
            rows = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].float(), -1)
        values = [[rows[i, token].item()] for i, token in enumerate(ids[1:])]
        return {"prompt_logprobs": [*values, [0.0]], "prompt_ids": [*([t] for t in ids[1:]), [0]]}

    def reply_tokens(self, ids: list[int], stop: Any) -> list[int]:
        prompt = self.tokenizer.decode(ids)
        if stop is not None:
            self.calls["masked"] += 1
            return self.greedy(ids)
        self.calls["sampled"] += 1
        name = max((name for name in self.replies if name in prompt), key=len)
        turn = self.turns[name]
        self.turns[name] += 1
        text = self.replies[name][turn % len(self.replies[name])]
        if text is None:
            raise RuntimeError("the engine is dead")
        return [*self.tokenizer.encode(text, add_special_tokens=False), 2]

    def greedy(self, ids: list[int], length: int = 8) -> list[int]:
        import torch

        with torch.no_grad():
            generated = self.model.generate(
                torch.tensor([ids]), max_new_tokens=length, do_sample=False, pad_token_id=0
            )
        return generated[0, len(ids) :].tolist()

    def set_global_steps(self, global_steps: int) -> None:
        self.global_steps = global_steps


class Served:
    """A double of verl's vLLM server that forwards requests to a vLLM server at an address."""

    def __init__(self, url: str, limit: int) -> None:
        import httpx

        self.client = httpx.AsyncClient(base_url=url, timeout=120)
        self.limit, self.global_steps = limit, 0

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        most = min(
            sampling_params.pop("max_tokens", LENGTHS["response_length"]),
            self.limit - len(prompt_ids),
        )
        logprobs = 0 if sampling_params.pop("logprobs", False) else None
        body = {"model": None, "prompt": [prompt_ids], "max_tokens": most, "logprobs": logprobs}
        answer = await self.client.post(
            "/v1/completions", json={**body, **sampling_params, "return_token_ids": True}
        )
        answer.raise_for_status()
        (choice,) = answer.json()["choices"]
        fields: dict[str, Any] = {"global_steps": self.global_steps}
        if sampling_params.get("prompt_logprobs") is not None:
            rows = [next(iter(row.items())) for row in choice["prompt_logprobs"][1:]]
            fields["prompt_logprobs"] = [*([row["logprob"]] for _, row in rows), [0.0]]
            fields["prompt_ids"] = [*([int(token)] for token, _ in rows), [0]]
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=choice["logprobs"]["token_logprobs"] if logprobs is not None else None,
            stop_reason="completed",
            extra_fields=fields,
        )

    def set_global_steps(self, global_steps: int) -> None:
        self.global_steps = global_steps


# --- configuration -------------------------------------------------------------------------------


def configuration(folder: str, recipe: str, *overrides: str) -> Any:
    """Return verl's configuration with the changes that these tests need."""
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    kwargs = "reward.custom_reward_function.reward_kwargs"
    rollout = "actor_rollout_ref.rollout"
    defaults = [
        f"actor_rollout_ref.model.path={folder}",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        f"{rollout}.name=vllm",
        f"{rollout}.dtype=float32",
        f"{rollout}.n=3",
        f"{rollout}.val_kwargs.n=1",
        f"{rollout}.calculate_log_probs=True",
        *(f"{rollout}.{name}={value}" for name, value in LENGTHS.items()),
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.agent.default_agent_loop=rag_group",
        f"+{kwargs}.recipe={recipe}",
    ]
    with initialize_config_dir(
        str(Path(verl.__file__).parent / "trainer/config"), version_base=None
    ):
        config = compose("ppo_trainer", overrides=[*defaults, *overrides])
    OmegaConf.resolve(config)
    return config


def tool_overrides(folder: Path, tools: str) -> list[str]:
    """Return the settings of `rag_group` around verl's tool agent, with the code of its tools."""
    module, loops = folder / "tools.py", folder / "loops.yaml"
    module.write_text(tools)
    loops.write_text(
        "- name: rag_group\n"
        "  _target_: rag_rewards_adapters.verl_group.RagGroupAgentLoop\n"
        "  inner: tool_agent\n"
    )
    rollout = "actor_rollout_ref.rollout"
    return [
        f"{rollout}.multi_turn.enable=True",
        f"{rollout}.multi_turn.format=hermes",
        f"{rollout}.multi_turn.function_tool_path={module}",
        f"{rollout}.agent.agent_loop_config_path={loops}",
    ]


# --- the trainer ---------------------------------------------------------------------------------


def trainer_overrides(train: str, val: str) -> list[str]:
    return [
        f"data.train_files={train}",
        f"data.val_files={val}",
        "data.train_batch_size=2",
        "data.shuffle=False",
        "data.dataloader_num_workers=0",
        f"data.max_prompt_length={LENGTHS['prompt_length']}",
        f"data.max_response_length={LENGTHS['response_length']}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "algorithm.adv_estimator=grpo",
        "algorithm.norm_adv_by_std_in_grpo=False",
        "algorithm.rollout_correction.bypass_mode=True",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "++trainer.v1.sampler.sampler_kwargs.poll_interval=0.1",
        "trainer.use_v1=True",
        "trainer.v1.trainer_mode=sync",
        "trainer.v1.sampler.sync_refill_failed_groups=True",
        f"trainer.v1.sampler.custom_sampler.path={SAMPLER}",
        "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer",
        "trainer.n_gpus_per_node=1",
        "trainer.logger=[file]",
        "trainer.resume_mode=disable",
        "trainer.total_training_steps=2",
        "trainer.total_epochs=4",
        "trainer.test_freq=2",
        "trainer.save_freq=-1",
        "trainer.device=cpu",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    ]


def stand_in(monkeypatch: Any, server: Any, batches: list[dict[str, Any]]) -> None:
    """Replace the parts of verl that have no CPU version.

    `server` is the handle of an actor with the methods of `Engine`. `batches` gets the batch of
    each update of the actor.
    """
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.workers.rollout.llm_server import LLMServerManager
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

    class Replica(RolloutReplica):
        async def launch_servers(self) -> None:
            self.servers, self._server_handle, self._server_address = [server], server, "stand-in"

    def setup(self: Any) -> None:
        self._init_tokenizer()
        self._init_dataloader()
        self._init_dump_executor()
        self.actor_rollout_wg = SimpleNamespace(
            _dispatch_info={"actor": [0]}, world_size=1, workers=[None]
        )
        # No reward worker is needed: a request to one would fail here.
        self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        self.teacher_model_manager = self.distillation_config = None
        self.llm_server_manager = LLMServerManager.create(
            config=self.config, worker_group=self.actor_rollout_wg
        )
        self.checkpoint_manager = Weights(server)
        self._load_checkpoint()

    def update_actor(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        batches.append(contents(batch))
        return batch

    monkeypatch.setitem(RolloutReplicaRegistry._registry, "vllm", lambda: Replica)
    monkeypatch.setattr(PPOTrainerSync, "_setup", setup)
    monkeypatch.setattr(PPOTrainer, "_update_actor", update_actor)
    monkeypatch.setattr(PPOTrainer, "_get_n_gpus_for_throughput", lambda self: 1)


@contextmanager
def cluster() -> Iterator[None]:
    """Start Ray for a few trainings, and remove its files afterwards."""
    import pytest
    import ray
    from ray_nodes import start_ray

    folder = tempfile.mkdtemp(prefix="ray-")  # sockets need short paths
    env = {
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "TRANSFER_QUEUE_ENABLE": "1",
        "RAY_AUTH_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        start_ray(
            num_cpus=24, include_dashboard=False, _temp_dir=folder, runtime_env={"env_vars": env}
        )
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def train(
    config: Any, server: Any, log: Path, batches: list[dict[str, Any]] | None = None
) -> SimpleNamespace:
    """Run verl's task runner, and return the batches of its actor and the log.

    `batches` gets those of a training that ends with an error, too.
    """
    import pytest
    from verl.trainer.main_ppo import TaskRunnerV1

    batches = [] if batches is None else batches
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_FILE_LOGGER_PATH", str(log))
        stand_in(patch, server, batches)
        TaskRunnerV1.__ray_metadata__.modified_class().run(config)
    lines = map(json.loads, log.read_text().splitlines())
    return SimpleNamespace(batches=batches, logged={line["step"]: line["data"] for line in lines})


def groups_of(batch: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rollouts of a batch by prompt, without padding."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for rollout in batch.values():
        if not rollout["padding"]:
            groups.setdefault(rollout["uid"], []).append(rollout)
    return groups


class Weights:
    """A checkpoint manager that sets the version of the engine's weights."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def update_weights(self, global_steps: int | None = None) -> None:
        import ray

        if global_steps is not None:
            ray.get(self.server.set_global_steps.remote(global_steps))

    def sleep_replicas(self) -> None:
        """Do nothing: there is no memory to free."""


def contents(batch: Any) -> dict[str, Any]:
    """Return the fields of a batch's rollouts, by key."""
    import transfer_queue as tq

    tensors = ["responses", "response_mask", "rm_scores", "advantages"]
    objects = ["extra_fields", "extra_info"]
    data = tq.kv_batch_get(
        keys=batch.keys,
        partition_id=batch.partition_id,
        select_fields=["uid", *tensors, *objects],
    )
    columns = {name: [getattr(v, "data", v) for v in list(data[name])] for name in objects}
    columns |= {name: [v.tolist() for v in data[name].unbind()] for name in tensors}
    columns["uid"] = [getattr(v, "data", v) for v in list(data["uid"])]
    return {
        key: {name: values[i] for name, values in columns.items()}
        | {"padding": bool(tag.get("is_padding"))}
        for i, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True))
    }

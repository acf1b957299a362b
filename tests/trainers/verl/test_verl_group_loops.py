"""`rag_group` in verl's own agent worker, without Ray; TransferQueue is a dict."""

from __future__ import annotations

import asyncio
import gc
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import v1_trainer as v1
from rag_rewards_adapters import engine_policy
from rag_rewards_adapters.verl.rows import RolloutReader
from tensordict import NonTensorData
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils import tensordict_utils as tu

import rag_rewards as rr
from rag_rewards.errors import GroupError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.scorer import Scorer

Worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class


class Queue:
    """TransferQueue as a dict: tags and fields by key."""

    def __init__(self):
        self.tags, self.fields = {}, {}

    def init(self):
        pass

    async def async_kv_put(self, key, partition_id, tag):
        self.tags.setdefault(key, {}).update(tag)

    async def async_kv_batch_put(self, keys, fields, tags, partition_id):
        for i, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            self.tags[key] = tag
            self.fields[key] = {name: fields[i][name] for name in fields.keys()}  # noqa: SIM118

    def status(self, uid):
        return self.tags[uid]["status"]

    def sessions(self, uid):
        """Return the reward, the extra information and the text of each session."""
        sessions_by_id = {}
        for key, fields in self.fields.items():
            name, session, _ = key.rsplit("_", 2)
            if name == uid:
                extra = fields["extra_fields"]
                sessions_by_id[int(session)] = SimpleNamespace(
                    reward=fields["rm_scores"].tolist(),
                    extra=getattr(extra, "data", extra),
                    response=fields["responses"].tolist(),
                    turns=int(getattr(fields["num_turns"], "data", fields["num_turns"])),
                )
        return [sessions_by_id[i] for i in sorted(sessions_by_id)]


class Client:
    """The engine with the interface of an agent loop's client, without a load balancer."""

    def __init__(self, engine):
        self.engine = engine

    async def generate(self, request_id, *, prompt_ids, sampling_params, **media):
        output = await self.engine.generate(prompt_ids, dict(sampling_params), request_id)
        step = output.extra_fields["global_steps"]
        output.extra_fields.setdefault("min_global_steps", step)
        output.extra_fields.setdefault("max_global_steps", step)
        return output


def run_worker(
    monkeypatch, config, engine, rows, *, validate=False, client=Client, steps=(7,), before=None
):
    """Run verl's worker over rows, one prompt each, and return the queue at the end.

    The rows are those of each step, with further uids. `before` is called before each step.
    """
    queue = Queue()
    monkeypatch.setattr(agent_loop_tq, "tq", queue)

    async def run():
        worker = Worker(config, client(engine), reward_loop_worker_handles=[])
        for i, step in enumerate(steps):
            if before is not None:
                before(step)
            batch = batch_of(rows, first=i * len(rows))
            batch["global_steps"] = NonTensorData(step)
            if validate:
                batch["validate"] = NonTensorData(True)
            await worker.generate_sequences(batch)
            await asyncio.wait_for(asyncio.gather(*worker.background_tasks), 60)

    asyncio.run(run())
    gc.collect()
    return queue


def batch_of(rows, first):
    """Return a batch with one prompt for each row. The uids are numbered from `first`."""
    columns = ("data_source", "reward_model", "extra_info")
    return tu.get_tensordict(
        {
            **{name: np.array([row[name] for row in rows], dtype=object) for name in columns},
            "raw_prompt": np.array([row["prompt"] for row in rows] + [None], dtype=object)[:-1],
            "uid": np.array([f"uid-{first + i}" for i in range(len(rows))], dtype=object),
            "index": np.array([0] * len(rows), dtype=object),
            "tools_kwargs": np.array([{}] * len(rows), dtype=object),
        }
    )


def engine_of(model, replies):
    return v1.Engine(model, replies, v1.LENGTHS["max_model_len"])


def rollout(row, response, **fields):
    extra = row["extra_info"]
    gold = json.loads(row["reward_model"]["ground_truth"])
    fields_of_row = {"question": extra["question"], "documents": extra["documents"]}
    return rr.decode_row({**fields_of_row, **gold, "group": "g", "response": response, **fields})


def rewards_of(queue, uid="uid-0"):
    return [session.reward[-1] for session in queue.sessions(uid)]


def infos_of(queue, uid="uid-0"):
    return [session.extra["reward_extra_info"] for session in queue.sessions(uid)]


def test_rule_rewards_of_a_group(monkeypatch, model):
    texts = [v1.arena("Seine"), v1.arena("Rhone"), "no format"]
    row, engine = v1.question("Paris"), engine_of(model, {"Paris": texts})
    queue = run_worker(monkeypatch, v1.configuration(model, "arena"), engine, [row])
    assert queue.status("uid-0") == "finished"
    expected = rr.recipe("arena")([rollout(row, text) for text in texts])
    assert sorted(rewards_of(queue)) == sorted(score.value for score in expected)
    for session in queue.sessions("uid-0"):
        text = engine.tokenizer.decode(session.response[:-1])
        score = expected[texts.index(text)]
        assert session.reward == [0.0] * (len(session.response) - 1) + [score.value]
        info = session.extra["reward_extra_info"]
        assert info == {**score.components, "acc": score.correct}
        assert all(type(value) is float for value in info.values())
        assert session.turns == 2
        assert session.extra["min_global_steps"] == session.extra["max_global_steps"] == 0
        assert session.extra["turn_scores"] == []


def test_validation_scores_a_group_of_one(monkeypatch, model):
    row = v1.question("Paris")
    queue = run_worker(
        monkeypatch,
        v1.configuration(model, "arena"),
        engine_of(model, {"Paris": [v1.arena("Seine")]}),
        [row],
        validate=True,
    )
    assert rewards_of(queue) == [13.0]


def logprob_reward(model, row, texts):
    """Score the same group with a transformers policy in this process."""
    policy = TransformersPolicy.load(model, dtype="float32", device="cpu")
    tokenizer = policy.tokenizer
    prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)
    ids = prompt["input_ids"] if hasattr(prompt, "keys") else prompt
    rollouts = [
        rollout(
            row,
            text,
            prompt=row["prompt"],
            prompt_token_ids=ids,
            response_token_ids=[*tokenizer.encode(text, add_special_tokens=False), 2],
        )
        for text in texts
    ]
    scorer = Scorer(rr.recipe("ctrl-rag", {"threshold": None}), Models(policy=policy))
    return scorer.score_each(rollouts, [range(len(texts))])


async def check():
    """A self-check that always passes. The real one is tested elsewhere."""


def test_log_probabilities_come_from_the_rollout_engine(monkeypatch, model):
    texts = ["<think>a</think><answer>Seine</answer>", "<answer>the Seine</answer>", "Rhone"]
    # Each prompt has its own replies: the order of the sessions of two prompts is not fixed.
    rows = {"uid-0": v1.question("Paris"), "uid-1": v1.question("Rouen")}
    engine = engine_of(model, {"Paris": texts, "Rouen": texts})
    config = v1.configuration(
        model, "ctrl-rag", "+reward.custom_reward_function.reward_kwargs.settings.threshold=null"
    )
    checks = []
    monkeypatch.setattr(engine_policy, "selfcheck", lambda policy: checks.append(policy) or check())
    queue = run_worker(monkeypatch, config, engine, list(rows.values()))
    assert len(checks) == 1  # once per worker
    for uid, row in rows.items():
        expected = dict(zip(texts, logprob_reward(model, row, texts), strict=True))
        sessions = queue.sessions(uid)
        assert len(sessions) == 3
        for session in sessions:
            score = expected[engine.tokenizer.decode(session.response[:-1])]
            assert session.reward[-1] == pytest.approx(score.value, abs=1e-5)
            info = session.extra["reward_extra_info"]
            for name, value in score.components.items():
                assert info[name] == pytest.approx(value, abs=1e-4)
        values = {score.components["evidential_contribution"] for score in expected.values()}
        assert len(values) == 3


def test_masked_answers_come_from_the_rollout_engine(monkeypatch, model):
    texts = [v1.rational("Seine"), v1.rational("Rhone").replace("It is", "Here it is")]
    row, engine = v1.question("Paris"), engine_of(model, {"Paris": texts})
    config = v1.configuration(model, "lear", "actor_rollout_ref.rollout.n=2")
    queue = run_worker(monkeypatch, config, engine, [row])
    assert engine.calls["masked"] == 3  # the evidence of both is equal, so it is requested once
    infos = infos_of(queue)
    assert all(set(info) == set(infos[0]) for info in infos)
    policy = TransformersPolicy.load(model, dtype="float32", device="cpu")
    scorer = Scorer(rr.recipe("lear"), Models(policy=policy))
    rollouts = [rollout(row, text, prompt=row["prompt"]) for text in texts]
    expected = dict(zip(texts, scorer.score_each(rollouts), strict=True))
    for session in queue.sessions("uid-0"):
        text = engine.tokenizer.decode(session.response[:-1])
        assert session.reward[-1] == pytest.approx(expected[text].value, abs=1e-6)


TOOLS = '''
from verl.tools.function_tool import function_tool


@function_tool
def search(query: str) -> str:
    """Search the documents.

    Args:
        query: What to look for.
    """
    return "<answer>Rhone</answer> is what the tool says."
'''
CALL = '<tool_call>{"name": "search", "arguments": {"query": "river"}}</tool_call>'


def with_tools(tmp_path, model, recipe, *overrides):
    response = "actor_rollout_ref.rollout.response_length=400"
    tools = v1.tool_overrides(tmp_path, TOOLS)
    return v1.configuration(model, recipe, response, *tools, *overrides)


def test_tool_messages_are_not_part_of_the_response(monkeypatch, model, tmp_path, registry):
    row = v1.question("Paris")
    engine = engine_of(model, {"Paris": [CALL], "what the tool says": [v1.arena("Seine")]})
    config = with_tools(tmp_path, model, "arena")
    queue = run_worker(monkeypatch, config, engine, [row])
    assert engine.calls["sampled"] == 6
    assert rewards_of(queue) == [13.0] * 3
    for session in queue.sessions("uid-0"):
        assert session.turns == 4
        assert "what the tool says" in engine.tokenizer.decode(session.response)


def test_log_probabilities_of_several_turns_are_refused(
    monkeypatch, model, tmp_path, registry, caplog
):
    row = v1.question("Paris")
    engine = engine_of(model, {"Paris": [CALL], "what the tool says": ["<answer>Seine</answer>"]})
    queue = run_worker(monkeypatch, with_tools(tmp_path, model, "ctrl-rag"), engine, [row])
    assert queue.status("uid-0") == "failure"
    assert queue.sessions("uid-0") == []
    assert "a response of several messages requires its token ids" in caplog.text


def test_a_failed_session_fails_its_group(monkeypatch, model, caplog):
    rows = [v1.question("Paris"), v1.question("Rouen")]
    texts = [v1.arena("Seine")]
    engine = engine_of(model, {"Paris": [*texts, None, *texts], "Rouen": texts})
    queue = run_worker(monkeypatch, v1.configuration(model, "arena"), engine, rows)
    assert queue.status("uid-0") == "failure"
    assert queue.sessions("uid-0") == []
    assert "another session of the prompt failed: RuntimeError: the engine is dead" in caplog.text
    assert queue.status("uid-1") == "finished"
    assert rewards_of(queue, "uid-1") == [13.0] * 3


def test_a_broken_row_fails_its_group_and_is_named(monkeypatch, model, caplog):
    row = v1.question("Paris", id="row-17")
    row["reward_model"]["ground_truth"] = json.dumps({"answers": ["Seine"], "supporting": [9]})
    engine = engine_of(model, {"Paris": [v1.arena("Seine")]})
    queue = run_worker(monkeypatch, v1.configuration(model, "arena"), engine, [row])
    assert queue.status("uid-0") == "failure"
    assert queue.sessions("uid-0") == []
    assert (
        "row row-17: supporting[0]: document id 9 does not exist (documents: 1, 2)" in caplog.text
    )


def test_an_unknown_inner_loop_is_named(monkeypatch, model, tmp_path, registry, caplog):
    config = with_tools(tmp_path, model, "arena")
    path = tmp_path / "loops.yaml"
    path.write_text(path.read_text().replace("tool_agent", "tool_agnt"))
    engine = engine_of(model, {"Paris": [v1.arena("Seine")]})
    queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
    assert queue.status("uid-0") == "failure"
    assert (
        "inner=tool_agnt is not an agent loop (available: single_turn_agent, tool_agent)"
        in caplog.text
    )


def test_a_prefilled_think_tag_belongs_to_the_response(monkeypatch, model):
    rollouts = rollouts_of(monkeypatch)
    template = v1.TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    config = v1.configuration(model, "naive-grpo")
    config.actor_rollout_ref.model.custom_chat_template = template
    engine = engine_of(model, {"Paris": ["Look.</think><answer>Seine</answer>"]})
    queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
    assert [rollout.response_prefix for rollout in rollouts] == ["<think>\n"] * 3
    assert {rollout.finish_reason for rollout in rollouts} == {"stop"}
    assert {rollout.step for rollout in rollouts} == {7}
    assert rewards_of(queue) == [2.0] * 3


def rollouts_of(monkeypatch):
    """Return a list that receives each rollout that the agent loop reads."""
    rollouts, read = [], RolloutReader.of_output

    async def spy(*arguments):
        rollouts.append(await read(*arguments))
        return rollouts[-1]

    monkeypatch.setattr(RolloutReader, "of_output", spy)
    return rollouts


def test_a_response_of_the_maximum_length_is_truncated(monkeypatch, model):
    rollouts = rollouts_of(monkeypatch)
    engine = engine_of(model, {"Paris": ["word " * 200]})
    queue = run_worker(
        monkeypatch, v1.configuration(model, "arena"), engine, [v1.question("Paris")]
    )
    assert [rollout.finish_reason for rollout in rollouts] == ["length"] * 3
    assert not any(math.isnan(reward) for reward in rewards_of(queue))
    assert torch.tensor(queue.sessions("uid-0")[0].reward).numel() == v1.LENGTHS["response_length"]


@pytest.mark.parametrize(("name", "free"), [("vllm", 0), ("sglang", 1)])
def test_a_response_that_fills_the_context_is_truncated(monkeypatch, model, name, free):
    """SGLang leaves one token of the context free."""
    rollouts = rollouts_of(monkeypatch)
    row, words = v1.question("Paris"), "word " * 20
    engine = engine_of(model, {"Paris": [words]})
    tokenizer = engine.tokenizer
    prompt = tokenizer.apply_chat_template(
        row["prompt"], tokenize=False, add_generation_prompt=True
    )
    length = len(tokenizer.encode(prompt + words, add_special_tokens=False)) + 1
    reasons = {}
    for room in (length - 1, length):
        engine = v1.Engine(model, {"Paris": [words]}, room)
        config = v1.configuration(model, "arena")
        config.actor_rollout_ref.rollout.name = name
        config.actor_rollout_ref.rollout.max_model_len = room + free
        run_worker(monkeypatch, config, engine, [row])
        rollout = rollouts[-1]
        assert len(rollout.prompt_token_ids) + len(rollout.response_token_ids) == room
        reasons[room] = rollout.finish_reason
    assert reasons == {length - 1: "length", length: "stop"}


def legacy(config, engine, row, count):
    """Run the worker of trainers before V1, which gets sessions as rows of a batch."""

    async def run():
        worker = AgentLoopWorker(config, Client(engine))
        batch = DataProto.from_dict(
            tensors={"dummy": torch.zeros(count, 1)},
            non_tensors={
                "uid": np.array(["uid-0"] * count, dtype=object),
                "raw_prompt": np.array([row["prompt"]] * count + [None], dtype=object)[:-1],
                "reward_model": np.array([row["reward_model"]] * count, dtype=object),
                "extra_info": np.array([row["extra_info"]] * count, dtype=object),
            },
        )
        return await worker.generate_sequences(batch)

    return asyncio.run(run())


def test_trainers_before_v1_score_complete_groups(model):
    texts = [v1.arena("Seine"), v1.arena("Rhone"), "no format"]
    config, engine = v1.configuration(model, "arena"), engine_of(model, {"Paris": texts})
    batch = legacy(config, engine, v1.question("Paris"), 3)
    expected = rr.recipe("arena")([rollout(v1.question("Paris"), text) for text in texts])
    rewards = batch.batch["rm_scores"].sum(-1).tolist()
    assert sorted(rewards) == sorted(score.value for score in expected)
    assert set(batch.meta_info["reward_extra_keys"]) == {*expected[0].components, "acc"}


def test_a_group_divided_over_workers_is_refused(model):
    config = v1.configuration(model, "arena")
    engine = engine_of(model, {"Paris": [v1.arena("Seine")]})
    with pytest.raises(GroupError, match=r"the prompt has 2 sessions.* are 3 and 1"):
        legacy(config, engine, v1.question("Paris"), 2)

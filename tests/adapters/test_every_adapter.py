"""What every adapter does with a rollout: the prompt that the policy saw, and the option `dump`.

Each function calls an adapter as its trainer does, with one rollout, and returns the scorer. The
adapters of TRL are tested inside TRL.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters import ms_swift, verl
from rag_rewards_adapters.callables import batch, each
from rag_rewards_adapters.nemo_gym import Verifier
from rag_rewards_adapters.openrlhf import agent, reward_function
from rag_rewards_adapters.skyrl import SkyRLRecipe
from rag_rewards_adapters.slime import SlimeRecipe
from rag_rewards_adapters.tinker import GroupRewards
from rag_rewards_adapters.verifiers import EpisodeReward, _rollout

from rag_rewards import Models
from rag_rewards.errors import DataError
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TablePolicy

REPLY = "<answer>Seine</answer>"
TEXT = "My words. [1] Paris lies on the Seine.\nWhich river?"
CHAT = [{"role": "user", "content": TEXT}]
GOLD = {
    "id": "7",
    "answers": ["Seine"],
    "supporting": [1],
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
}
IDS, REPLY_IDS = list(map(ord, TEXT)), list(map(ord, REPLY))


def text_of(ids: Any, **_: Any) -> str:
    return "".join(map(chr, ids))


def of_each(models: Models, **options: Any) -> Scorer:
    function = each(**options)
    function.scorer.models = models
    function({**GOLD, "prompt": CHAT, "response": REPLY})
    return function.scorer


def of_batch(models: Models, **options: Any) -> Scorer:
    function = batch(**options)
    function.scorer.models = models
    assert None not in function([{**GOLD, "prompt": CHAT, "response": REPLY}])
    return function.scorer


def of_slime(models: Models, **options: Any) -> Scorer:
    recipe = SlimeRecipe(**options)
    recipe.scorer.models = models
    sample = SimpleNamespace(
        prompt=TEXT,
        label=json.dumps(GOLD),
        response=REPLY,
        response_length=len(REPLY_IDS),
        tokens=[*IDS, *REPLY_IDS],
        loss_mask=None,
        metadata={},
        status=SimpleNamespace(value="completed"),
        weight_versions=[],
    )
    asyncio.run(recipe.score(SimpleNamespace(group_rm=True), [sample]))
    return recipe.scorer


def of_skyrl(models: Models, **options: Any) -> Scorer:
    recipe = SkyRLRecipe(**options)
    recipe.scorer.models = models
    output = {
        "prompt_token_ids": [[*IDS, *map(ord, "\n\n")]],  # the template of the policy
        "response_ids": [REPLY_IDS],
        "loss_masks": [[1] * len(REPLY_IDS)],
        "env_metrics": [{"rag_turns": [{"text": REPLY}]}],
    }
    given = {
        "prompts": [CHAT],
        "env_extras": [GOLD],
        "trajectory_ids": [SimpleNamespace(instance_id="q")],
        "batch_metadata": SimpleNamespace(global_step=9, training_phase="eval"),
    }
    asyncio.run(recipe.score(given, output))
    return recipe.scorer


def of_tinker(models: Models, **options: Any) -> Scorer:
    rewards = GroupRewards(**options)
    rewards.scorer.models = models
    seen, after = (SimpleNamespace(to_ints=lambda ids=ids: ids) for ids in (IDS, IDS + REPLY_IDS))
    step = SimpleNamespace(ob=seen, ac=SimpleNamespace(tokens=REPLY_IDS, stop_reason="stop"))
    asyncio.run(rewards(GOLD, [SimpleNamespace(transitions=[step], final_ob=after)], text_of))
    return rewards.scorer


def of_nemo_gym(models: Models, **options: Any) -> Scorer:
    verifier = Verifier(options)
    verifier.scorer.models = models
    message = {"type": "message", "role": "assistant", "content": REPLY}
    request = {
        "responses_create_params": {"input": CHAT},
        "verifier_metadata": GOLD,
        "response": {"output": [message]},
    }
    asyncio.run(verifier.score(request))
    return verifier.scorer


def of_openrlhf(models: Models, **options: Any) -> Scorer:
    reward = reward_function(**options)
    reward.scorer.models = models
    reward([TEXT + REPLY], [TEXT], [json.dumps(GOLD)])
    return reward.scorer


def of_the_executor(models: Models, **options: Any) -> Scorer:
    recipe, named, dump = agent._read_options(options)
    further: dict[str, Any] = {"std_floor": None, "error_value": None, "patience": 1}
    scoring = agent.AgentScoring(recipe, named, None, has_turns=False, dump=dump, **further)
    scoring._scorer = Scorer(recipe, models, dump=dump)
    tokenizer = SimpleNamespace(eos_token_id=0, pad_token_id=0, decode=text_of)
    output = {
        "observation_tokens": [*IDS, *REPLY_IDS],
        "action_ranges": [(len(IDS), len(IDS) + len(REPLY_IDS))],
        "truncated": False,
    }

    async def generate() -> Any:
        return output

    call = agent.Call(TEXT, json.dumps(GOLD), None, 9999, tokenizer, None)
    asyncio.run(scoring.run(call, generate))
    return scoring._scorer


class Message(SimpleNamespace):
    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(vars(self))


class Trace:
    """The fields of verifiers' Trace that the adapter reads."""

    last_reply, root_reply, ok = REPLY, None, True

    def __init__(self, nodes: list[Any]) -> None:
        data = SimpleNamespace(model_dump=lambda: GOLD, prompt_text="Which river?")
        self.nodes, self.task = nodes, SimpleNamespace(data=data)
        self.assistant_messages = [SimpleNamespace(content=REPLY, reasoning_content=None)]

    def record_metrics(self, values: Any) -> None: ...

    def record_reward(self, name: str, value: float) -> None: ...


def node(role: str, content: str, *, sampled: bool) -> Any:
    message = Message(role=role, content=content)
    return SimpleNamespace(sampled=sampled, message=message, mask=[sampled] * 2)


def of_verifiers(models: Models, **options: Any) -> Scorer:
    reward = EpisodeReward(**options)
    reward.scorer.models = models
    nodes = [node("user", TEXT, sampled=False), node("assistant", REPLY, sampled=True)]
    asyncio.run(reward([Trace(nodes)]))
    return reward.scorer


def of_ms_swift(models: Models, **options: Any) -> Scorer:
    reward = ms_swift.reward_class("own", **options)()
    reward.scorer.models = models
    columns = {name: [value] for name, value in GOLD.items()}
    messages = [*CHAT, {"role": "assistant", "content": REPLY}]
    state = SimpleNamespace(global_step=8)
    reward([REPLY], messages=[messages], prompt_id=["a"], trainer_state=state, **columns)
    return reward.scorer


def of_compute_score(models: Models, **options: Any) -> Scorer:
    """verl passes no prompt to a reward function, which refuses models for this reason."""
    scorer = verl.compute_score.scorer(options)
    verl.compute_score("qa", REPLY, json.dumps(GOLD), {"index": 7}, **options)
    return scorer


WITH_PROMPT = [
    of_each,
    of_batch,
    of_slime,
    of_skyrl,
    of_tinker,
    of_nemo_gym,
    of_openrlhf,
    of_the_executor,
    of_verifiers,
    of_ms_swift,
]


@pytest.mark.parametrize("call", WITH_PROMPT)
def test_likelihoods_are_those_under_the_prompt_of_the_trainer(call: Any) -> None:
    """The recipe has a prompt of its own, which the policy never saw."""
    contexts: list[str] = []

    def logprobs(context: tuple[int, ...], response: tuple[int, ...]) -> list[float]:
        contexts.append(text_of(context))
        return [-1.0] * len(response)

    call(Models(policy=TablePolicy(logprobs)), recipe="ctrl-rag-clr")
    assert any("Paris lies on the Seine." in context for context in contexts)
    assert any("Paris lies on the Seine." not in context for context in contexts)
    assert all("My words. " in context for context in contexts)


@pytest.mark.parametrize("call", [*WITH_PROMPT, of_compute_score])
def test_every_adapter_dumps_its_rollouts(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    call(Models(), recipe="naive-grpo", dump=str(path)).close()
    [row] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert (row["reward"], row["id"].partition("/")[0]) == (1.0, "7")
    steps = {of_skyrl: (9, "validation"), of_ms_swift: (9, None)}
    assert (row.get("step"), row.get("split")) == steps.get(call, (None, None))
    assert ("prompt" in row) == (call is not of_compute_score and call is not of_tinker)


def test_a_trajectory_without_a_prompt_is_an_error() -> None:
    scorer = Scorer.load("ctrl-rag-clr")
    scorer.models = Models(policy=TablePolicy())
    trace = Trace([node("assistant", REPLY, sampled=True)])
    missing = _rollout(scorer, trace.task.data, trace)
    assert str(missing).startswith("prompt: missing: no message of the trace")
    rewards = GroupRewards("ctrl-rag-clr")
    rewards.scorer.models = scorer.models
    scored = rewards(GOLD, [SimpleNamespace(transitions=[], final_ob=None)], text_of)
    with pytest.raises(DataError, match="prompt: missing: the trajectory has no transition"):
        asyncio.run(scored)

"""Likelihoods of answers after turns, from the engine that OpenRLHF's actor holds."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rag_rewards_adapters.openrlhf.engine import OpenRlhfEnginePolicy
from rollout_actor import Engine, SamplingParams, Trainer

sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
import turn_rollouts
from tiny_models import VOCABULARY, make_model, make_tokenizer, naive

from rag_rewards import recipe
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models, ScoreRequest
from rag_rewards.scorer import Scorer

REWARD = recipe("igpo", {"gain.alias": "best"})
AGENT = "from openrlhf.utils.agent import SingleTurnAgentExecutor as AgentExecutor\n"


def test_the_values_are_those_of_naive_scoring_with_the_current_weights(tmp_path: Path) -> None:
    tokenizer, engine = make_tokenizer(), Engine([""])
    encode = partial(tokenizer.encode, add_special_tokens=False)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    actor = Trainer().actor(agent, engine)
    rows = turn_rollouts.group(VOCABULARY)

    async def gather() -> list[Any]:
        policy = OpenRlhfEnginePolicy(actor, tokenizer, SamplingParams)
        assert "off-policy" not in Scorer(REWARD, Models(policy=policy)).signature
        gatherer = Gatherer(Models(policy=policy), prompt=REWARD.prompt, selfcheck=False)
        before = await gatherer.gather(REWARD, rows)
        engine.model.load_state_dict(make_model("qwen2", 1).state_dict())
        await actor.update_weight("lm_head", "float32", (1,))
        return [before, await gatherer.gather(REWARD, rows)]

    groups = asyncio.run(gather())
    for seed, informed in enumerate(groups):
        model = make_model("qwen2", seed)

        def values(context: Any, answer: Any, model: Any = model) -> Any:
            return naive(model, ScoreRequest((context,), (answer,)))[0, 0]

        for row in informed[:2]:
            expected = turn_rollouts.naive_turn_logprobs(row, encode, values)
            given = turn_rollouts.turn_logprobs_of(row)
            assert turn_rollouts.largest_difference(given, expected) < 1e-4
    pair = (turn_rollouts.turn_logprobs_of(informed[0]) for informed in groups)
    assert turn_rollouts.largest_difference(*pair) > 0.1


def test_an_update_within_a_group_repeats_the_group(tmp_path: Path) -> None:
    tokenizer, engine = make_tokenizer(), Engine([""])
    encode = partial(tokenizer.encode, add_special_tokens=False)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    actor = Trainer().actor(agent, engine)
    scored, rows_of = [], engine.rows

    async def gather() -> list[Any]:
        policy = OpenRlhfEnginePolicy(actor, tokenizer, SamplingParams)

        def rows(ids: list[int]) -> list[Any]:
            scored.append(ids)
            if len(scored) == 3:
                policy.updates.count += 1  # as an update between two requests
                engine.model.load_state_dict(make_model("qwen2", 1).state_dict())
            return rows_of(ids)

        engine.rows = rows  # type: ignore[method-assign]
        gatherer = Gatherer(Models(policy=policy), prompt=REWARD.prompt, selfcheck=False)
        return await gatherer.gather(REWARD, turn_rollouts.group(VOCABULARY))

    informed = asyncio.run(gather())
    assert len(scored) % 2 == 0
    model = make_model("qwen2", 1)
    expected = turn_rollouts.naive_turn_logprobs(
        informed[0],
        encode,
        lambda context, answer: naive(model, ScoreRequest((context,), (answer,)))[0, 0],
    )
    given = turn_rollouts.turn_logprobs_of(informed[0])
    assert turn_rollouts.largest_difference(given, expected) < 1e-4

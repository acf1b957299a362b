"""Golden groups through OpenRLHF's own advantages.

RemoteExperienceMaker is the installed one. What cannot be installed without a GPU is absent and
never called: the names that its imports want from ray, vllm, deepspeed, flash-attn and peft.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from absent import stood_in_for

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import ASKED, GROUPS, RECIPES, Group, Recorded, advantages, bare, centred, scored
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.openrlhf_agent import Call, executor

import rag_rewards as rr
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.scorer import Scorer

EPSILON = 1e-9  # group_norm's own
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""Rewards and advantages are float32 there."""


@pytest.fixture(scope="module")
def maker() -> Any:
    with stood_in_for():
        from openrlhf.trainer.ppo_utils import experience_maker

        yield experience_maker


def run(
    maker: Any, rewards: list[float] | None, n: int, estimator: str, clip: Any = (-10.0, 10.0)
) -> list[list[float]]:
    """Advantages per token of responses of three tokens, the last of them padding."""
    import torch

    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=n, max_new_tokens=8),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
        ),
        reward=SimpleNamespace(clip_range=clip),
        data=SimpleNamespace(max_len=64),
    )
    made = maker.RemoteExperienceMaker(
        *[None] * 4, SimpleNamespace(value=0.0), SimpleNamespace(args=args), None
    )
    count = n if rewards is None else len(rewards)
    experience = maker.Experience(
        index=list(range(count)),
        rewards=None if rewards is None else torch.tensor(rewards),
        kl=torch.zeros(count, 3),
        action_mask=torch.tensor([[1, 1, 0]] * count).bool(),
        info={},
    )
    done = made.compute_advantages_and_returns([experience])
    return done[0].advantages.tolist()


def of_rollouts(tokens: list[list[float]]) -> list[float]:
    """One advantage per rollout: its tokens all have it, padding has none."""
    assert all(row[0] == row[1] and row[2] == 0.0 for row in tokens)
    return [row[0] for row in tokens]


WHOLE = [group for group in GROUPS if group.whole and len(group.rows) > 1]
by_id = pytest.mark.parametrize("group", WHOLE, ids=lambda group: group.id)


@by_id
def test_group_norm_gives_the_golden_advantages(maker: Any, group: Group) -> None:
    rewards = [r for r in scored(group) if r is not None]
    found = of_rollouts(run(maker, rewards, len(rewards), "group_norm"))
    assert found == pytest.approx(advantages(group, epsilon=EPSILON), **TOLERANCE)


@by_id
def test_dr_grpo_centres_alone(maker: Any, group: Group) -> None:
    rewards = [r for r in scored(group) if r is not None]
    found = of_rollouts(run(maker, rewards, len(rewards), "dr_grpo"))
    assert found == pytest.approx(centred(group), **TOLERANCE)


@by_id
def test_an_advantage_sent_as_the_reward_under_dr_grpo_stays_what_it_is(
    maker: Any, group: Group
) -> None:
    sent = advantages(group, std_floor=0.1)
    found = of_rollouts(run(maker, sent, len(sent), "dr_grpo"))
    assert found == pytest.approx(sent, **TOLERANCE)


def test_one_rollout_per_prompt_has_no_advantage_under_dr_grpo_and_nan_under_group_norm(
    maker: Any,
) -> None:
    assert of_rollouts(run(maker, [13.0], 1, "dr_grpo")) == [0.0]
    assert run(maker, [13.0], 1, "group_norm")[0][0] != run(maker, [13.0], 1, "group_norm")[0][0]


def test_the_clip_range_is_applied_after_centring(maker: Any) -> None:
    """ARENA's 13 beside zeros survives group_norm, but centred alone it can pass 10."""
    rewards = [13.0, *[0.0] * 7]
    assert max(of_rollouts(run(maker, rewards, 8, "group_norm"))) == pytest.approx(2.4748737)
    assert max(of_rollouts(run(maker, rewards, 8, "dr_grpo"))) == 10.0
    assert max(of_rollouts(run(maker, rewards, 8, "dr_grpo", (-20, 20)))) == pytest.approx(11.375)


def test_a_partial_group_does_not_reach_the_advantages(maker: Any) -> None:
    """The batch is cut into groups of n_samples_per_prompt: three rewards for four do not fit."""
    with pytest.raises(RuntimeError, match="invalid for input of size 3"):
        run(maker, [1.0, 0.0, 0.5], 4, "group_norm")


def test_a_rollout_without_a_reward_breaks_the_whole_batch(maker: Any) -> None:
    """Its client swallows a failed request and makes the reward None: answer a number instead."""
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        run(maker, None, 2, "group_norm")


# --- the executor ------------------------------------------------------------------------------


class Pieces:
    """A tokenizer of four tokens a text: the golden rows have four log-probabilities."""

    eos_token_id = pad_token_id = None

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        ends = [len(text) * part // 4 for part in range(5)]
        self.pieces += [text[start:end] for start, end in pairwise(ends)]
        return list(range(len(self.pieces) - 4, len(self.pieces)))

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.pieces[i] for i in ids)


def said(row: dict[str, Any], tokenizer: Pieces, prompt: str) -> dict[str, Any]:
    """What the single-turn executor gives for a response."""
    before, own = tokenizer.encode(prompt), tokenizer.encode(row["response"])
    return {
        "observation_tokens": before + own,
        "action_ranges": [(len(before), len(before) + len(own))],
        "truncated": row.get("finish_reason") == "length",
    }


OF_ONE_TURN = [
    group for group in GROUPS if group.whole and group.case not in ("tool turns", "padding rows")
]


@pytest.mark.parametrize("group", OF_ONE_TURN, ids=lambda group: group.id)
@pytest.mark.parametrize("floor", [None, 0.1])
def test_the_executor_gives_the_golden_rewards_and_lears_advantages(
    group: Group, floor: float | None
) -> None:
    scoring = executor(recipe=group.recipe, std_floor=floor)().scoring
    scorer = scoring._scorer = Scorer(scoring.reward)
    scorer.gatherer, scorer.models = Recorded(group), ASKED  # type: ignore[assignment]
    prompt = "Into which sea?\n" + group.rows[0].get("response_prefix", "")
    tokenizer = Pieces()
    call = Call(prompt, group.label, None, tokenizer, None)

    async def sample(row: dict[str, Any]) -> dict[str, Any]:
        async def generate() -> dict[str, Any]:
            return said(row, tokenizer, prompt)

        return await scoring.run(call, generate)

    async def together() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(sample, group.rows))

    outputs = asyncio.run(together())
    sent = [output["reward"] for output in outputs]
    if floor is None:
        assert sent == pytest.approx(group.rewards)
        return
    assert [output["extra_logs"]["raw_reward"] for output in outputs] == pytest.approx(
        group.rewards
    )
    mean = sum(sent) / len(sent)
    golden = advantages(group, std_floor=floor)
    assert [reward - mean for reward in sent] == pytest.approx(golden, abs=1e-9)


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_matrix_says_what_a_server_of_single_rollouts_can_score(recipe: str) -> None:
    entry = cell(recipe, "openrlhf")
    if rr.recipe(recipe).scope == "group":
        assert entry.text.startswith("agent executor")
        with pytest.raises(UsageError, match="compares the rollouts of a group"):
            each(recipe)
    elif entry.state == "works":
        golden = next(group for group in GROUPS if group.id == f"{recipe}: whole group")
        assert [each(recipe)(row) for row in bare(recipe)] == pytest.approx(golden.rewards)
    else:
        with pytest.raises(RolloutError, match=r"nli|verdicts|logprobs|masked_answers"):
            [each(recipe)(row) for row in bare(recipe)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_executor_is_made_for_every_recipe_with_what_the_matrix_says(recipe: str) -> None:
    options = cell(recipe, "openrlhf").options
    loaded = {key: value for key, value in options.items() if key != "nli"}  # no model here
    assert executor(recipe=recipe, **loaded)().scoring.reward.name == recipe


def test_lears_advantage_is_the_executors_since_estimators_are_a_chain_of_conditions(
    maker: Any,
) -> None:
    floor = STD_FLOOR["openrlhf"].options
    assert executor(recipe="lear", **floor)().scoring.options.std_floor == 0.1
    with pytest.raises(Exception, match="advantage_estimator rag_grpo_clip_std"):
        run(maker, [1.0, 0.0], 2, "rag_grpo_clip_std")

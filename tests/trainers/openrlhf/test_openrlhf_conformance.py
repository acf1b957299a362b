"""Golden groups in OpenRLHF's own advantages.

RemoteExperienceMaker is the installed one. Its imports of ray, vllm, deepspeed, flash-attn and
peft, which need a GPU, are doubles and never called.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from missing_modules import stand_ins

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import (
    GROUPS,
    MODELS,
    RECIPES,
    EvidenceGatherer,
    Group,
    advantages,
    bare,
    centred,
    scored,
)
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.openrlhf.agent import Call, executor

import rag_rewards as rr
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.scorer import Scorer

EPSILON = 1e-9  # as in group_norm
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""The trainer computes rewards and advantages in float32."""


@pytest.fixture(scope="module")
def maker() -> Any:
    with stand_ins():
        from openrlhf.trainer.ppo_utils import experience_maker

        yield experience_maker


def run(
    maker: Any, rewards: list[float] | None, n: int, estimator: str, clip: Any = (-10.0, 10.0)
) -> list[list[float]]:
    """Return the advantages per token, for responses of three tokens with one of padding."""
    import torch

    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=n, max_new_tokens=8),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
        ),
        reward=SimpleNamespace(clip_range=clip),
        data=SimpleNamespace(max_len=64),
    )
    maker_of_run = maker.RemoteExperienceMaker(
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
    done = maker_of_run.compute_advantages_and_returns([experience])
    return done[0].advantages.tolist()


def of_rollouts(tokens: list[list[float]]) -> list[float]:
    """Return one advantage per rollout: that of its tokens. Padding has the advantage 0."""
    assert all(row[0] == row[1] and row[2] == 0.0 for row in tokens)
    return [row[0] for row in tokens]


WHOLE = [group for group in GROUPS if group.whole and len(group.rows) > 1]


@pytest.mark.parametrize("group", WHOLE, ids=lambda group: group.id)
def test_golden_advantages(maker: Any, group: Group) -> None:
    rewards = [r for r in scored(group) if r is not None]
    of_lear = advantages(group, std_floor=0.1)
    for given, estimator, expected in (
        (rewards, "group_norm", advantages(group, epsilon=EPSILON)),
        (rewards, "dr_grpo", centred(group)),
        (of_lear, "dr_grpo", of_lear),
    ):
        values = of_rollouts(run(maker, given, len(given), estimator))
        assert values == pytest.approx(expected, **TOLERANCE)


def test_the_advantage_of_one_rollout_per_prompt(
    maker: Any,
) -> None:
    assert of_rollouts(run(maker, [13.0], 1, "dr_grpo")) == [0.0]
    assert run(maker, [13.0], 1, "group_norm")[0][0] != run(maker, [13.0], 1, "group_norm")[0][0]


def test_the_clip_range_is_applied_after_centring(maker: Any) -> None:
    """A reward of 13 beside zeros is in the range after group_norm, but not after dr_grpo."""
    rewards = [13.0, *[0.0] * 7]
    assert max(of_rollouts(run(maker, rewards, 8, "group_norm"))) == pytest.approx(2.4748737)
    assert max(of_rollouts(run(maker, rewards, 8, "dr_grpo"))) == 10.0
    assert max(of_rollouts(run(maker, rewards, 8, "dr_grpo", (-20, 20)))) == pytest.approx(11.375)


def test_a_partial_group_does_not_reach_the_advantages(maker: Any) -> None:
    """The batch is divided into groups of n_samples_per_prompt, so 3 of 4 rewards are an error."""
    with pytest.raises(RuntimeError, match="invalid for input of size 3"):
        run(maker, [1.0, 0.0, 0.5], 4, "group_norm")


def test_a_missing_reward_breaks_the_batch(maker: Any) -> None:
    """The trainer's client ignores a failed request and sets the reward to None."""
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        run(maker, None, 2, "group_norm")


# --- the executor ------------------------------------------------------------------------------


class Pieces:
    """A tokenizer with four tokens per text, because golden rows have four log-probabilities."""

    eos_token_id = pad_token_id = None

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        ends = [len(text) * part // 4 for part in range(5)]
        self.pieces += [text[start:end] for start, end in pairwise(ends)]
        return list(range(len(self.pieces) - 4, len(self.pieces)))

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.pieces[i] for i in ids)


def output_of(row: dict[str, Any], tokenizer: Pieces, prompt: str) -> dict[str, Any]:
    """Return the output of the single-turn executor for a response."""
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
def test_the_executor_returns_golden_rewards_and_advantages_of_lear(
    group: Group, floor: float | None
) -> None:
    scoring = executor(recipe=group.recipe, std_floor=floor)().scoring
    scorer = scoring._scorer = Scorer(scoring.reward)
    scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS  # type: ignore[assignment]
    prompt = "Into which sea?\n" + group.rows[0].get("response_prefix", "")
    tokenizer = Pieces()
    call = Call(prompt, group.label, None, 1400, tokenizer, None)

    async def sample(row: dict[str, Any]) -> dict[str, Any]:
        async def generate() -> dict[str, Any]:
            return output_of(row, tokenizer, prompt)

        return await scoring.run(call, generate)

    async def together() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(sample, group.rows))

    outputs = asyncio.run(together())
    rewards = [output["reward"] for output in outputs]
    if floor is None:
        assert rewards == pytest.approx(group.rewards)
        return
    assert [output["extra_logs"]["raw_reward"] for output in outputs] == pytest.approx(
        group.rewards
    )
    mean = sum(rewards) / len(rewards)
    golden = advantages(group, std_floor=floor)
    assert [reward - mean for reward in rewards] == pytest.approx(golden, abs=1e-9)


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_this_trainer_without_an_executor(recipe: str) -> None:
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
def test_the_executor_accepts_every_recipe(recipe: str) -> None:
    options = cell(recipe, "openrlhf").options
    # The file of the entailment model does not exist.
    loaded = {key: value for key, value in options.items() if key != "nli"}
    assert executor(recipe=recipe, **loaded)().scoring.reward.name == recipe


def test_the_executor_computes_the_advantage_of_lear(
    maker: Any,
) -> None:
    floor = STD_FLOOR["openrlhf"].options
    assert executor(recipe="lear", **floor)().scoring.std_floor == 0.1
    with pytest.raises(Exception, match="advantage_estimator rag_grpo_clip_std"):
        run(maker, [1.0, 0.0], 2, "rag_grpo_clip_std")

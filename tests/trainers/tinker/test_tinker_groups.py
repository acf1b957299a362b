"""Recipes inside tinker-cookbook: its group rollout, total rewards and advantages.

A token is a character, and the policy is a list of responses, so that no service is needed.
"""

from __future__ import annotations

import asyncio
import pickle
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
from rag_rewards_adapters.tinker import GroupRewards
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult, Trajectory, TrajectoryGroup

from rag_rewards import custom
from rag_rewards.errors import RolloutError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import GROUPS, MODELS, RECIPES, EvidenceGatherer, Group, advantages, bare, centred
from turn_groups import SEARCHES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tinker.md").read_text("utf-8")
NOT_HERE = {"prefilled opening", "tool turns"}  # text of the prompt, and messages without tokens
ALL = pytest.mark.parametrize(
    "group", [group for group in GROUPS if group.case not in NOT_HERE], ids=lambda group: group.id
)


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def decode(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


class Chat(Env):
    """An environment that replies with its observations and ends after them."""

    def __init__(self, question: str, observations: Sequence[str] = ()) -> None:
        self.text, self.observations = question, list(observations)

    async def initial_observation(self) -> Any:
        return tinker.ModelInput.from_ints(encode(self.text)), ["<end>"]

    async def step(self, action: list[int], **_: Any) -> StepResult:
        is_last = not self.observations
        self.text += decode(action) + ("" if is_last else self.observations.pop(0))
        following = tinker.ModelInput.from_ints(encode(self.text))
        return StepResult(0.0, is_last, following, ["<end>"])


class Builder(EnvGroupBuilder):
    def __init__(self, row: dict[str, Any], rewards: GroupRewards, envs: list[Chat]) -> None:
        self.row, self.rewards, self.envs = row, rewards, envs

    async def make_envs(self) -> Sequence[Env]:
        return self.envs

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, dict[str, float]]]:
        return await self.rewards(self.row, trajectory_group, decode)


class Policy(TokenCompleter):
    """Returns the next response to a prompt, in the order of the members of the group."""

    def __init__(self, responses: Sequence[str], stop_reasons: Sequence[str] = ()) -> None:
        self.left = list(responses)
        self.stop_reasons = list(stop_reasons) or ["stop"] * len(responses)

    async def __call__(self, *_: Any, **__: Any) -> TokensWithLogprobs:
        tokens = encode(self.left.pop(0))
        return TokensWithLogprobs(tokens, [0.0] * len(tokens), self.stop_reasons.pop(0))


def gold_of(group: Group) -> dict[str, Any]:
    whole = next(row for row in group.rows if "answers" in row)
    return {name: value for name, value in whole.items() if name in GOLD_FIELDS}


GOLD_FIELDS = (
    "question", "documents", "supporting", "answers", "answerable", "out_of_knowledge",
    "search_keys", "rubrics",
)  # fmt: skip


def rolled_out(group: Group, **options: Any) -> TrajectoryGroup:
    """Return the group after the rollout of the trainer."""
    rewards = GroupRewards(group.recipe, settings=group.settings, **options)
    rewards.scorer.gatherer, rewards.scorer.models = EvidenceGatherer(group), MODELS
    envs = [Chat(f"Question {i}") for i in range(len(group.rows))]
    reasons = [row.get("finish_reason", "stop") for row in group.rows]
    policy = Policy([str(row["response"]) for row in group.rows], reasons)
    return asyncio.run(do_group_rollout(Builder(gold_of(group), rewards, envs), policy))


@ALL
def test_rewards_and_advantages_of_a_golden_group(group: Group) -> None:
    if not group.whole:
        return  # Tinker has the gold data of the group once, so that all rows have it
    result = rolled_out(group)
    assert result.get_total_rewards() == pytest.approx(list(group.rewards))
    [values] = compute_advantages([result])
    assert values.tolist() == pytest.approx(centred(group), abs=2e-5, rel=2e-5)
    name = group.recipe
    assert [m[f"{name}/reward"] for m in result.metrics_G] == pytest.approx(list(group.rewards))


@ALL
def test_the_advantage_of_lear(group: Group) -> None:
    if not group.whole:
        return
    [values] = compute_advantages([rolled_out(group, **STD_FLOOR["tinker"].options)])
    expected = advantages(group, **STD_FLOOR["tinker"].options)
    assert values.tolist() == pytest.approx(expected, abs=2e-5, rel=2e-5)


def test_an_unscored_trajectory_has_the_advantage_0() -> None:
    def second_fails(rollout: Any) -> float:
        if rollout.parsed.text == "lost":
            raise RolloutError("the search engine is down")
        return float(len(rollout.parsed.text))

    rewards = GroupRewards(custom("length", second_fails))

    def run(responses: list[str]) -> TrajectoryGroup:
        envs = [Chat("?") for _ in responses]
        return asyncio.run(
            do_group_rollout(Builder({"question": "?"}, rewards, envs), Policy(responses))
        )

    with pytest.raises(RolloutError, match="is down"):
        run(["a", "lost"])  # in the first group
    rewards = GroupRewards(custom("length", second_fails))
    run(["a", "b"])
    result = run(["a", "lost", "abc"])
    assert result.get_total_rewards() == [1.0, 2.0, 3.0]
    assert compute_advantages([result])[0].tolist() == [-1.0, 0.0, 1.0]
    assert [m["length/not_scored"] for m in result.metrics_G] == [0.0, 1.0, 0.0]


def test_turns_are_the_transitions_and_their_rewards_are_summed(caplog: Any) -> None:
    block = "<information>Doc 1(Title: Paris) The Seine.</information>"
    envs = [Chat("Which river?", [block]), Chat("Which river?", [block])]
    search, right = "<search>river of Paris</search>", "<answer>Seine</answer>"
    policy = Policy([search, right, search, "<answer>Loire</answer>"])

    async def in_turn() -> TrajectoryGroup:
        rewards = GroupRewards(SEARCHES)
        builder = Builder({"question": "Which river?"}, rewards, envs)
        trajectories = []
        for env in envs:  # one after the other, because the policy is a list
            one = Builder({"question": "?"}, GroupRewards(custom("zero", lambda _: 0.0)), [env])
            trajectories += (await do_group_rollout(one, policy)).trajectories_G
        pairs = await builder.compute_group_rewards(trajectories, envs)
        return TrajectoryGroup(trajectories, [p[0] for p in pairs], [p[1] for p in pairs])

    assert asyncio.run(in_turn()).get_total_rewards() == [1.5, 0.5]
    assert "turn rewards are summed" in caplog.text


def test_a_builder_can_be_pickled() -> None:
    rewards = GroupRewards("naive-grpo", std_floor=0.1)
    copied = pickle.loads(pickle.dumps(rewards))  # noqa: S301 (our own bytes)
    assert (copied.name, copied.std_floor) == ("naive-grpo", 0.1)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_the_matrix(recipe: str) -> None:
    entry = cell(recipe, "tinker")
    assert entry.state in ("works", "setting")
    if entry.state == "works":
        row = bare(recipe)[0]
        gold = {name: row[name] for name in GOLD_FIELDS if name in row}
        builder = Builder(gold, GroupRewards(recipe), [Chat("?")])
        result = asyncio.run(do_group_rollout(builder, Policy([str(row["response"])])))
        assert len(result.get_total_rewards()) == 1


def test_the_code_of_the_page() -> None:
    [code] = re.findall(r"^```python tinker\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"make_env": lambda row: Chat(row["question"])}
    exec(code, names)  # noqa: S102 (code of this repository)

    class Tokenizer:
        decode = staticmethod(decode)

    row = {"question": "Which river?", "answers": ["Seine"]}
    builder = names["Question"](row, 2, Tokenizer())
    replies = ["<think>x</think><answer>Seine</answer>", "Loire"]
    result = asyncio.run(do_group_rollout(builder, Policy(replies)))
    assert result.get_total_rewards() == [2.0, 0.0]

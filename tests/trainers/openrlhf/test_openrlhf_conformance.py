"""Golden groups through OpenRLHF's own advantages.

RemoteExperienceMaker is the installed one. What cannot be installed without a GPU is absent and
never called: the names that its imports want from ray, vllm, deepspeed, flash-attn and peft.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import GROUPS, Group, advantages, bare, centred, scored
from rag_rewards_adapters.callables import each

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.recipes import RECIPES

ABSENT = {"ray", "vllm", "deepspeed", "flash_attn", "peft", "datasets", "torchdata"}
EPSILON = 1e-9  # group_norm's own
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""Rewards and advantages are float32 there."""


class _Absent(ModuleType):
    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder:
    """Modules with any name in them, for packages that are not installed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.names:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def installed(name: str) -> bool:
    """A folder of that name on the path is no package."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


@pytest.fixture(scope="module")
def maker() -> Any:
    before = set(sys.modules)
    finder = _Finder({name for name in ABSENT if not installed(name)})
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        from openrlhf.trainer.ppo_utils import experience_maker

        yield experience_maker
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in finder.names | {"openrlhf"}:
                del sys.modules[name]


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


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_matrix_says_what_a_server_of_single_rollouts_can_score(recipe: str) -> None:
    state = cell(recipe, "openrlhf").state
    if state == "no":
        with pytest.raises(UsageError, match="compares the rollouts of a group"):
            each(recipe)
    elif state == "works":
        golden = next(group for group in GROUPS if group.id == f"{recipe}: whole group")
        assert [each(recipe)(row) for row in bare(recipe)] == pytest.approx(golden.rewards)
    else:
        with pytest.raises(RolloutError, match=r"nli|verdicts|logprobs|masked_answers"):
            [each(recipe)(row) for row in bare(recipe)]


def test_the_matrix_has_no_lears_advantage_here(maker: Any) -> None:
    """Estimators are a chain of conditions: another name is refused."""
    assert STD_FLOOR["openrlhf"].state == "no"
    with pytest.raises(Exception, match="advantage_estimator rag_grpo_clip_std"):
        run(maker, [1.0, 0.0], 2, "rag_grpo_clip_std")

"""The adapter of ms-swift without ms-swift: the arguments of the trainer are plain lists."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import WAIT_SECONDS
from rag_rewards_adapters.ms_swift import RagReward, reward_class

from rag_rewards.errors import DataError, GroupError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.rollout import Rollout
from rag_rewards.testing import TableJudge

RIGHT = "<think>1</think><answer>Seine</answer>"
BOXED = r"\boxed{the Seine, I think}"


def batch(*completions: str, **columns: Any) -> dict[str, Any]:
    """Return the keyword arguments of a call."""
    n = len(completions)
    chats = [
        [{"role": "user", "content": "Which river?"}, {"role": "assistant", "content": text}]
        for text in completions
    ]
    return {
        "completions": list(completions),
        "messages": chats,
        "prompt_id": ["prompt_0"] * n,
        "answers": [["Seine"]] * n,
        "trainer_state": SimpleNamespace(global_step=3),
    } | columns


def scored_rollouts(reward: RagReward, **call: Any) -> list[Rollout]:
    """Return the rollouts that the recipe gets."""
    rollouts: list[Rollout] = []
    own = reward.scorer.score_each
    reward.scorer.score_each = lambda rows, groups=None: (  # type: ignore[method-assign]
        rollouts.extend(rows) or own(rows, groups)
    )
    reward(**call)
    return rollouts


def test_the_module_imports_without_torch_and_the_trainer() -> None:
    code = (
        "import sys, rag_rewards_adapters.ms_swift as m; m.reward_class('a', recipe='arena')();"
        "assert not {'swift', 'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_SECONDS)


def test_the_rollout_contains_the_fields_of_the_trainer() -> None:
    reward = reward_class("naive", recipe="naive-grpo")()
    call = batch(RIGHT, finish_reason=["length"], response_token_ids=[[[1, 2], [7, 8, 9]]])
    (rollout,) = scored_rollouts(reward, **call)
    assert rollout.question == "Which river?"
    assert rollout.prompt == [{"role": "user", "content": "Which river?"}]
    assert rollout.response_token_ids == (7, 8, 9)  # of the last turn
    assert (rollout.step, rollout.weight_version) == (4, 3)
    assert rollout.finish_reason == "length"


def test_the_response_prefix_option() -> None:
    reward = reward_class("naive", recipe="naive-grpo", response_prefix="<think>")()
    assert reward(**batch(RIGHT.removeprefix("<think>"))) == [2.0]
    plain = reward_class("naive", recipe="naive-grpo")()
    assert plain(**batch(RIGHT.removeprefix("<think>"))) == [1.0]


def test_missing_prompt_ids_are_an_error() -> None:
    reward = reward_class("naive", recipe="naive-grpo")()
    with pytest.raises(GroupError, match="prompt_id is missing"):
        reward(**batch(RIGHT) | {"prompt_id": None})


SIZES = SimpleNamespace(num_generations=8, num_generations_eval=2)


def prompts(*counts: int) -> dict[str, Any]:
    """Return a batch with these numbers of completions per prompt."""
    ids = [f"prompt_{i}" for i, count in enumerate(counts) for _ in range(count)]
    return batch(*[RIGHT] * len(ids), prompt_id=ids)


def test_std_floor_requires_complete_groups() -> None:
    reward = reward_class("naive", recipe="naive-grpo", std_floor=0.1)(args=SIZES)
    with pytest.raises(GroupError, match=r"prompt_1 has 4 completions.*num_generations=8"):
        reward(**prompts(8, 4))
    plain = reward_class("naive", recipe="naive-grpo")(args=SIZES)
    assert plain(**prompts(8, 4)) == [2.0] * 12  # sees single rollouts


@pytest.mark.parametrize("counts", [(4, 12), (2, 8), (2, 2, 4)])
def test_the_evaluation_size_does_not_permit_an_incomplete_group(counts: tuple[int, ...]) -> None:
    reward = reward_class("naive", recipe="naive-grpo", std_floor=0.1)(args=SIZES)
    with pytest.raises(GroupError, match="not a multiple of num_generations=8"):
        reward(**prompts(*counts))


@pytest.mark.parametrize(("counts", "size"), [((2, 2), 2), ((8, 16), 8)])
def test_all_groups_of_a_batch_have_one_size(counts: tuple[int, ...], size: int) -> None:
    reward = reward_class("naive", recipe="naive-grpo", std_floor=0.1)(args=SIZES)
    group_sizes: list[int] = []
    own = reward.scorer.score_each
    reward.scorer.score_each = lambda rows, groups=None: (  # type: ignore[method-assign]
        group_sizes.extend(map(len, groups or ())) or own(rows, groups)
    )
    reward(**prompts(*counts))
    assert group_sizes == [size] * (sum(counts) // size)


def test_columns_can_be_arrays() -> None:
    reward = reward_class("naive", recipe="naive-grpo")()
    chats = np.empty(2, object)
    chats[:] = batch(RIGHT, RIGHT)["messages"]
    answers = np.empty(2, object)
    answers[:] = [np.array(["Seine"]), np.array(["Loire", "Liger"])]
    arguments = batch(
        RIGHT,
        RIGHT,
        answers=answers,
        messages=chats,
        prompt_id=np.array(["a", "b"]),
        request_id=np.array(["r0", "r1"]),
        id=np.array([4, 5]),
    )
    rollouts = scored_rollouts(reward, **arguments)
    assert [rollout.answers for rollout in rollouts] == [["Seine"], ["Loire", "Liger"]]
    assert [rollout.question for rollout in rollouts] == ["Which river?"] * 2
    assert reward(**arguments) == [2.0, 1.0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_reward_is_pickled_by_name_and_options(asynchronous: bool) -> None:
    kind = reward_class(
        "mine", recipe="naive-grpo", response_prefix="<think>", asynchronous=asynchronous
    )
    reward = kind(args=SIZES)
    reward._unscored.count = 3
    copy: Any = pickle.loads(pickle.dumps(reward))  # noqa: S301
    assert (type(copy).__name__, copy.args, copy.not_scored) == ("mine", SIZES, 3)
    values = copy(**batch(RIGHT.removeprefix("<think>")))
    assert (asyncio.run(values) if asynchronous else values) == [2.0]


def test_a_judge_works_in_each_event_loop() -> None:
    judge = TableJudge(lambda question: 1)
    kind = reward_class("truth", recipe="truthrl", asynchronous=True)
    kind.options.scorer.models = Models(judge=judge)
    reward: Any = kind()
    first = asyncio.run(reward(**batch(BOXED, BOXED)))
    second = asyncio.run(reward(**batch(BOXED)))
    assert (first, second) == ([1.0, 1.0], [1.0])
    assert judge.requests


def test_a_missing_gold_field_names_the_row() -> None:
    reward = reward_class("naive", recipe="naive-grpo")()
    with pytest.raises(DataError, match="row r1: answers: missing"):
        reward(**batch(RIGHT, RIGHT, answers=[["Seine"], None], id=["r0", "r1"]))


def test_options_are_checked_without_a_trainer() -> None:
    with pytest.raises(UsageError, match=r"unknown option 'setings'.*settings"):
        reward_class("arena", recipe="arena", setings={})

"""The share of undecided answers in the metrics of trainers, without a trainer."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters import scoring
from rag_rewards_adapters.ms_swift import RagReward as SwiftReward
from rag_rewards_adapters.ms_swift import reward_class
from rag_rewards_adapters.openrlhf import reward_function
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.verl import compute_score

from rag_rewards import Score
from rag_rewards.rows.decisions import LEAST_ANSWERS

RIGHT, WRONG, UNDECIDED, OTHER = "1998", "1999", "1998 or 1999", "Perhaps"
ANSWERS = (RIGHT, WRONG, UNDECIDED, OTHER)


def response(answer: str) -> str:
    return f"<think>It is so.</think><answer>{answer}</answer>"


def trl_batch(*answers: str) -> dict[str, Any]:
    count = len(answers)
    return {
        "prompts": ["When was it?"] * count,
        "completions": list(map(response, answers)),
        "completion_ids": [[1]] * count,
        "answers": [["1998"]] * count,
        "trainer_state": SimpleNamespace(global_step=0),
    }


def test_trl_logs_the_share_of_a_batch() -> None:
    metrics: dict[str, float] = {}
    reward = RagReward("naive-grpo", hardened=True)
    reward(**trl_batch(*ANSWERS), log_metric=metrics.__setitem__)
    assert metrics["naive-grpo/undecided"] == 1 / 4  # OTHER has nothing in common

    plain: dict[str, float] = {}
    RagReward("naive-grpo")(**trl_batch(*ANSWERS), log_metric=plain.__setitem__)
    assert "naive-grpo/undecided" not in plain


def test_ms_swift_logs_the_share_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: dict[str, float] = {}
    monkeypatch.setattr(
        SwiftReward, "_write_log", lambda self, batch, columns, means: logged.update(means)
    )
    chats = [
        [{"role": "user", "content": "When?"}, {"role": "assistant", "content": response(each)}]
        for each in ANSWERS
    ]
    reward_class("a", recipe="naive-grpo", hardened=True)()(
        completions=list(map(response, ANSWERS)),
        messages=chats,
        prompt_id=["prompt_0"] * 4,
        answers=[["1998"]] * 4,
        trainer_state=SimpleNamespace(global_step=3),
    )
    assert logged["a/undecided"] == 1 / 4


def test_verl_gets_one_number_for_each_rollout() -> None:
    options: dict[str, Any] = {"recipe": "naive-grpo", "hardened": True}
    numbers = [
        compute_score("qa", response(answer), "1998", **options)["undecided"] for answer in ANSWERS
    ]
    assert numbers == [0.0, 0.0, 1.0, 0.0]
    default = compute_score("qa", response(RIGHT), "1998", recipe="naive-grpo")
    assert "undecided" not in default


def test_openrlhf_gets_extra_logs() -> None:
    reward = reward_function(recipe="naive-grpo", hardened=True, error_value=-1.0)
    queries = [f"Q?{response(answer)}" for answer in ANSWERS]
    labels = ['{"answers": "1998"}'] * 4
    logs = reward([*queries, "Q?x"], ["Q?"] * 5, [*labels, "{}"])["extra_logs"]
    assert logs["undecided"][:4] == [0.0, 0.0, 1.0, 0.0]
    assert math.isnan(logs["undecided"][4])  # all rollouts have the same names
    default = reward_function(recipe="naive-grpo")
    assert "undecided" not in default(queries[:1], ["Q?"], labels[:1])["extra_logs"]


def test_the_helper_of_other_trainers() -> None:
    decided, undecided = (
        Score(0.0, {"format": 1.0}, details={"decision": value, "decision_reason": "or"})
        for value in ("wrong", "undecided")
    )
    assert scoring.component_metrics("arena", undecided) == {
        "arena/format": 1.0,
        "arena/undecided": 1.0,
    }
    scores = [decided, undecided, None]
    columns = scoring.component_columns("arena", ["format"], scores)
    assert scoring.batch_metrics("arena", columns, scores) == {
        "arena/format": 1.0,
        "arena/not_scored": 1.0,
        "arena/undecided": 0.5,
    }
    assert scoring.component_metrics("arena", Score(1.0)) == {}


def test_a_run_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    reward = RagReward("naive-grpo", hardened=True)
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        reward(**trl_batch(*[UNDECIDED] * (LEAST_ANSWERS - 1)))
        assert not caplog.messages
        reward(**trl_batch(RIGHT))
        reward(**trl_batch(*[UNDECIDED] * LEAST_ANSWERS))
    [message] = caplog.messages
    assert message.startswith(f"{LEAST_ANSWERS - 1} of {LEAST_ANSWERS} answers (98%)")
    assert "undecided=judge" in message
    assert "prepare --hardened" in message


def test_a_run_with_few_undecided_answers_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    reward = RagReward("naive-grpo", hardened=True)
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        reward(**trl_batch(*[RIGHT] * 9 * LEAST_ANSWERS, *[UNDECIDED] * LEAST_ANSWERS))
    assert not caplog.messages

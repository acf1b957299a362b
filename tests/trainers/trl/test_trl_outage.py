"""A judge that fails while the real trainer runs: no group is partly scored, and training ends."""

from __future__ import annotations

from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import advantages, rows, says, trainer

from rag_rewards import Models
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.testing import TableJudge

SAID = ("\\boxed{La Seine}", "\\boxed{I don't know}", "no box", "\\boxed{the Rhône}")


class Recorded(RagReward):
    """TruthRL with a judge that is down from a batch on. It keeps the values of every batch."""

    def __init__(self, down_from: int) -> None:
        self.values: list[list[float | None]] = []
        self.batches = 0

        def verdict(question: JudgeQuestion) -> int | Exception:
            return 1 if self.batches <= down_from else BackendError("503 from the server")

        super().__init__("truthrl", models=Models(judge=TableJudge(verdict)))

    def __call__(self, prompts: Any, completions: Any, **batch: Any) -> list[float | None]:
        self.batches += 1
        self.values.append(super().__call__(prompts, completions, **batch))
        return self.values[-1]


def run(folder: Any, reward: Any) -> Any:
    data = rows(4, question="Which river runs through Paris?")
    args = {"max_steps": 8, "max_completion_length": 48, "per_device_train_batch_size": 8}
    started = trainer(folder, reward, rollout_func=says(*SAID), train_dataset=data, args=args)
    reward.bind(started)
    return started


def test_an_outage_leaves_no_group_partly_scored_and_ends_the_training(tmp_path: Any) -> None:
    reward = Recorded(down_from=1)
    started = run(tmp_path, reward)
    with pytest.raises(BackendError, match=r"503 from the server \(a model failed in 3 consec"):
        started.train()
    first, *later = reward.values
    assert first == [1, 0, -1, 1, 1, 0, -1, 1]
    assert later == [[None] * 8] * 2
    assert reward.batches == 4
    assert advantages(started) == [0.0] * 8


def test_only_the_group_of_the_failure_is_unscored(tmp_path: Any) -> None:
    """The first group of the batch has its own gold answer, about which the judge fails."""

    def verdict(question: JudgeQuestion) -> int | Exception:
        return BackendError("refused") if "Nile" in question.gold else 1

    reward = RagReward("truthrl", models=Models(judge=TableJudge(verdict)))
    run(tmp_path, reward)
    assert reward(["c"], ["no box"], answers=[["Seine"]], question=["Which?"]) == [-1]
    prompts = ["a"] * 4 + ["b"] * 4
    answers = [["Nile"]] * 4 + [["Seine"]] * 4
    values = reward(prompts, [*SAID] * 2, answers=answers, question=["Which?"] * 8)
    assert values == [None] * 4 + [1, 0, -1, 1]


def test_a_judge_that_does_not_answer_is_reported_before_training(tmp_path: Any) -> None:
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply

    replies = [Reply(), Reply(status=401)]
    with JudgeServer(lambda _: replies.pop(0)) as server:
        reward = RagReward("truthrl", judge=server.url, judge_model="tiny")
        run(tmp_path, reward)
        assert len(server.requests) == 1
        with pytest.raises(BackendError, match=r"not ready for the training: .*HTTP 401"):
            run(tmp_path, RagReward("truthrl", judge=server.url, judge_model="tiny"))


def test_the_error_of_an_outage_in_the_first_batch_is_that_of_the_judge(tmp_path: Any) -> None:
    with pytest.raises(BackendError, match=r"verdicts\.outcome: 503 from the server"):
        run(tmp_path, Recorded(down_from=0)).train()

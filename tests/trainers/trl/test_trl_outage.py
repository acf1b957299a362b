"""A judge that fails while the real trainer runs: no group is partly scored, and training ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import advantages, rows, says, trainer

from rag_rewards import Models
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.groups import positions_by_key
from rag_rewards.testing import TableJudge

SAID = ("\\boxed{La Seine}", "\\boxed{I don't know}", "no box", "\\boxed{the Rhône}")


def run(folder: Any, reward: Any) -> Any:
    data = rows(4, question="Which river runs through Paris?")
    args = {"max_steps": 8, "max_completion_length": 48, "per_device_train_batch_size": 8}
    started = trainer(folder, reward, rollout_func=says(*SAID), train_dataset=data, args=args)
    reward.bind(started)
    return started


class JudgedByServer(RagReward):
    """TruthRL with a judge on a server that answers 503 in the batches of `down`."""

    def __init__(self, server: Any, dump: Any, **options: Any) -> None:
        self.batches = 0
        super().__init__(
            "truthrl",
            judge=server.url,
            judge_model="tiny",
            judge_retries=0,
            dump=str(dump),
            **options,
        )

    def __call__(self, prompts: Any, completions: Any, **batch: Any) -> list[float | None]:
        self.batches += 1
        return super().__call__(prompts, completions, **batch)


@pytest.mark.parametrize("patience", [3, 5])
def test_a_judge_on_a_server_is_down_for_four_batches(tmp_path: Any, patience: int) -> None:
    """Batches 2 to 5. With a greater patience than 4, the training goes on after the outage."""
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply

    down, rewards = range(2, 6), []

    def reply(_: Any) -> Reply:
        batch = rewards[0].batches if rewards else 0
        return Reply(status=503) if batch in down else Reply()

    path = tmp_path / "rollouts.jsonl"
    with JudgeServer(reply) as server:
        rewards.append(JudgedByServer(server, path, patience=patience))
        started = run(tmp_path, rewards[0])
        if patience < len(down):
            with pytest.raises(
                BackendError, match=r"503.*\(a model failed in 3 consecutive batches"
            ):
                started.train()
        else:
            started.train()
        rewards[0].scorer.close()
    written = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    groups = positions_by_key(row["group"] for row in written)
    scored = [[written[i]["reward"] for i in members] for members in groups.values()]
    assert all(len(group) == 4 for group in scored)
    assert not [group for group in scored if None in group and {*group} != {None}]
    unscored = {row["step"] for row in written if row["reward"] is None}
    logged = {entry["step"]: entry["truthrl/not_scored"] for entry in started.state.log_history[:8]}
    if patience < len(down):
        assert advantages(started) == [0.0] * 8
        assert (rewards[0].batches, unscored) == (4, {2, 3, 4})
        assert logged == {1: 0.0, 2: 8.0, 3: 8.0}
    else:
        assert (rewards[0].batches, unscored) == (8, {*down})
        assert logged == {step: 8.0 * (step in down) for step in range(1, 9)}


def test_the_trial_of_a_rubric_loses_no_rollout(tmp_path: Any) -> None:
    """The files that `init` writes, with a judge on a server that is down for three seconds."""
    pytest.importorskip("httpx")
    from judge_server import JudgeServer, Reply, Request

    answered: list[bool] = []
    outage: list[float] = []

    def reply(request: Request) -> Reply:
        if len(answered) == 4:
            outage.append(time.monotonic())
        answered.append(not outage or time.monotonic() > outage[0] + 3)
        grades = {"scores": {"1": len(request.material) % 2}}
        return Reply(json.dumps(grades)) if answered[-1] else Reply(status=503)

    with JudgeServer(reply) as server:
        judge = ["--judge", server.url, "--judge-model", "tiny", "-o", "run"]
        command = ["-m", "rag_rewards", "init", "trl", "-r", "rubric", "--tiny", *judge]
        subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, capture_output=True)
        data = tmp_path / "run" / "train.jsonl"
        data.write_bytes(b"".join(data.read_bytes().splitlines(keepends=True)[:32]))
        done = subprocess.run(
            [sys.executable, "train.py"], cwd=tmp_path / "run", capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert answered.count(False) > 0
    unscored = re.findall(r"'rubric/not_scored': '?([\d.]+)", done.stdout)
    assert unscored
    assert set(map(float, unscored)) == {0.0}


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
        with pytest.raises(BackendError, match=r"not ready for the training: .*status 401"):
            run(tmp_path, RagReward("truthrl", judge=server.url, judge_model="tiny"))


def test_the_error_of_an_outage_in_the_first_batch_is_that_of_the_judge(tmp_path: Any) -> None:
    models = Models(judge=TableJudge(lambda _: BackendError("503 from the server")))
    with pytest.raises(BackendError, match=r"verdicts\.outcome: 503 from the server"):
        run(tmp_path, RagReward("truthrl", models=models)).train()

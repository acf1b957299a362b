"""Own wording of the questions to a judge, in commands, in Python and in an adapter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

import rag_rewards as rr
from rag_rewards.models.judge_prompts import JudgeTemplate
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.models.openai import OpenAIJudge

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from judge_server import JudgeServer, Reply, Request
from running_server import Running

Write = Callable[..., Path]
TEMPLATES = """
accuracy:
  system: Be fair to sailors.
criteria:
  system: Be fair to sailors.
  user: |
    The question is {question}
    Grade {response}
    by {criteria}
"""
ROWS = [
    {
        "id": f"r{i}",
        "group": f"g{i // 8}",
        "question": f"Question {i // 8}?",
        "response": f"response {i}",
        "rubric": [{"criterion": f"is long enough for reader {j}"} for j in range(6)],
        "answers": [f"gold {i // 8}"],
        "human": i % 2,
    }
    for i in range(64)
]


def grade(request: Request) -> Reply:
    """Return half of the grades, or the verdict 1."""
    scores = {str(i + 1): i % 2 for i in range(6)}
    return Reply(json.dumps({"explanation": "", "score": 1, "scores": scores}))


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[tuple[JudgeServer, list[str]]]:
    """Yield a server, and the options of commands that ask it in own words."""
    path = tmp_path / "judge.yaml"
    path.write_text(TEMPLATES, "utf-8")
    with JudgeServer(grade) as server:
        options = ["--judge", server.url, "--judge-model", "m"]
        yield server, [*options, "--set", f"models.judge_templates={path}"]


def assert_own_wording(server: JudgeServer) -> None:
    assert server.requests
    for request in server.requests:
        system, user = (message["content"] for message in request.body["messages"])
        assert system.startswith("Be fair to sailors.\n\nEvery text stands between two tags")
        if "criterion-1" in user:
            assert "\nThe question is <question-" in user


def test_score_needs_one_call_for_a_rubric_and_none_for_the_second_run(
    cli: Cli, write: Write, judge: Any, tmp_path: Path
) -> None:
    server, options = judge
    cache = ["--judge-cache", tmp_path / "v.sqlite"]
    source, out = write(ROWS), tmp_path / "out.jsonl"
    command = ("score", source, "-r", "rubric", *options, *cache)
    cli(*command, "-o", out, "--keep-evidence", code=0)
    assert len(server.requests) == 64
    assert_own_wording(server)
    scored = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["reward"] for row in scored] == [0.5] * 64
    again = tmp_path / "again.jsonl"
    cli(*command, "-o", again, "--keep-evidence", code=0)
    assert again.read_bytes() == out.read_bytes()
    # Without a judge, the scored rows have all evidence.
    cli("score", out, "-r", "rubric", "-o", tmp_path / "replay.jsonl", code=0)
    assert len(server.requests) == 64


def test_calibrate(cli: Cli, write: Write, judge: Any) -> None:
    server, options = judge
    options = [*options, "-l", "human", "-m", "judge", "-o", "-"]
    cli("calibrate", write(ROWS[:4]), *options, code=0)
    assert_own_wording(server)


def test_serve(judge: Any) -> None:
    server, options = judge
    running = Running(["-r", "rubric", *options])
    try:
        running.wait()
        answer = running.post("/score", json={"rollouts": ROWS[:8]}).json()
    finally:
        running.stop()
    assert [each["reward"] for each in answer["scores"]] == [0.5] * 8
    assert_own_wording(server)


def test_an_adapter(judge: Any) -> None:
    from rag_rewards_adapters.trl import RagReward

    server, [_, url, _, model, _, setting] = judge
    path = setting.partition("=")[2]
    reward = RagReward("rubric", judge=url, judge_model=model, judge_templates=path)
    columns = {name: [row[name] for row in ROWS[:2]] for name in ("question", "rubric")}
    values = reward(
        prompts=[row["question"] for row in ROWS[:2]],
        completions=[row["response"] for row in ROWS[:2]],
        **columns,
    )
    assert values == [0.5, 0.5]
    assert_own_wording(server)


def test_python(judge: Any) -> None:
    server, _ = judge
    template = JudgeTemplate(
        system="Be fair to sailors.", user="The question is {question} {criteria} {response}"
    )
    own = OpenAIJudge("m", base_url=server.url, templates={"criteria": template})
    scores = rr.score(ROWS[:2], "rubric", models=rr.Models(judge=own))
    assert [each["reward"] for each in scores] == [0.5, 0.5]
    assert_own_wording(server)


def test_a_file_with_another_placeholder_is_an_error(
    cli: Cli, write: Write, judge: Any, tmp_path: Path
) -> None:
    (tmp_path / "judge.yaml").write_text("criteria: {user: 'Grade {answer}'}", "utf-8")
    error = cli("score", write(ROWS), "-r", "rubric", *judge[1], code=2).err
    assert "judge.yaml, criteria: the template of a judge must not contain {answer}" in error


def test_own_wording_without_a_judge_is_an_error() -> None:
    with pytest.raises(rr.UsageError, match="judge_templates requires judge"):
        ModelOptions(judge_templates="judge.yaml")

"""`rag-rewards init verifiers`: the taskset loads, its tasks score traces, vf-eval accepts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib
import verifiers.v1 as vf
from processes import WAIT_SECONDS
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.verifiers_taskset import read_data
from test_verifiers_groups import trace_of
from verifiers.v1.utils.generic import concrete_type
from verifiers.v1.utils.loaders import load_taskset, taskset_class

from rag_rewards.cli import main
from rag_rewards.errors import DataError

ROOT = Path(__file__).resolve().parents[3]


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert not ended.value.code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package that the commands of docs/verifiers.md write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "rag_arena", raising=False)
    rows = ROOT / "examples" / "arena.jsonl"
    run("prepare", "rows", rows, "-o", "train.jsonl", "-r", "arena", "-t", "trl")
    run("init", "verifiers", "-r", "arena", "--data", "train.jsonl", "-o", "rag-arena")
    monkeypatch.syspath_prepend(tmp_path / "rag-arena")
    return tmp_path / "rag-arena"


def test_the_taskset_loads_and_its_tasks_score_traces(package: Path) -> None:
    kind = concrete_type(taskset_class("rag-arena"), vf.TasksetConfig)
    tasks = list(load_taskset(kind(id="rag-arena")))
    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    assert len(tasks) == len(rows) > 3
    task, row = tasks[0], rows[0]
    right = (
        f"<relevance>{row['supporting']}</relevance><analysis>x</analysis>"
        f"<answer>{_first(row['answers'])}</answer>"
    )
    assert row["question"] in task.data.prompt_text
    trace = trace_of({"question": row["question"], "response": right})
    asyncio.run(task.score(trace))
    assert trace.rewards["arena"].value == each("arena")(row | {"response": right}) >= 2.0
    assert trace.metrics["arena/accuracy"] == 1.0


def _first(answers: Any) -> str:
    return answers if isinstance(answers, str) else _first(answers[0])


def test_the_command_of_the_package_runs_locally_and_uploads_nothing(package: Path) -> None:
    [command] = re.findall(r"^ +(vf-eval .+)$", (package / "README.md").read_text(), re.MULTILINE)
    assert f"{command}\n" in (ROOT / "docs" / "verifiers.md").read_text("utf-8")
    chosen = _configuration(package, command)
    assert chosen["env"]["agent"]["harness"]["id"] == "null"
    assert chosen["env"]["agent"]["runtime"] == {"type": "subprocess"}
    assert chosen["client"]["base_url"] == "http://localhost:8000/v1"
    assert chosen["push"] is False
    default = _configuration(package, "vf-eval rag-arena --env.agent.harness.id null -m any")
    assert default["env"]["agent"]["runtime"]["type"] == "prime"
    assert "localhost" not in default["client"]["base_url"]
    assert default["push"] is True


def _configuration(package: Path, command: str) -> Any:
    """Return the configuration of a command, with which verifiers would run it."""
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    program, *arguments = shlex.split(command)
    folder = package.parent / "outputs" / str(len(arguments))
    arguments += ["--dry-run", "--output-dir", str(folder)]
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [file] = folder.rglob("eval.json")
    return json.loads(file.read_text())


def test_a_row_without_a_prompt_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"answers": ["Seine"]}\n')
    with pytest.raises(DataError, match=r"line 1 of .*rag-rewards prepare -t verifiers"):
        list(read_data(tmp_path / "rows.jsonl"))


def test_the_page_has_the_commands_of_these_tests_and_a_valid_reward() -> None:
    page = (ROOT / "docs" / "verifiers.md").read_text("utf-8")
    assert (
        "rag-rewards prepare rows examples/arena.jsonl -o train.jsonl -r arena -t verifiers\n"
        in page
    )
    assert "rag-rewards init verifiers -r arena --data train.jsonl -o rag-arena\n" in page
    [code] = re.findall(r"^```python verifiers\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 (code of this repository)
    [table] = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    rewards = tomllib.loads(table)["env"]["taskset"]["task"]["rewards"]
    assert vf.TaskConfig(rewards=rewards).rewards["arena"].fn == "my_module:arena"
    assert callable(names["arena"])

"""`rag-rewards init verifiers`: the package, evaluated, validated and pushed by the real commands.

A server on this machine takes the place of the model and of the Environments Hub.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZipFile

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of docs/verifiers.md have written their package."""
    folder = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = ROOT / "examples" / "arena.jsonl"
        run("prepare", "rows", rows, "-o", "train.jsonl", "-r", "arena", "-t", "verifiers")
        run("init", "verifiers", "-r", "arena", "--data", "train.jsonl", "-o", "rag-arena")
    return folder


@pytest.fixture
def package(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, in the current folder."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "rag_arena", raising=False)
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
    folder = package.parent / "outputs" / str(len(command))
    call(f"{command} --dry-run --output-dir {folder}", package)
    [file] = folder.rglob("eval.json")
    return json.loads(file.read_text())


def call(command: str, package: Path, **variables: str) -> str:
    """Run a command of verifiers or of the Hub with a package, and return its output."""
    program, *arguments = shlex.split(command)
    folders = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"HOME": str(package.parent), "PYTHONPATH": os.pathsep.join(folders)} | variables
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- runs against a server ------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """A model that answers in the form of ARENA, and a hub that takes uploads."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        self.server.bodies[self.path] = self.rfile.read(size)
        upload = {"upload_url": f"{self.server.url}/upload{self.path}"}
        hub = {
            "id": "env",
            "created": True,
            "owner": {"name": "someone"},
            "wheel_id": "w",
            "version_id": "v",
            "success": True,
        }
        reply = "<relevance>1</relevance><analysis>It is.</analysis><answer>Lyon</answer>"
        choice = {"index": 0, "finish_reason": "stop"} | {
            "message": {"role": "assistant", "content": reply}
        }
        model = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        body = {"data": hub | upload} | model | {"choices": [choice]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    do_PUT = do_POST

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


HARNESS = """
import httpx
import verifiers.v1 as vf

class Direct(vf.Harness[vf.HarnessConfig]):
    NEEDS_CONTAINER = EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        messages = [{"role": "user", "content": data.prompt_text}]
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as client:
            body = {"model": ctx.model, "messages": messages}
            reply = await client.post(f"{endpoint}/chat/completions", json=body)
        reply.raise_for_status()
        return vf.ProgramResult(0, reply.text, "")

__all__ = ["Direct"]
"""
"""A harness in the process of verifiers. The script of the harness `null` needs a package index."""


@pytest.mark.parametrize("is_group", [False, True])
def test_an_evaluation_records_the_reward_of_each_rollout(
    package: Path, server: Server, is_group: bool
) -> None:
    """With a floor, the attempts of an episode are a group, whose advantages are all 0."""
    (package / "direct.py").write_text(HARNESS)
    if is_group:
        code = package / "rag_arena" / "__init__.py"
        models = ("--model", server.url, "--backend", "vllm")
        run("init", "verifiers", "-r", "lear", *models, "-o", "lear")
        text = Path("lear/rag_lear/__init__.py").read_text().replace("Lear", "Arena")
        code.write_text(re.sub(r"EpisodeReward\(.+\)", 'EpisodeReward("arena")', text))
    command = (
        "vf-eval rag-arena --env.agent.harness.id direct --env.agent.runtime.type subprocess "
        f"--no-push --client.base-url {server.url}/v1 -m m -n 2 --no-rich --output-dir out"
    )
    call(command + " --env.n 2" * is_group, package, PRIME_API_KEY="none")
    [file] = Path("out").rglob("traces.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    traces = [trace for record in records for trace in record.get("traces", [record])]
    assert len(traces) == 2 * (1 + is_group)
    for trace in traces:
        assert trace["ok"], trace["errors"]
        score = each("arena")(trace["task"]["data"] | {"response": _reply(trace)})
        assert trace["rewards"]["arena"]["score"] == score
        assert "arena/accuracy" in trace["metrics"]


def _reply(trace: Any) -> str:
    return str(trace["nodes"][-1]["message"]["content"])


def test_the_validation_scores_an_attempt_without_a_reply(package: Path) -> None:
    [command] = re.findall(r"^ +(vf-validate .+)$", (package / "README.md").read_text(), re.M)
    [summary] = re.findall(r"^{.+^}", call(command, package), re.M | re.S)
    noop = json.loads(summary)["checks"]["noop"]
    assert {name: count for name, count in noop.items() if count} == {"valid": 7}


def test_the_hub_accepts_the_package(package: Path, server: Server) -> None:
    """The real command builds the package, classifies it, and uploads it with its rows."""
    [command] = re.findall(r"^ +(prime env push .+)$", (package / "README.md").read_text(), re.M)
    command = command.replace("--path .", f"--path {package}")
    output = call(command, package, PRIME_API_KEY="none", PRIME_API_BASE_URL=server.url)
    assert "Publishing as verifiers v1 (from the verifiers requirement)" in output
    prefix = "/api/v1/environmentshub/env"
    wheel = json.loads(server.bodies[f"{prefix}/wheels"])
    assert wheel["runtime_hint"] == "VERIFIERS_V1"
    assert wheel["metadata"]["tags"] == ["rag", "question-answering", "train", "eval"]
    assert wheel["metadata"]["requires_dist"] == ["rag-rewards", "verifiers>=0.4"]
    with ZipFile(BytesIO(server.bodies[f"/upload{prefix}/wheels"])) as archive:
        assert {"rag_arena/__init__.py", "rag_arena/train.jsonl"} < set(archive.namelist())
        for name in ("rag_arena/__init__.py", "rag_arena/train.jsonl"):
            archive.extract(name, "installed")
    with tarfile.open(fileobj=BytesIO(server.bodies[f"/upload{prefix}/versions"])) as archive:
        source = {"README.md", "pyproject.toml", "configs/rl.toml", "rag_arena/train.jsonl"}
        assert source < set(archive.getnames())
    code = "from verifiers.v1.utils.loaders import *; kind = taskset_config_type('me/rag-arena')\n"
    code += "print(len(list(load_taskset(kind(id='me/rag-arena@0.1.0')))))"
    (package / "rag_arena" / "train.jsonl").unlink()
    assert call(f"python -c {shlex.quote(code)}", Path("installed").resolve()) == "7\n"


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
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python verifiers\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(code, names)  # noqa: S102 (code of this repository)
    of_task, of_group = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    rewards = tomllib.loads(of_task)["env"]["taskset"]["task"]["rewards"]
    assert vf.TaskConfig(rewards=rewards).rewards["arena"].fn == "my_module:arena"
    assert callable(names["arena"])
    [source] = tomllib.loads(of_group)["orchestrator"]["train"]["source"]
    config = concrete_type(names["RulerEnv"], vf.EnvConfig, origin=vf.Env)
    assert config.model_validate(source["env"] | {"taskset": {}}).n == 8

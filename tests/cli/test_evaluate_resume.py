"""`evaluate --resume` after a kill: no model is called twice, and the bytes are the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import finish

from rag_rewards.io.output import open_locked

sys.path.append(str(Path(__file__).parents[1] / "backends"))

pytest.importorskip("httpx")
from judge_server import JudgeServer, Reply

COMMAND = [sys.executable, "-m", "rag_rewards", "evaluate"]
ROWS = 18


@pytest.fixture
def rows(write):
    """Write rows of 60 KB, so that the models get them in several batches."""
    return write(
        {
            "id": str(i),
            "question": f"Which city is number {i}?",
            "note": "x" * 60_000,
            "answers": ["Paris"],
            "response": f"It is city {i}.",
        }
        for i in range(ROWS)
    )


class Killing:
    """A judge that kills the process that asks, at one of its requests."""

    def __init__(self):
        self.process = None
        self.remaining = None
        self.status = 200

    def __call__(self, request):
        if self.remaining is not None:
            self.remaining -= 1
            if self.remaining <= 0:
                self.process.kill()
        return Reply("yes" if "city 1" in request.material else "no", status=self.status)


def run(judge, server, source, out, *options, kill_at=None, stdin=None):
    model = ["--judge", server.url, "--judge-model", "m", "--json"]
    judge.remaining = kill_at
    judge.process = subprocess.Popen(
        [*COMMAND, str(source), "-m", "judge,em", "-o", str(out), *model, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    printed, messages = finish(judge.process, stdin)
    judge.remaining = None
    return judge.process.returncode, printed, messages.decode()


@pytest.mark.parametrize(
    "name", ["result.json", pytest.param("result.json.gz", marks=pytest.mark.slow)]
)
def test_a_killed_evaluation_continues(rows, tmp_path, name):
    whole, out = tmp_path / f"whole-{name}", tmp_path / name
    judge = Killing()
    with JudgeServer(judge) as server:
        assert run(judge, server, rows, whole)[0] == 0
        assert len(server.requests) == ROWS
        server.requests.clear()
        code, *_ = run(judge, server, rows, out, "--resume", kill_at=ROWS * 2 // 3)
        assert code == -signal.SIGKILL
        assert not out.exists()
        asked = len(server.requests)
        code, printed, messages = run(judge, server, rows, out, "--resume")
        assert code == 0, messages
        assert out.read_bytes() == whole.read_bytes()
        assert 0 < len(server.requests) - asked < ROWS  # earlier batches are not sent again
        # A complete output is shown again without a request.
        server.requests.clear()
        assert run(judge, server, rows, out, "--resume")[:2] == (0, printed)
        assert not server.requests
    assert sorted(path.name for path in tmp_path.glob("result*")) == [name, f"{name}.run.json"]


@pytest.mark.slow
def test_a_resumed_evaluation_of_standard_input(rows, tmp_path):
    whole, out = tmp_path / "whole.json", tmp_path / "out.json"
    judge = Killing()
    data = rows.read_bytes()
    with JudgeServer(judge) as server:
        run(judge, server, "-", whole, stdin=data)
        run(judge, server, "-", out, kill_at=ROWS * 2 // 3, stdin=data)
        other = data.replace(b"It is city 0", b"It is Paris 0")
        code, _, messages = run(judge, server, "-", out, "--resume", stdin=other)
        assert code == 2
        assert "the input has changed" in messages
        assert run(judge, server, "-", out, "--resume", stdin=data)[0] == 0
    assert out.read_bytes() == whole.read_bytes()


def test_other_settings_or_another_input_are_refused(rows, tmp_path):
    out = tmp_path / "out.json"
    judge = Killing()
    with JudgeServer(judge) as server:
        run(judge, server, rows, out, kill_at=ROWS * 2 // 3)
        code, _, messages = run(judge, server, rows, out, "--resume", "--seed", "1")
        assert code == 2
        assert f"cannot resume {out}: signature was" in messages
        rows.write_bytes(rows.read_bytes() + b"\n")
        code, _, messages = run(judge, server, rows, out, "--resume")
        assert code == 2
        assert f"cannot resume {out}: the input {rows} has changed" in messages


@pytest.mark.slow
def test_an_incomplete_line_of_evidence_is_removed(rows, tmp_path):
    whole, out = tmp_path / "whole.json", tmp_path / "out.json"
    judge = Killing()
    with JudgeServer(judge) as server:
        run(judge, server, rows, whole)
        run(judge, server, rows, out, kill_at=ROWS * 2 // 3)
        stored = tmp_path / "out.json.evidence.jsonl"
        stored.write_bytes(stored.read_bytes()[:-10])
        assert run(judge, server, rows, out, "--resume")[0] == 0
    assert out.read_bytes() == whole.read_bytes()


def test_a_second_evaluation_is_refused(cli, rows, tmp_path):
    out = tmp_path / "out.json"
    with open_locked(tmp_path / "out.json.evidence.jsonl"):
        options = ("--judge", "http://127.0.0.1:9/v1", "--judge-model", "m")
        message = cli("evaluate", rows, "-m", "judge", "-o", out, *options, code=2).err
    assert "another run is writing" in message


@pytest.mark.slow
def test_rows_whose_judge_failed_are_sent_again(rows, tmp_path):
    whole, out = tmp_path / "whole.json", tmp_path / "out.json"
    judge = Killing()
    with JudgeServer(judge) as server:
        run(judge, server, rows, whole)
        judge.status = 400
        assert run(judge, server, rows, out, kill_at=ROWS * 2 // 3)[0] == -signal.SIGKILL
        judge.status = 200
        assert run(judge, server, rows, out, "--resume")[0] == 0
    assert out.read_bytes() == whole.read_bytes()


def test_resume_without_a_file(cli, rows):
    message = cli("evaluate", rows, "-m", "em", "--resume", code=2).err
    assert "--resume requires --output with the name of a file" in message


def test_resume_without_models(cli, rows, tmp_path):
    out = tmp_path / "out.json"
    for _ in range(2):
        cli("evaluate", rows, "-m", "em", "-o", out, "--resume", code=0)
    assert [path.name for path in tmp_path.iterdir() if path != rows] == ["out.json"]

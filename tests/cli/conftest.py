"""Fixtures that run the command line in this process or in a separate one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, ROOT, Cli, Result, stdin_of
from processes import WAIT_SECONDS

from rag_rewards.cli.entry import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the command line in this process. A traceback fails the test."""

    def run(*arguments: object, stdin: bytes = b"", code: int | None = None) -> Result:
        monkeypatch.setattr(sys, "stdin", stdin_of(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        result = Result(int(ended.value.code or 0), captured.out, captured.err)
        assert "Traceback" not in result.err
        if code is not None:
            assert result.code == code, result.err
        return result

    return run


@pytest.fixture
def shell() -> Cli:
    """Run the command line as a process, by default in the repository."""

    def run(
        *arguments: object, stdin: bytes | None = b"", code: int | None = None, **options: Any
    ) -> Result:
        environment = os.environ | options.pop("env", {})
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin,
            env=environment,
            timeout=WAIT_SECONDS,
            check=False,
            **{"capture_output": True, "cwd": ROOT} | options,
        )
        result = Result(
            done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode()
        )
        assert "Traceback" not in result.err
        if code is not None:
            assert result.code == code, result.err
        return result

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a tiny model, which runs with one thread."""
    pytest.importorskip("torch", reason="torch is not installed")
    import torch
    from tiny_models import save

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more threads slow a small model down
    yield save(tmp_path_factory.mktemp("models") / "qwen2")
    torch.set_num_threads(threads)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows to a JSONL file. A row is an object or a line."""

    def to_file(rows: Iterable[Any], name: str = "in.jsonl", ending: str = "\n") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(line_of(row) + ending.encode() for row in rows))
        return path

    return to_file


def line_of(row: Any) -> bytes:
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else json.dumps(row).encode()


@pytest.fixture
def arena() -> Callable[..., dict[str, Any]]:
    """Make a row to which arena gives 13. Keywords replace fields; None removes a field."""

    def make(**fields: Any) -> dict[str, Any]:
        row: dict[str, Any] = {
            "id": "a",
            "question": "Which river?",
            "documents": [{"text": "Paris lies on the Seine."}],
            "supporting": [1],
            "answers": ["Seine"],
            "response": "<relevance>[1]</relevance><analysis>One.</analysis><answer>Seine</answer>",
        }
        return {name: value for name, value in (row | fields).items() if value is not None}

    return make


@pytest.fixture
def likely() -> Callable[..., dict[str, Any]]:
    """Make a row for ctrl-rag with three tokens and two supporting documents."""

    def make(**fields: Any) -> dict[str, Any]:
        row: dict[str, Any] = {
            "id": "l",
            "group": "g",
            "documents": [{"text": "one"}, {"text": "two"}],
            "supporting": [1, 2],
            "answers": ["Paris"],
            "response": "It is Paris.",
            "logprobs": {
                "full": [-0.1, -0.2, -0.3],
                "without": {"1": [-2.0, -2.0, -2.0], "2": [-1.5, -1.0, -1.0]},
            },
        }
        return {name: value for name, value in (row | fields).items() if value is not None}

    return make

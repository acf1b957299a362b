"""A copy of the repository, to which tests add a recipe or a trainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN = """
import contextlib, io, json, sys
from rag_rewards.cli import main
outputs = []
for command in json.loads(sys.argv[1]):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(command)
        except SystemExit as end:
            code = end.code
    outputs.append([code, out.getvalue(), errors.getvalue()])
print(json.dumps(outputs))
"""


class Copy:
    """A copy of the repository, in which Python code and commands can run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def in_folder(cls, folder: Path) -> Copy:
        """Copy what a new recipe or trainer can affect to a folder."""
        for name in ("rag_rewards", "adapters", "benchmarks", "docs", "examples", "tests"):
            skipped = shutil.ignore_patterns("__pycache__", "*.safetensors", "pictures")
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        for name in ("README.md", "pyproject.toml", "CHANGELOG.md"):
            shutil.copy(ROOT / name, folder / name)
        return cls(folder)

    def python(self, *arguments: str) -> str:
        """Return what Python prints; the copy is the first place that it imports from."""
        path = os.pathsep.join([str(self.folder), str(self.folder / "adapters")])
        process = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
        return process.stdout

    def commands(self, *commands: list[str]) -> list[str]:
        """Return the standard output of commands, which run one after another in one process."""
        outputs = json.loads(self.python("-c", RUN, json.dumps(commands)))
        for command, (code, _, errors) in zip(commands, outputs, strict=True):
            assert not code, (command, errors)
        return [output for _, output, _ in outputs]

    def text(self, path: str) -> str:
        return (self.folder / path).read_text("utf-8")

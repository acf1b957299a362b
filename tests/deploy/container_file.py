"""Runs a container file without an image, in folders with virtual environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """An instruction of a container file, with its continued lines joined."""

    name: str
    value: str


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a container file in their order."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    split = (line.strip().partition(" ") for line in joined if line.strip())
    return [Instruction(name, value.strip()) for name, _, value in split]


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, from its FROM to the next one."""
    result: list[list[Instruction]] = []
    for instruction in instructions(text):
        if instruction.name == "FROM":
            result.append([])
        if result:
            result[-1].append(instruction)
    return result


def value_of(stage: list[Instruction], name: str) -> str:
    """Return the value of the only instruction of this name."""
    [value] = [each.value for each in stage if each.name == name]
    return value


def health_command(stage: list[Instruction]) -> list[str]:
    """Return the command of HEALTHCHECK."""
    return list(json.loads(value_of(stage, "HEALTHCHECK").partition("CMD ")[2]))


@dataclass
class Stage:
    """The file system of a stage: a folder in place of its root, and an empty environment."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"

    def __post_init__(self) -> None:
        venv = self.root / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or "PROXY" in k.upper()}
        self.environment = {**kept, "PATH": f"{venv}/bin:/usr/bin:/bin"}

    def place(self, path: str) -> Path:
        """Return the folder or file of this machine for a path of the stage."""
        return self.root / (path if path.startswith("/") else f"{self.folder}/{path}").strip("/")

    def run(self, instruction: Instruction, context: Path, others: dict[str, Stage]) -> None:
        """Run an instruction that changes the stage. Instructions for the start change nothing."""
        if instruction.name == "WORKDIR":
            self.folder = instruction.value
            self.place(".").mkdir(parents=True, exist_ok=True)
        elif instruction.name in ("ENV", "ARG"):
            self.environment |= dict(pair.split("=", 1) for pair in instruction.value.split())
        elif instruction.name == "COPY":
            self._copy(instruction.value.split(), context, others)
        elif instruction.name == "RUN":
            command = ["sh", "-ec", instruction.value]
            subprocess.run(command, cwd=self.place("."), env=self.environment, check=True)

    def _copy(self, words: list[str], context: Path, others: dict[str, Stage]) -> None:
        source = None
        if words[0].startswith("--from="):
            source, words = others[words[0].removeprefix("--from=")], words[1:]
        for name in words[:-1]:
            path = source.place(name) if source else context / name
            target = self.place(words[-1])
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, target, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy(path, target / path.name if words[-1].endswith("/") else target)


def build(text: str, context: Path, root: Path) -> Stage:
    """Run the instructions of all stages, and return the last stage."""
    built: dict[str, Stage] = {}
    for number, stage in enumerate(stages(text)):
        _, _, name = stage[0].value.partition(" AS ")
        current = Stage(root / str(number))
        for instruction in stage[1:]:
            current.run(instruction, context, built)
        built[name or str(number)] = current
    return current

"""The command line as a process, and its standard input."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "rag_rewards"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Result]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def card_of(path: Path) -> dict[str, Any]:
    """Return the facts of the card beside an output."""
    text = path.with_name(path.name + ".card.md").read_text("utf-8")
    facts: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return facts


def stdin_of(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]

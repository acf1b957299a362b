"""Scoring of files by shards, and by one reader as its twin."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rag_rewards.scoring import run as shard_run
from rag_rewards.scoring.options import ScoreOptions, ScoringRun
from rag_rewards.scoring.score_file import score_file


class Scored(NamedTuple):
    rows: bytes
    errors: bytes
    run: ScoringRun


@pytest.fixture
def score(tmp_path: Path) -> Callable[..., Scored]:
    """Score a source to a file, and return the bytes of the output and of the errors."""

    def scored(source: object, recipe: str, name: str = "out.jsonl", **options: Any) -> Scored:
        output = tmp_path / name
        run = score_file(recipe, ScoreOptions(str(source), str(output), **options))
        errors = Path(f"{output}.errors.jsonl")
        return Scored(output.read_bytes(), errors.read_bytes() if errors.exists() else b"", run)

    return scored


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bytes, bytes]]:
    """Score a source with one reader that writes nothing, and return rows and errors."""

    def scored(source: object, recipe: str, **options: Any) -> tuple[bytes, bytes]:
        rows: list[bytes] = []
        errors = io.TextIOWrapper(io.BytesIO())
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", errors)
            score_file(recipe, ScoreOptions(str(source), None, **options), on_output=rows.append)
        return b"".join(rows), errors.buffer.getvalue()  # type: ignore[attr-defined]

    return scored


@pytest.fixture
def shard_size(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the size of a shard in bytes."""

    def set_size(size: int) -> None:
        monkeypatch.setattr(shard_run, "shard_bytes", lambda files, workers: size)

    return set_size

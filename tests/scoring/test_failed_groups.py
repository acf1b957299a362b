"""The failure of a model leaves a whole group unscored, wherever chunks and shards end."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator

import pytest
from command_line import stdin_of

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import Models
from rag_rewards.files import sources
from rag_rewards.files.sources import chunks
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rows import line_groups as group_module
from rag_rewards.scoring import run as run_module
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.score_file import score_file
from rag_rewards.testing import TableJudge

GROUPS, SIZE = 9, 5


def rows() -> Iterator[dict[str, object]]:
    """Yield groups of four answers that a judge decides, and an abstention without a judge."""
    for group in range(GROUPS):
        for member in range(SIZE):
            answer = f"long river {member} of {group}" if member else "I don't know"
            yield {
                "id": f"{group}-{member}",
                "question": f"Which river runs through town {group}?",
                "response": f"\\boxed{{{answer}}}",
                "answers": [f"river {group} of the north"],
            }


@pytest.fixture(params=[1, 3, 4, 7])
def models(request, monkeypatch) -> ModelOptions:
    """Return the options of a judge that fails for the last member of group 4, in small chunks."""

    def verdict(question):
        return BackendError("no answer") if question.response == "long river 4 of 4" else 1

    monkeypatch.setattr(ModelOptions, "load", lambda options: Models(judge=TableJudge(verdict)))
    monkeypatch.setattr(sources, "CHUNK_ROWS", request.param)
    monkeypatch.setattr(run_module, "CHUNK_BYTES", request.param * 150)
    return ModelOptions(judge="http://judge/v1", judge_model="m")


def read(text: str) -> list[str]:
    return [json.loads(line)["id"] for line in text.splitlines()]


EXPECTED = [f"{g}-{m}" for g in range(GROUPS) for m in range(SIZE) if g != 4]


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz", "-"])
@pytest.mark.parametrize("output", ["out.jsonl", "parts", None])
def test_a_failure_in_the_last_row_of_a_group(models, monkeypatch, tmp_path, name, output):
    data = "".join(json.dumps(row) + "\n" for row in rows()).encode()
    source = tmp_path / name
    if name == "-":
        monkeypatch.setattr(sys, "stdin", stdin_of(data))
    else:
        source.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO()))
    scored: list[bytes] = []
    options = ScoreOptions(
        "-" if name == "-" else str(source),
        output and str(tmp_path / output),
        models=models,
        output_format="parts" if output == "parts" else "file",
    )
    run = score_file("truthrl", options, on_output=scored.append)
    assert read(b"".join(scored).decode()) == EXPECTED
    assert run.totals.errors == SIZE


def test_a_large_group_is_divided(monkeypatch):
    monkeypatch.setattr(sources, "CHUNK_ROWS", 2)
    monkeypatch.setattr(sources, "MAX_GROUP_ROWS", 3)
    lines = list(enumerate([b'{"group": "a"}\n'] * 12 + [b'{"group": "b"}\n'], start=1))
    assert [len(chunk.lines) for chunk in chunks(iter(lines), with_groups=True)] == [5, 5, 2, 1]
    assert [len(chunk.lines) for chunk in chunks(iter(lines))] == [2, 2, 2, 2, 2, 2, 1]
    monkeypatch.setattr(sources, "MAX_GROUP_BYTES", 30)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 20)
    assert [len(chunk.lines) for chunk in chunks(iter(lines), with_groups=True)] == [4, 4, 4, 1]
    assert group_module.MAX_GROUP_ROWS > 1000

"""The commands of each page run in their order, in a folder with the examples and small files.

Blocks with a mark do not run here (CONTRIBUTING.md, "Write documentation").
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import WAIT_SECONDS, finish, free_port, wait_for

from rag_rewards.cli import main
from rag_rewards.evidence.protocols import Models
from rag_rewards.files.sources import read_rollouts
from rag_rewards.groups import group_by_key
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.dump_rows import ScoredBatch, dumped_rows
from rag_rewards.testing import TableJudge

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
code_blocks = importlib.import_module("code_blocks")
pages = importlib.import_module("build_marked_blocks").pages
RUN_ELSEWHERE = {"data.md", "selection.md"}
"""Pages whose commands run in tests/data_sets, with files of their own."""


def examples(name: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the rows of an example with further fields."""
    lines = (ROOT / f"examples/{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) | fields for line in lines]


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


def dumped(step: int) -> list[dict[str, Any]]:
    """Return the rows that a dump of a training step contains."""
    scorer = Scorer.load("ctrl-rag")
    rows = [
        msgspec.structs.replace(row, step=step)
        for row in read_rollouts(str(ROOT / "examples/ctrl-rag.jsonl"))
    ]
    groups = group_by_key(rows)
    results = scorer.score_each(rows, groups)
    names = scorer.reward.component_names
    batch = ScoredBatch(rows, results, groups, scorer.signature, names)
    groups_of_lines = dumped_rows(batch, "b50e13c7", "4f2a91c3", 0)
    return [json.loads(line) for group in groups_of_lines for line in group]


def blocks(page: Path) -> list[Any]:
    found: list[Any] = code_blocks.blocks(page.read_text("utf-8"))
    return found


def graded_groups() -> list[dict[str, Any]]:
    """Return rows with the grades of a group judge in two orders, and grades of people."""
    judge = TableJudge(lambda question: tuple(len(text) % 5 / 4 for text in question.responses))
    scorer = Scorer.load("ruler", {"orders": 2}, models=Models(judge=judge))
    rollouts = read_rollouts(str(ROOT / "examples/ctrl-rag.jsonl"))
    fields = [json.loads(msgspec.json.encode(each)) for each in scorer.gather(rollouts)]
    return [row | {"human": 1 + i % 5} for i, row in enumerate(fields)]


def fenced(page: str, beginning: str) -> str:
    """Return the block of a page that begins with a text."""
    found = blocks(ROOT / "docs" / page)
    return next(block.code for block in found if block.code.startswith(beginning))


OWN_COLUMNS = [
    {
        "id": row["id"],
        "query": row["question"],
        "contexts": [document["text"] for document in row["documents"]],
        "relevant": row["supporting"],
        "gold": row["answers"],
        "completion": row["response"],
    }
    for row in examples("arena")[:8]
]
RAGAS = [
    {
        "user_input": row["question"],
        "retrieved_contexts": [document["text"] for document in row["documents"]],
        "response": row["response"],
        "reference": row["answers"][0],
    }
    for row in examples("truthrl")
]
VERL = [
    {"input": row["question"], "output": row["response"], "gts": row["answers"][0], "step": 7}
    for row in examples("truthrl")
]
TRL = [
    {
        "step": 1,
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["response"]}],
        "arena/gold": json.dumps({"answers": row["answers"]}),
    }
    for row in examples("truthrl")
]
NQ = [
    {
        "question": f"Question {i}?",
        "answers": [f"answer {i}"],
        "ctxs": [
            {"title": f"T{j}", "text": f"The answer {i}." if j == 2 else "x", "has_answer": j == 2}
            for j in range(8)
        ],
    }
    for i in range(5)
]
FILES: dict[str, dict[str, Any]] = {
    "AGENTS.md": {"rows.jsonl": OWN_COLUMNS},
    "SKILL.md": {"rows.jsonl": OWN_COLUMNS},
    "dumps.md": {"rollouts.jsonl": dumped(1), "rollouts.1.jsonl": dumped(0)},
    "evaluate.md": {
        "rows.jsonl": examples("calibration", hops=2),
        "before.jsonl": examples("arena"),
        "after.jsonl": examples("arena"),
        "with.jsonl": examples("arena"),
        "without.jsonl": examples("arena", documents=[]),
        "all.jsonl": examples("truthrl", reward=0.0, correct=0.0, signature="x"),
        "truthrl.jsonl": examples("truthrl"),
    },
    "judges.md": {
        "rows.jsonl": examples("arena", verdicts={"accuracy": 1}),
        "rubric.yaml": fenced("judges.md", "recipe: rubric"),
        "graded.jsonl": examples("calibration", judge=0.5, human=3),
        "groups.jsonl": graded_groups(),
    },
    "lear.md": {
        "nq-test.json": NQ,
        "nq-train.json.gz": NQ,
        "extracts.jsonl": examples("lear"),
        "vanilla-extracts.jsonl": examples("lear"),
    },
    "look.md": {"rollouts.jsonl": examples("arena")},
    "openrlhf.md": {"token": "secret"},
    "serve.md": {"token.txt": "secret"},
    "tables.md": {
        "dataset.jsonl": RAGAS,
        "rollouts/7.jsonl": VERL,
        "completions/completions_00001.parquet": TRL,
        "rows.jsonl": [{"completion": "<answer>Seine</answer>", "gold": "Seine"}],
    },
}
"""The files that the commands of a page read: rows, a JSON value, or a text."""


def lay_out(folder: Path, files: dict[str, Any]) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "rag_rewards").symlink_to(ROOT / "rag_rewards")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(content), folder / name)
            continue
        is_rows = name.endswith(".jsonl")
        text = "".join(f"{json.dumps(row)}\n" for row in content) if is_rows else content
        text = text if isinstance(text, str) else json.dumps(text)
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


@contextlib.contextmanager
def serving(words: list[str], port: int) -> Iterator[None]:
    """Run the command `serve` of a page until the end of the page."""
    command = [sys.executable, "-m", "rag_rewards", *words, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_ready(server, port))
        yield
    finally:
        server.terminate()
        finish(server)


def is_ready(server: subprocess.Popen[bytes], port: int) -> bool:
    assert server.poll() is None, server.args
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=WAIT_SECONDS).close()
        return True
    return False


def cases() -> list[Path]:
    return [
        page
        for page in pages()
        if page.name not in RUN_ELSEWHERE and any(is_run_here(b) for b in blocks(page))
    ]


def is_run_here(block: Any) -> bool:
    return block.language == "sh" and not block.marks


@pytest.mark.parametrize("page", cases(), ids=lambda page: page.name)
def test_the_commands_of_a_page(page: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    lay_out(tmp_path, FILES.get(page.name, {}))
    monkeypatch.chdir(tmp_path)
    port = "8000"  # the number in the pages
    with contextlib.ExitStack() as servers:
        for block in filter(is_run_here, blocks(page)):
            words = shlex.split(block.code.replace("\\\n", " "), comments=True)
            if words[:2] == ["rag-rewards", "serve"]:
                port = str(free_port())
                servers.enter_context(serving(words[1:], int(port)))
            elif words[0] == "rag-rewards":
                for line in block.commands:
                    with pytest.raises(SystemExit) as ended:
                        main(shlex.split(line, comments=True)[1:])
                    assert not ended.value.code, f"{line}: {capsys.readouterr().err}"
            else:
                script = block.code.replace("8000", port)
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True
                )
                assert done.returncode == 0, f"{script}: {done.stderr}"

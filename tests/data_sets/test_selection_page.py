"""Run the commands of docs/selection.md in their order on files with the same names."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from rag_rewards.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "selection.md").read_text("utf-8")
COMMANDS = re.findall(r"^(rag-rewards .*)$", PAGE, re.MULTILINE)

sys.path.append(str(ROOT / "tests" / "models"))


def examples(name):
    return [json.loads(line) for line in (ROOT / f"examples/{name}.jsonl").read_text().splitlines()]


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(command):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    return ended.value.code


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write the files that the page requires: rollouts, scored rollouts, questions and a policy."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tiny_models import save

    monkeypatch.chdir(tmp_path)
    save("policy")
    rollouts = examples("truthrl")
    write("rollouts.jsonl", rollouts)
    questions = {row["question"]: row for row in rollouts}
    gold = ("question", "documents", "answers", "query_time")
    write(
        "questions.jsonl",
        [{name: r[name] for name in gold if name in r} for r in questions.values()],
    )
    multi_hop = {r["question"]: r for r in examples("arena") if r.get("supporting")}
    gold = ("question", "documents", "answers", "supporting")
    write("multi-hop.jsonl", [{name: r[name] for name in gold} for r in multi_hop.values()])
    grounded = [row for row in examples("ground-grpo") if row["answerable"] is False]
    for row in grounded:
        row["group"] = row["question"]
    write("grounded.jsonl", sorted(grounded, key=lambda row: row["group"]))
    for output, recipe in (("clr", "ctrl-rag"), ("arena", "arena"), ("lear", "lear")):
        source = ROOT / f"examples/{recipe}.jsonl"
        assert run(f"rag-rewards score {source} -o {output}.jsonl -r {recipe}") == 0
    # The examples have no group with right responses only, and few groups with a low pass rate.
    scored = [json.loads(line) for line in Path("clr.jsonl").read_text().splitlines()]
    right, wrong = (next(row for row in scored if row["correct"] == mark) for mark in (1, 0))
    for at in range(80):
        fields = {"group": f"more {at}", "question": f"A question of number {at}?"}
        members = [right, right, right] if at % 2 else [right, wrong, wrong]
        for row, likelihood in zip(members, (-1.0, -60.0, -90.0), strict=True):
            scored.append(row | fields | {"details": {"logprob": likelihood}})
    write("clr.jsonl", scored)


@pytest.mark.slow
def test_the_commands_of_the_page(files, capsys):
    assert len(COMMANDS) == 21
    for command in COMMANDS:
        code = run(command)
        assert not code, (command, capsys.readouterr().err)
        words = shlex.split(command)
        output = Path(words[words.index("-o") + 1])
        assert output.read_bytes(), command

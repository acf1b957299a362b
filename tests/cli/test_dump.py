"""Commands that read the dump of a training, also while it is written and in several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rag_rewards as rr
from rag_rewards.files.sources import read_rollouts
from rag_rewards.scorer import Scorer

ROOT = Path(__file__).resolve().parents[2]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def scorer(path: Path, recipe: str = "naive-grpo", **options: Any) -> Scorer:
    return Scorer.load({"recipe": recipe, "dump": str(path), **options})


def rollout(step: int) -> rr.Rollout:
    return rr.Rollout(response="<answer>Seine</answer>", answers="Seine", question="?", step=step)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A dump of ctrl-rag in several files, whose last line is unfinished."""
    path = tmp_path / "rollouts.jsonl"
    rows = read_rollouts(str(ROOT / "examples" / "ctrl-rag.jsonl"))
    with scorer(path, "ctrl-rag", dump_mb=0.05) as scores:
        for step in range(2):
            scores.score_each([msgspec.structs.replace(row, step=step) for row in rows])
    assert len(list(tmp_path.iterdir())) >= 3
    path.write_bytes(path.read_bytes() + b'{"id": "unfinished", "response": "\xc3')
    return path


def test_the_rows_of_several_files_are_read_as_one(dump: Path, cli: Any):
    pattern = dump.with_name("rollouts.*jsonl")
    page = dump.with_name("page.html")
    assert "90 rollouts" in cli("report", pattern, "-o", page, code=0).err
    first = rows_of(dump.with_name("rollouts.1.jsonl"))[0]["id"]
    assert first in cli("explain", pattern, "--id", first, code=0).out
    assert "90 rows" in cli("evaluate", pattern, "-m", "em", code=0).out


def test_an_unfinished_line_is_an_error_of_score(dump: Path, cli: Any):
    scored = dump.with_name("scored.json")
    ran = cli("score", dump, "-o", scored, "-r", "naive-grpo", code=3)
    assert "1 in error" in ran.err
    [record] = rows_of(dump.with_name("scored.json.errors.jsonl"))
    assert record["error"]["message"].startswith("not JSON")
    assert len(rows_of(scored)) == len(dump.read_bytes().splitlines()) - 1


@pytest.mark.parametrize("options", [(), ("--sort",)])
def test_replay_reproduces_the_rewards_of_a_dump(
    dump: Path, cli: Any, options: Any, caplog: pytest.LogCaptureFixture
):
    pattern = dump.with_name("rollouts.*jsonl")
    result = json.loads(cli("replay", pattern, *options, "--json", code=0).out)
    assert (result["rows"], result["recorded"], result["reproduced"]) == (90, 90, 90)
    assert "line 91 is left out, because it ends in the middle of a row" in caplog.text
    text = cli("replay", dump.with_name("rollouts.1.jsonl"), code=0).out
    assert "recorded rewards that the first run reproduces" in text


def test_commands_keep_the_groups_of_two_runs_apart(tmp_path: Path, cli: Any):
    """The rollouts of a prompt and step: all right in one run, and all wrong in another one."""
    path, pattern = tmp_path / "rollouts.jsonl", tmp_path / "rollouts.*jsonl"
    for text in ("Seine", "Rhone"):
        with scorer(path) as scores:
            for _ in range(4):
                row = rr.Rollout(
                    response=f"<answer>{text}</answer>", answers="Seine", question="?", step=1
                )
                scores.score_each([msgspec.structs.replace(row, id="q1")])
    result = json.loads(cli("replay", pattern, "--sort", "--json", code=0).out)
    assert (result["rows"], result["groups"], result["reproduced"]) == (8, 2, 8)
    page = tmp_path / "page.html"
    cli("report", pattern, "-o", page, code=0)
    assert '"groups":2' in page.read_text("utf-8")
    chosen = tmp_path / "chosen.jsonl"
    cli("select", pattern, "-o", chosen, "--sort", "--pass", "0.9:1", code=0)
    assert len(rows_of(chosen)) == 1
    card = chosen.with_name("chosen.jsonl.card.md").read_text("utf-8")
    assert card.count("- file: rollouts.") == 2
    metrics = json.loads(cli("evaluate", pattern, "-m", "reward", "--by", "run", "-o", "-").out)
    assert len(metrics["runs"][0]["by"]["run"]) == 2


def test_a_change_of_a_recorded_reward_is_counted(tmp_path: Path, cli: Any):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as scores:
        scores.score_each([rollout(0), rollout(1)])
    path.write_text(path.read_text("utf-8").replace('"reward":1.0', '"reward":1.5', 1), "utf-8")
    result = json.loads(cli("replay", path, "--json", code=0).out)
    assert (result["recorded"], result["reproduced"]) == (2, 1)


def test_a_pattern_without_files_is_an_error(tmp_path: Path, cli: Any):
    ran = cli("replay", tmp_path / "*.jsonl", code=2)
    assert "no file matches" in ran.err


def test_a_report_states_missing_and_unscored_rollouts(tmp_path: Path, cli: Any):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as scores:
        for step in range(4):
            broken = rr.Rollout(response="a", question="?", step=step)
            scores.score_each([rollout(step), broken])
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0][:-1] + b',"missing_before":7}', *lines[1:]]) + b"\n")
    ran = cli("report", path, "-o", tmp_path / "page.html", code=0)
    assert "note: 7 rollouts are missing, because the dump could not write them" in ran.err
    reason = "4 of them with the error: DataError: answers: missing"
    assert f"note: 4 rollouts are unscored and left out of the means; {reason}" in ran.err
    assert '"unscored":0.5' in (tmp_path / "page.html").read_text("utf-8").replace(" ", "")

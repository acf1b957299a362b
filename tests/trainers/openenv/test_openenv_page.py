"""The blocks of docs/openenv.md, and the column of OpenEnv in the table of trainers."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.openenv import RagRubric

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from build_matrix import cell
from code_blocks import blocks
from golden import GROUPS, MODELS, EvidenceGatherer, Group, bare

from rag_rewards import RECIPES, recipe
from rag_rewards.cli import main
from rag_rewards.errors import UsageError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "openenv.md"
BLOCKS = [block for block in blocks(PAGE.read_text("utf-8")) if "openenv" in block.marks]
END = SimpleNamespace(done=True)
SINGLE = [
    group
    for group in GROUPS
    if recipe(group.recipe).scope == "rollout" and group.case != "tool turns"
]
"""The groups of recipes for one rollout, whose responses are texts."""


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("questions.jsonl").write_text('{"question": "Which river?", "answers": ["Seine"]}\n')
    [block] = [block for block in BLOCKS if block.language == "sh"]
    for command in block.commands:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
        assert not ended.value.code
    [row] = map(json.loads, Path("run/train.jsonl").read_text().splitlines())
    assert "call the search tool" in row["prompt"][0]["content"]


def test_the_code_of_the_page_prints_what_its_comments_say(ready: str, capsys: Any) -> None:
    code = "\n".join(block.code for block in BLOCKS if block.language == "python")
    exec(code.replace("http://localhost:8000", ready), {})  # noqa: S102 (code of this repository)
    printed = capsys.readouterr().out.splitlines()
    expected = [line.partition("  # ")[2] for line in code.splitlines() if "print(" in line]
    assert printed[-5:] == expected[1:]
    assert printed[-6] == "Question: Which river runs through the capital of France?"


def reward_of(rubric: RagRubric, row: dict[str, Any]) -> float | None:
    fields = {name: value for name, value in row.items() if name not in ("response", "turns")}
    rubric.reset(fields)
    turns = row.get("turns") or [{"text": row["response"]}]
    steps = [SimpleNamespace(done=False) for _ in turns[1:]] + [END]
    return [rubric(*step) for step in zip(turns, steps, strict=True)][-1]


@pytest.mark.parametrize("group", SINGLE, ids=lambda group: group.id)
def test_the_golden_groups_have_their_rewards(group: Group) -> None:
    rubric = RagRubric(group.recipe, settings=group.settings, turn=lambda action, _: action)
    rubric.recipe.scorer.gatherer = EvidenceGatherer(group)
    rubric.recipe.scorer.models = MODELS
    rewards = [reward_of(rubric, row) for row in group.rows]
    assert rewards == [None if each is None else pytest.approx(each) for each in group.rewards]


@pytest.mark.parametrize("name", RECIPES)
def test_the_cells_of_the_table_of_trainers(name: str) -> None:
    if recipe(name).scope == "group":
        assert cell(name, "openenv").text.startswith("`RagReward` beside the environment in TRL")
        with pytest.raises(UsageError, match="compares the rollouts of a group"):
            RagRubric(name)
        return
    rubric = RagRubric(name, turn=lambda action, _: action)
    rewards = [reward_of(rubric, row) for row in bare(name)]
    assert (None not in rewards) == (cell(name, "openenv").state == "works")

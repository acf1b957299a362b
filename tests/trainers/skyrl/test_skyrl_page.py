"""The commands of docs/skyrl.md, the settings that `init` writes, and prepared data in SkyRL."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from rag_rewards_adapters.skyrl import SkyRLRecipe
from skyrl.train.dataset import PromptDataset
from skyrl_runs import batch_of, config, run, tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from code_blocks import blocks
from start_scripts import assert_settings_exist, assert_unknown_setting_is_named
from walkthrough import follow, lay_out

PAGE = Path(__file__).resolve().parents[3] / "docs" / "skyrl.md"
BLOCKS = blocks(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("recipe", ["arena", "truthrl", "stepsearch"])
def test_the_settings_exist(tmp_path: Path, recipe: str) -> None:
    assert_settings_exist("skyrl", recipe, tmp_path / "run")


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    assert_unknown_setting_is_named("skyrl", tmp_path)


def test_the_commands_of_the_page(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    lay_out(tmp_path, shared, rows=2)
    [commands] = [b.commands for b in BLOCKS if (b.language, b.marks) == ("sh", ("skyrl",))]
    for command in commands:
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
    compile((tmp_path / "run" / "main.py").read_text(), "main.py", "exec")
    rows = PromptDataset(str(tmp_path / "train.jsonl"), tokenizer(), 8192, num_workers=1)
    messages, env_class, extras, uid = rows[0]
    assert (env_class, uid, messages[-1]["role"]) == (None, "0", "user")
    gold = json.loads(extras["reward_spec"]["ground_truth"])
    labels = ", ".join(gold["supporting"])
    answer = gold["answers"][0][0]
    right = f"<relevance>[{labels}]</relevance><analysis>x</analysis><answer>{answer}</answer>"
    batch = batch_of([extras, extras], "rag")
    output, _ = run(SkyRLRecipe("arena"), [[right], ["none of it"]], batch, config())
    assert output["rewards"] == [13.0, 0.0]


def test_the_row_and_the_code_of_the_page() -> None:
    [row] = [json.loads(block.code) for block in BLOCKS if block.language == "json"]
    text = "<relevance>[1]</relevance><analysis>x</analysis><answer>Seine</answer>"
    output, _ = run(SkyRLRecipe("arena"), [[text]], batch_of([row], "rag"), config())
    assert output["rewards"] == [13.0]
    [code] = [b.code for b in BLOCKS if (b.language, b.marks) == ("python", ("skyrl",))]
    scope: dict[str, object] = {}
    exec(compile(code, "skyrl.md", "exec"), scope)  # noqa: S102
    assert re.match("RagExp", scope["RagExp"].__name__)  # type: ignore[attr-defined]

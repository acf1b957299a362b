"""A new trainer needs four files: its record, its adapter, its template and its page.

The tests add an invented trainer to a copy of the repository. Then the commands, the environments
of tests, the table of trainers and the navigation of the site contain it without another change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from repository_copy import Copy

ROOT = Path(__file__).resolve().parents[2]
RECORD = """    "loom": Trainer(
        title="Loom",
        package="loom-rl",
        since="2.0",
        tested="2.1.0",
        environment=("loom-rl==2.1.0 pytest",),
        install="pip install loom-rl==2.1.0",
        one_rollout="train with trl",
    ),
}
\"\"\"The record of each trainer"""
ADAPTER = """from rag_rewards_adapters.callables import each


def reward(recipe):
    score = each(recipe)
    return lambda sample: score(sample["row"] | {"response": sample["output"]})
"""
TEMPLATE = """==== loom.toml
# GRPO with Loom, with the reward {name}
---- settings
# your setup
model = {policy!u}
data = {data!u}
learning_rate = {learning_rate}
group = {group}
----
"""
SITE = """
import json, sys
sys.path.insert(0, "docs")
import build_inserts, build_matrix
from code_blocks import MARKS
lines = build_matrix.table().splitlines()
print(json.dumps([[lines[0], lines[2], lines[-1]], build_inserts.trainers()]))
"""
NAVIGATION = """
import json, sys
sys.path.insert(0, "docs")
import site_hooks
print(json.dumps(site_hooks.on_config({"nav": [{"Trainers": ["trainers.md"]}]})))
"""
SCORE = """
from rag_rewards_adapters.loom import reward
row = {"question": "Which river flows through Paris?", "answers": ["Seine"]}
print(reward("naive-grpo")({"row": row, "output": "<think>a</think><answer>Seine</answer>"}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy of the repository with the new trainer. One file is changed, and three are new."""
    copy = Copy.in_folder(tmp_path_factory.mktemp("copy") / "repository")
    records = copy.folder / "rag_rewards/trainers.py"
    end = '}\n"""The record of each trainer'
    assert records.read_text("utf-8").count(end) == 1
    records.write_text(records.read_text("utf-8").replace(end, RECORD), "utf-8")
    for path, text in {
        "adapters/rag_rewards_adapters/loom.py": ADAPTER,
        "rag_rewards/scripts/templates/loom.txt": TEMPLATE,
        "docs/loom.md": "# Loom\n",
    }.items():
        (copy.folder / path).write_text(text, "utf-8")
    return copy


def test_commands(copy: Copy) -> None:
    row = {"question": "Which river?", "documents": [{"text": "The Seine."}], "answers": ["Seine"]}
    (copy.folder / "rows.jsonl").write_text(json.dumps(row))
    help_of_init, _, doctor, _ = copy.commands(
        ["init", "--help"],
        ["init", "loom", "-r", "arena", "--policy", "my model", "-o", "run"],
        ["doctor", "--json"],
        ["prepare", "rows", "rows.jsonl", "-r", "naive-grpo", "-t", "loom", "-o", "train.jsonl"],
    )
    assert "loom" in help_of_init
    assert copy.text("run/loom.toml") == (
        "# GRPO with Loom, with the reward arena\n# your setup\n"
        'model = "my model"\ndata = "train.jsonl"\n'
        "# ARENA, appendix E\nlearning_rate = 3e-06\ngroup = 7\n"
    )
    [result] = [each for each in json.loads(doctor) if each["name"] == "Loom"]
    assert (result["state"], result["todo"]) == ("absent", "pip install loom-rl==2.1.0")
    assert json.loads(copy.text("train.jsonl"))["prompt"][0]["role"] == "user"


def test_the_adapter(copy: Copy) -> None:
    assert copy.python("-c", SCORE).strip() == "2.0"


def test_environments(copy: Copy) -> None:
    program = "rag_rewards/trainers.py"
    assert copy.python(program, "loom") == "loom-rl==2.1.0 pytest\n"
    assert copy.python(program, "--more").split()[-1] == "loom"
    assert "loom" not in copy.python(program, "--quick")


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["slime"], ["trl", "verl"]])
def test_an_unknown_environment_is_an_error(arguments: list[str]) -> None:
    command = [sys.executable, str(ROOT / "rag_rewards/trainers.py"), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--quick, --more or a name of trl verl" in ran.stderr


def test_tests_of_no_trainer_are_an_error() -> None:
    command = ["make", "test-trainers", "PYTHON=false"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "no trainer: set TRAINERS" in ran.stderr


def test_the_table_of_trainers(copy: Copy) -> None:
    [head, cells, floor], titles = json.loads(copy.python("-c", SITE))
    assert head.split(" | ")[-2] == "Loom 2.1"
    assert cells.split(" | ")[-2] == "works"
    assert floor.split(" | ")[-2] == "not available: one rollout at a time"
    assert titles[-1] == "Loom"


def test_navigation_of_the_site(copy: Copy) -> None:
    pytest.importorskip("mkdocs", reason='pip install "rag-rewards[docs]"')
    [section] = json.loads(copy.python("-c", NAVIGATION))["nav"]
    assert section["Trainers"][-1] == {"Loom": "loom.md"}

"""Files for people and programs that use the repository: skill, citation, issue forms."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import rag_rewards as rr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
code_blocks = importlib.import_module("code_blocks")


def test_the_skill_has_the_form_of_agent_skills() -> None:
    """The rules of the specification at agentskills.io."""
    [path] = (ROOT / "examples" / "skills").glob("*/SKILL.md")
    text = path.read_text("utf-8")
    facts: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    assert facts.keys() <= {"name", "description", "license", "compatibility", "metadata"}
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", facts["name"])
    assert facts["name"] == path.parent.name
    assert len(facts["name"]) <= 64
    assert 0 < len(facts["description"]) <= 1024
    assert len(facts["compatibility"]) <= 500
    assert text.count("\n") <= 150
    recipes = re.findall(r"`([a-z0-9-]+)`", text.split("## 2.")[1].split("```")[0])
    assert len(set(recipes) & rr.RECIPES.keys()) >= 10


def test_the_targets_and_tests_that_agents_run_exist() -> None:
    blocks = code_blocks.blocks((ROOT / "AGENTS.md").read_text("utf-8"))
    words = [line.split() for block in blocks for line in block.commands]
    targets = [line[1] for line in words if line[0] == "make"]
    assert len(targets) >= 3
    assert all(re.search(rf"^{each}:", (ROOT / "Makefile").read_text(), re.M) for each in targets)
    files = [word for line in words for word in line if word.startswith("tests/")]
    assert files
    assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_files_agree_with_the_schemas_of_their_readers(schema: str, pattern: str) -> None:
    pytest.importorskip("check_jsonschema")
    files = sorted(str(path) for path in ROOT.glob(pattern))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_citation_agrees_with_the_package() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == rr.__version__
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in ("license", "description"):
        key = "abstract" if name == "description" else name
        assert f'{name} = "{cited[key]}"' in project
    assert f'authors = [{{ name = "{cited["authors"][0]["name"]}" }}]' in project

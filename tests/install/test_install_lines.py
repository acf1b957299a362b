"""The commands that install the trainers and this package, as the pages show them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from rag_rewards.trainers import TRAINERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
RESOLVED = json.loads(Path(__file__).with_name("resolved.json").read_text("utf-8"))["trainers"]
INSTALLED = {name: trainer for name, trainer in TRAINERS.items() if trainer.on_gpus}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OWN = re.compile(
    r'^pip install "?rag-rewards(\[[\w,]+\])?"? +# from (?:a|the) clone: pip install '
    r'"?\.(\[[\w,]+\])?"?$'
)


def test_every_installation_is_resolved():
    """Run `make install-lines` after a change of a command."""
    assert RESOLVED.keys() == INSTALLED.keys()
    for name, trainer in INSTALLED.items():
        assert RESOLVED[name]["requirements"] == list(trainer.requirements)
        assert RESOLVED[name]["extras"] == list(trainer.extras)
        for line in map(Requirement, trainer.requirements):
            version = RESOLVED[name]["versions"].get(line.name)
            assert version is None or line.specifier.contains(version), line
        lines = map(Requirement, trainer.requirements)
        pins = [str(line.specifier) for line in lines if line.name == trainer.package]
        assert pins == [f"=={trainer.tested}"]


def test_what_the_pages_say_about_the_extra_vllm():
    """The resolved versions and the extra vllm agree with the sentences of the pages."""
    extra = next(
        Requirement(line) for line in PROJECT["optional-dependencies"]["vllm"] if "vllm" in line
    )
    for name, resolved in RESOLVED.items():
        page = f"docs/{name}.md"
        fits = extra.specifier.contains(resolved["versions"]["vllm"])
        assert resolved["fits_extra_vllm"] == fits, name
        text = " ".join((ROOT / page).read_text("utf-8").split())
        if fits:
            assert "`rag-rewards[vllm]` fits into the same environment" in text, page
        else:
            assert "fit into one environment" in text, page
            assert "--model URL --backend vllm" in text, page


@pytest.mark.parametrize("name", INSTALLED)
def test_the_page_shows_the_commands(name):
    text = (ROOT / f"docs/{name}.md").read_text("utf-8")
    assert "\n".join(INSTALLED[name].on_gpus) in text


def test_the_versions_in_the_page_of_verl():
    text = " ".join((ROOT / "docs/verl.md").read_text("utf-8").split())
    versions = RESOLVED["verl"]["versions"]
    assert f"vLLM {versions['vllm']}, torch {versions['torch']}" in text
    assert f"transformers {versions['transformers']}" in text
    text = " ".join((ROOT / "docs/openrlhf.md").read_text("utf-8").split())
    versions = RESOLVED["openrlhf"]["versions"]
    assert f"vLLM {versions['vllm']} and transformers {versions['transformers']}" in text


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_commands_work_from_an_index_and_from_a_clone(page):
    """Each command that installs this package has the same extras in both forms, and they exist."""
    for block in re.findall(r"^```sh[^\n]*\n(.*?)^```", page.read_text("utf-8"), re.S | re.M):
        for line in block.splitlines():
            if not re.match(r'pip install "?rag-rewards', line):
                continue
            command = OWN.match(line)
            assert command, f"{page.name}: {line}"
            assert command[1] == command[2], line
            extras = (command[1] or "").strip("[]").split(",")
            assert {each for each in extras if each} <= PROJECT["optional-dependencies"].keys()


def test_the_python_of_the_resolution_is_supported():
    python = json.loads(Path(__file__).with_name("resolved.json").read_text("utf-8"))["python"]
    assert Requirement(f"x{PROJECT['requires-python']}").specifier.contains(Version(python))

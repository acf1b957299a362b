"""Tests of start scripts that all trainers share: the installed trainer reads the settings.

The module of a trainer imports the tests. They take the name of the trainer from its folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from processes import WAIT_SECONDS

from rag_rewards.cli.doctor import examine
from rag_rewards.cli.init import check

RECIPES = ("arena", "lear", "ctrl-rag")
SEARCH_RECIPES = ("search-r1", "stepsearch", "igpo")
COMPONENTS = ("--components", "outcome,format=0.2")
"""Options for `search-r1`, whose components the trainer normalizes one by one."""


def init(
    trainer: str, recipe: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rag_rewards", "init", trainer, "-r", recipe, "-o", folder]
    command += options
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )


def written_settings(trainer: str, recipe: str, folder: Path) -> list[str]:
    """Return the words of the settings in the script that `init` writes."""
    assert init(trainer, recipe, folder).returncode == 0
    text = (folder / "train.sh").read_text("utf-8")
    array = text[text.index("settings=(") + len("settings=(") : text.index("\n)\n")]
    return shlex.split(array, comments=True)


def assert_settings_exist(trainer: str, recipe: str, folder: Path, *options: str) -> None:
    ran = init(trainer, recipe, folder, *options)
    assert (ran.returncode, ran.stderr) == (0, "")


def assert_unknown_setting_is_named(trainer: str, folder: Path) -> None:
    init(trainer, "arena", folder)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("temperature", "temprature"))
    assert "temprature" in check(trainer, folder)


@pytest.fixture
def trainer(request: pytest.FixtureRequest) -> str:
    """The trainer of the folder that contains the test."""
    return request.path.parent.name.replace("_", "-")


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_trainer_accepts_every_setting(trainer: str, tmp_path: Path, recipe: str) -> None:
    assert_settings_exist(trainer, recipe, tmp_path / "run")


def test_the_trainer_accepts_components(trainer: str, tmp_path: Path) -> None:
    assert_settings_exist(trainer, "search-r1", tmp_path / "run", *COMPONENTS)


def test_doctor_accepts_the_environment_of_the_tests(trainer: str) -> None:
    assert [each for each in examine() if each.state == "problem"] == []


def test_an_unknown_setting_is_named(trainer: str, tmp_path: Path) -> None:
    assert_unknown_setting_is_named(trainer, tmp_path / "run")


@pytest.mark.parametrize("recipe", SEARCH_RECIPES)
def test_the_script_of_a_search_agent_requires_a_search_engine(
    trainer: str, tmp_path: Path, recipe: str
) -> None:
    """Start the script of a search agent without an edit, in this environment."""
    folder = tmp_path / "run"
    settings = ("--set", "credit.method=group") if recipe == "igpo" else ()
    written = init(trainer, recipe, folder, "--policy", "model", "--data", "data.jsonl", *settings)
    assert (written.returncode, written.stderr) == (0, "")
    is_python = (folder / "train.py").exists()
    command = [sys.executable, folder / "train.py"] if is_python else ["bash", folder / "train.sh"]
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=os.environ | {"PATH": programs},
    )
    assert ran.returncode == 1
    message = f"the policy has no search engine: edit {folder / 'search.py'}"
    assert message in ran.stderr.splitlines()[-1]

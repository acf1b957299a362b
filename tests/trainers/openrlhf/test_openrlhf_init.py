"""What `rag-rewards init` writes, read by the trainer's own code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rag_rewards.commands.init import check

TRAINER = "openrlhf"


def init(recipe: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rag_rewards", "init", TRAINER, "-r", recipe, "-o", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("recipe", ["arena", "lear", "ctrl-rag"])
def test_the_installed_trainer_knows_every_key(tmp_path: Path, recipe: str) -> None:
    ran = init(recipe, tmp_path / "run")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_key_that_it_does_not_know_is_named(tmp_path: Path) -> None:
    init("arena", tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        path.write_text(path.read_text().replace("temperature", "temprature"))
    assert "temprature" in check(TRAINER, tmp_path / "run")

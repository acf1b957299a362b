"""Tests of start scripts that all trainers share: the installed trainer reads the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rag_rewards.cli.init import check

RECIPES = ("arena", "lear", "ctrl-rag")


def init(trainer: str, recipe: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rag_rewards", "init", trainer, "-r", recipe, "-o", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def assert_settings_exist(trainer: str, recipe: str, folder: Path) -> None:
    ran = init(trainer, recipe, folder)
    assert (ran.returncode, ran.stderr) == (0, "")


def assert_unknown_setting_is_named(trainer: str, folder: Path) -> None:
    init(trainer, "arena", folder)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("temperature", "temprature"))
    assert "temprature" in check(trainer, folder)

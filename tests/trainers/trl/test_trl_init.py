"""What `rag-rewards init` writes, read by the trainer's own code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from started import RECIPES, a_wrong_key_is_named, every_key_is_known


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_installed_trainer_knows_every_key(tmp_path: Path, recipe: str) -> None:
    every_key_is_known("trl", recipe, tmp_path / "run")


def test_a_key_that_it_does_not_know_is_named(tmp_path: Path) -> None:
    a_wrong_key_is_named("trl", tmp_path / "run")

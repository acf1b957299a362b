"""Start scripts of `rag-rewards init`, read by the code of the trainer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import (
    RECIPES,
    SEARCH_RECIPES,
    assert_search_engine_is_required,
    assert_settings_exist,
    assert_unknown_setting_is_named,
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_trainer_accepts_every_setting(tmp_path: Path, recipe: str) -> None:
    assert_settings_exist("openrlhf", recipe, tmp_path / "run")


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    assert_unknown_setting_is_named("openrlhf", tmp_path / "run")


@pytest.mark.parametrize("recipe", SEARCH_RECIPES)
def test_the_script_of_a_search_agent_requires_a_search_engine(tmp_path: Path, recipe: str) -> None:
    assert_search_engine_is_required("openrlhf", recipe, tmp_path / "run")

"""Start scripts of `rag-rewards init`, read by the code of the trainer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import (
    COMPONENTS,
    RECIPES,
    SEARCH_RECIPES,
    assert_search_engine_is_required,
    assert_settings_exist,
    assert_unknown_setting_is_named,
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_trainer_accepts_every_setting(tmp_path: Path, recipe: str) -> None:
    assert_settings_exist("trl", recipe, tmp_path / "run")


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    assert_unknown_setting_is_named("trl", tmp_path / "run")


def test_the_trainer_accepts_components(tmp_path: Path) -> None:
    assert_settings_exist("trl", "search-r1", tmp_path / "run", *COMPONENTS)


def test_accelerate_accepts_the_options_of_a_node() -> None:
    from accelerate.commands.launch import launch_command_parser

    page = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text("utf-8")
    command = page[page.index("accelerate launch") :].partition("```")[0]
    words = shlex.split(command.replace("\\\n", " "))
    options = launch_command_parser().parse_args(words[2:])
    assert (options.num_machines, options.num_processes, options.machine_rank) == (2, 16, 0)
    assert (options.main_process_ip, options.main_process_port) == ("10.0.0.1", 29500)
    assert options.training_script == "train.py"


@pytest.mark.parametrize("recipe", SEARCH_RECIPES)
def test_the_script_of_a_search_agent_requires_a_search_engine(tmp_path: Path, recipe: str) -> None:
    assert_search_engine_is_required("trl", recipe, tmp_path / "run")

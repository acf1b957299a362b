"""Start scripts of `rag-rewards init`, read by the code of the trainer."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
import rag_rewards_adapters.trl

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import (  # noqa: F401
    test_an_unknown_setting_is_named,
    test_doctor_accepts_the_environment_of_the_tests,
    test_the_script_of_a_search_agent_requires_a_search_engine,
    test_the_trainer_accepts_components,
    test_the_trainer_accepts_every_setting,
    trainer,
)


def test_accelerate_accepts_the_options_of_a_node() -> None:
    from accelerate.commands.launch import launch_command_parser

    page = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text("utf-8")
    command = page[page.index("accelerate launch") :].partition("```")[0]
    words = shlex.split(command.replace("\\\n", " "))
    options = launch_command_parser().parse_args(words[2:])
    assert (options.num_machines, options.num_processes, options.machine_rank) == (2, 16, 0)
    assert (options.main_process_ip, options.main_process_port) == ("10.0.0.1", 29500)
    assert options.training_script == "train.py"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("trl_turn_trainer", "TurnGRPOTrainer"),
        ("trl_k2_trainer", "K2Trainer"),
        ("trl_k2_trainer", "K2TurnTrainer"),
        ("trl_group_filter", "FilteredGRPOTrainer"),
        ("trl_group_filter", "GroupFilter"),
    ],
)
def test_training_scripts_can_import_the_earlier_names(module: str, name: str) -> None:
    earlier = getattr(import_module(f"rag_rewards_adapters.{module}"), name)
    assert earlier is getattr(rag_rewards_adapters.trl, name)

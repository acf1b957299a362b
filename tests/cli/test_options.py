"""Options are generated from the fields of dataclasses."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from rag_rewards.cli.app import COMMANDS, make_app
from rag_rewards.cli.entry import flag
from rag_rewards.cli.options import ModelGroups
from rag_rewards.errors import OptionError
from rag_rewards.models.model_options import (
    EncoderOptions,
    JudgeOptions,
    ModelOptions,
    PolicyOptions,
)

MODEL_FLAGS = {flag(field.name): field for field in fields(ModelOptions)}
WITH_MODELS = {"score", "audit", "calibrate", "explain", "serve", "init", "probe"}

NAMES = {
    "score": "--output -o --recipe -r --set --config --hardened --workers --keep-evidence "
    "--on-error --group-size --sort --progress --no-progress --table --jsonl "
    "--output-format",
    "recipes": "--json",
    "replay": "--recipe -r --set --config --hardened --base --group-size --sort --show --json",
    "audit": "--recipe -r --set --config --hardened --attack --train --steps --seed --format "
    "--start --progress --no-progress --json",
    "evaluate": "--metrics -m --config --by --questions --output -o "
    "--json --resamples --seed --nli --device --judge --judge-model --judge-cache "
    "--judge-retries",
    "calibrate": "--label -l --label-threshold --column -c --metrics --metric -m --score --claims "
    "--max-false-positive-rate --threshold --by --lengths --resamples --seed --threshold-file "
    "--output -o --json --recipe -r --set --config --hardened --group-size --sort --progress "
    "--no-progress",
    "explain": "--id --output -o --svg --recipe -r --set --config --hardened --json",
    "report": "--output -o --recipe -r --set --config --hardened --title --label "
    "-l --label-threshold",
    "serve": "--recipe -r --set --config --hardened --host --port --token-file --max-body "
    "--max-row --max-rows --deadline --batch-ms --breaker-failures --breaker-seconds "
    "--on-error --error-value --log-format --log-requests --traces",
    "init": "--recipe -r --policy --data --validation --output -o --components --set --config "
    "--hardened",
    "doctor": "--json",
    "prepare": "--output -o --recipe -r --prompt --dialect --no-documents --prompt-template "
    "--document-form --document-separator --trainer -t --preset --sample --unanswerable --seed "
    "--order --top --noise --noise-to --noise-from --find-answers --documents-from "
    "--answer-in-documents --pages --document-pool --split --progress --no-progress",
    "probe": "--output -o --recipe -r --set --config --hardened --samples --temperature "
    "--top-p --max-tokens --stop --seed --batch --keep-rollouts --right-at --group-size --sort "
    "--progress --no-progress",
    "select": "--output -o --recipe -r --set --config --hardened --pass --std-of --min-std "
    "--min-spread --min-samples --right-at --unique --exclude --sample --seed --rollouts "
    "--make --style --group-size --sort",
}
"""The options of version 0.1.0 besides those of models."""


def arguments_of(command: str) -> dict[str, Any]:
    """Return the arguments of a command by each of their names."""
    collection = make_app()[command].assemble_argument_collection(parse_docstring=True)
    return {name: argument for argument in collection for name in argument.names}


def test_all_commands_are_listed():
    assert NAMES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", NAMES)
def test_every_option_keeps_its_name(command):
    assert set(NAMES[command].split()) <= arguments_of(command).keys()


@pytest.mark.parametrize("command", sorted(WITH_MODELS))
def test_model_options_have_the_names_and_defaults_of_their_fields(command):
    arguments = arguments_of(command)
    for name, field in MODEL_FLAGS.items():
        assert arguments[name].field_info.default == field.default


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command):
    for name, argument in arguments_of(command).items():
        if not argument.children:
            assert (argument.parameter.help or "").endswith("."), name


@pytest.mark.parametrize("command", COMMANDS)
def test_the_summary_of_a_command_equals_its_docstring(command):
    function = make_app()[command].default_command
    assert function.__doc__.splitlines()[0] == COMMANDS[command].summary


def test_the_help_groups_options(cli):
    text = cli("score", "--help", code=0).out
    panels = ("Input and output", "Recipe", "Groups", "Models", "Judge")
    assert [text.index(panel) for panel in panels] == sorted(text.index(p) for p in panels)


def test_groups_of_options_become_model_options():
    policy = PolicyOptions(model="folder", device="cpu", document_separator="\\n")
    encoders, judge = EncoderOptions(nli="nli"), JudgeOptions(judge_retries=2)
    options = ModelGroups(policy=policy, encoders=encoders, judge=judge).options()
    expected = ModelOptions(
        model="folder", device="cpu", document_separator="\n", nli="nli", judge_retries=2
    )
    assert options == expected


def test_an_error_names_the_option_of_the_command_line(cli):
    result = cli("audit", "-r", "arena", "--judge", "http://localhost:1/v1", code=2)
    assert "--judge requires --judge-model" in result.err
    with pytest.raises(OptionError, match=r"^judge requires judge_model"):
        ModelGroups(judge=JudgeOptions(judge="http://localhost:1/v1")).options()

"""Options that commands share: each lands in the field of ModelOptions that it names."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer

from rag_rewards.cli.app import app
from rag_rewards.cli.option import models_of
from rag_rewards.errors import UsageError
from rag_rewards.grading import ModelOptions

COMMANDS = typer.main.get_command(app).commands
FLAGS = {f"--{field.name.replace('_', '-')}": field for field in fields(ModelOptions)}
ASKING = {"score", "audit", "evaluate", "explain", "serve", "init", "probe"}
"""Commands that ask models."""


def parsed(command: str, *arguments: str) -> typer.Context:
    return COMMANDS[command].make_context(command, list(arguments))


def test_these_commands_ask_models():
    asking = {
        name
        for name, command in COMMANDS.items()
        if any(parameter.name == "nli" for parameter in command.params)
    }
    assert asking == ASKING


@pytest.mark.parametrize("name", sorted(ASKING))
def test_parameters_bear_the_names_and_defaults_of_their_fields(name):
    flags = {option.opts[0]: option for option in COMMANDS[name].params}
    shared = flags.keys() & FLAGS.keys()
    assert len(shared) >= 6
    for flag in shared:
        assert flags[flag].name == FLAGS[flag].name
        assert flags[flag].default == FLAGS[flag].default


def test_models_of_a_command():
    given = ("--model", "folder", "--device", "cpu", "--truncate", "--judge-retries", "2")
    assert models_of(parsed("score", "rows.jsonl", *given)) == ModelOptions(
        model="folder", device="cpu", truncate=True, judge_retries=2
    )


def test_a_command_without_an_option_keeps_the_default():
    assert models_of(parsed("audit", "--nli", "folder")) == ModelOptions(nli="folder")


def test_options_that_do_not_fit():
    with pytest.raises(UsageError, match="--judge URL needs --judge-model NAME"):
        models_of(parsed("audit", "--judge", "http://localhost:1/v1"))

"""Options are generated from the fields of dataclasses; the help shows the main ones."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from cyclopts.argument import Argument

from rag_rewards.cli.app import COMMANDS, make_app
from rag_rewards.cli.entry import MODEL_SETTINGS, WITHOUT_MODELS, flag
from rag_rewards.cli.output import with_flags
from rag_rewards.cli.recipe_options import RecipeOptions
from rag_rewards.cli.removed_options import REMOVED_OPTIONS
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.evidence.needs import GeneratedAnswerNeed
from rag_rewards.models.model_options import ModelChoice, ModelOptions, ModelSettings

REQUIRED = {
    "explain": ("rows.jsonl", "--id", "a"),
    "init": ("trl",),
    "serve": (),
    "prepare": ("rows", "rows.jsonl", "-o", "x.jsonl", "-r", "arena"),
    "select": ("rows.jsonl", "-o", "x.jsonl"),
    "probe": ("rows.jsonl", "-o", "x.jsonl"),
    "report": ("rows.jsonl", "-o", "x.html"),
    "calibrate": ("rows.jsonl", "--label", "human"),
}
"""The arguments without which a command does not read the others."""
OPTIONS, MAX_SHOWN = 284, 15


def arguments_of(command: str) -> dict[str, Argument]:
    """Return the arguments of a command by each of their names."""
    collection = make_app()[command].assemble_argument_collection(parse_docstring=True)
    return {name: argument for argument in collection for name in argument.names}


def options_in(text: str) -> set[str]:
    """Return the options that a help lists in its panels."""
    panels = [line for line in text.splitlines() if line.startswith("│")]
    return {option for line in panels for option in re.findall(r"^│[ *]+(--[a-z-]+)", line)}


def test_the_number_of_options():
    collections = [make_app()[command].assemble_argument_collection() for command in COMMANDS]
    names = [each.name for collection in collections for each in collection]
    assert sum(name.startswith("--") for name in names) == OPTIONS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_the_main_options_and_help_all_shows_all(cli, command):
    arguments = arguments_of(command)
    every = {each.name for name, each in arguments.items() if name.startswith("--")}
    main = set(COMMANDS[command].options.split()) or every
    assert main <= every
    assert len(main) <= MAX_SHOWN
    short = cli(command, "--help", code=0).out
    assert options_in(short) == main
    assert ("--help-all" in short) == (main < every)
    whole = cli(command, "--help-all", code=0).out
    assert options_in(whole) == every


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text_of_one_paragraph(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    whole = cli(command, "--help-all", code=0).out
    for name, argument in arguments_of(command).items():
        if not argument.children:
            text = argument.parameter.help or ""
            assert text.endswith("."), name
            assert " ".join(text.split()) in whole


@pytest.mark.parametrize("command", COMMANDS)
def test_the_summary_of_a_command_equals_its_docstring(command):
    function = make_app()[command].default_command
    assert function.__doc__.splitlines()[0] == COMMANDS[command].summary


def test_every_command_has_the_options_of_models_or_none():
    names = {flag(each.name): each.default for each in fields(ModelChoice)}
    with_models = set()
    for command in COMMANDS:
        arguments = arguments_of(command)
        if "--model" in arguments:
            with_models.add(command)
            assert {name: arguments[name].field_info.default for name in names} == names
    assert with_models == set(COMMANDS) - WITHOUT_MODELS


def test_the_help_groups_options(cli):
    text = cli("score", "--help", code=0).out
    panels = ("Input and output", "Recipe", "Models")
    assert [text.index(panel) for panel in panels] == sorted(text.index(p) for p in panels)


# --- settings of models --------------------------------------------------------------------------


def test_settings_of_models_are_in_set_and_in_the_config_file(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("threshold: null\nmodels: {dtype: float16, judge_retries: 3, nli: other}\n")
    recipe = RecipeOptions(
        recipe="ctrl-rag",
        config=config,
        set=[
            *(r"models.document_separator=\n", "models.document_form={text}", "accuracy.extra=1"),
            *("models.judge_retries=2", "models.truncate=true"),
        ],
    )
    assert recipe.spec().settings == {"threshold": None, "accuracy.extra": 1}
    chosen = ModelChoice(model="folder", nli="nli")
    assert chosen.options(recipe.models) == ModelOptions(
        model="folder",
        nli="nli",
        dtype="float16",
        judge_retries=2,
        truncate=True,
        document_form="{text}",
        document_separator="\n",
    )


def test_a_config_file_can_have_settings_of_models_only(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("models: {judge_retries: 3}\n")
    recipe = RecipeOptions(config=config)
    assert recipe.optional_spec() is None
    assert recipe.models == {"judge_retries": 3}
    config.write_text("models: [3]\n")
    with pytest.raises(UsageError, match="models must be a mapping"):
        RecipeOptions(config=config).spec(required=False)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("models.token_budget=many", "models.token_budget must be a whole number, found 'many'"),
        ("models.token_budget=9", "models.token_budget must be at least 256, found 9"),
        ("models.truncate=maybe", "models.truncate must be true or false, found 'maybe'"),
        ("models.dtyp=float32", "unknown option 'models.dtyp'; did you mean 'dtype'?"),
        ("models.attention=x", "there is no option models.attention since version 0.8.0"),
        ("models.dtype", "--set expects KEY=VALUE, found 'models.dtype'"),
        ("models.", "--set expects KEY=VALUE, found 'models.'"),
    ],
)
def test_invalid_settings_of_models(cli, pair, message):
    assert message in cli("audit", "-r", "arena", "--set", pair, code=2).err


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("{nope: 1}", "unknown option 'models.nope'"),
        ("{dtype: 5}", "models.dtype must be text, found 5"),
        ("{model: 123}", "models.model must be text, found 123"),
        ("{backend: jax}", "models.backend must be one of transformers, vllm, sglang"),
        ("{judge_retries: abc}", "models.judge_retries must be a whole number, found 'abc'"),
        ("{attention: x}", "there is no option models.attention since version 0.8.0"),
    ],
)
def test_invalid_settings_of_models_in_a_file(cli, tmp_path, models, message):
    config = tmp_path / "config.yaml"
    config.write_text(f"models: {models}\n")
    error = cli("audit", "-r", "arena", "--config", config, code=2).err
    assert f"rag-rewards: {config}: {message}" in error


def test_an_option_with_the_default_value_takes_precedence(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("models: {backend: vllm, model: folder, adapter: other, dtype: float16}\n")
    pairs = ["models.adapter=null", "models.dtype=null", "models.document_form=# {text}"]
    recipe = RecipeOptions(config=config, set=[*pairs, "models.judge_model=1e3"])
    chosen = ModelChoice(backend="transformers").options(recipe.models)
    assert chosen == ModelOptions(model="folder", document_form="# {text}", judge_model="1e3")


@pytest.mark.parametrize("command", ["replay", "report"])
def test_settings_of_models_are_for_commands_with_models(cli, write, arena, tmp_path, command):
    output = ("-o", tmp_path / "x.html") if command == "report" else ()
    given = ("-r", "arena", *output, "--set", "models.dtype=x")
    error = cli(command, write([arena()]), *given, code=2).err
    assert f"--set models.dtype: {command} uses no models; leave it out" in error


# --- removed options -----------------------------------------------------------------------------


def test_the_settings_of_models_are_known_to_the_entry_point():
    assert {each.name for each in fields(ModelSettings)} == MODEL_SETTINGS


@pytest.mark.parametrize("name", [each for each in REMOVED_OPTIONS if "." in each])
def test_each_removed_option_has_a_message(cli, name):
    command, _, option = name.partition(".")
    written = f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}"
    for words in ((written, "2"), (f"{written}=2",)):
        message = cli(command, *REQUIRED.get(command, ("rows.jsonl",)), *words, code=2).err
        start = f"there is no option {written} since version 0.8.0: "
        assert start in message
        assert re.match("(use|see|run|write|leave|multiply) ", message.partition(start)[2])


@pytest.mark.parametrize("option", ["--progress", "--attention=plain", "--dtype", "--truncate"])
@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_several_commands_had(cli, command, option):
    """The replacement is an option of the command. Commands without models had none of them."""
    arguments = REQUIRED.get(command, ("rows.jsonl",))
    message = cli(command, *arguments, option, code=2).err
    name = option.partition("=")[0]
    if command in WITHOUT_MODELS and name != "--progress":
        assert f"Unknown option: {name}" in message
        return
    _, removed, replacement = message.partition(f"there is no option {name} since version 0.8.0: ")
    assert removed
    assert set(re.findall("--[a-z-]+", replacement)) <= arguments_of(command).keys()


@pytest.mark.parametrize("option", ["--generator", "--judge-templates", "--nli-profile"])
def test_settings_that_were_never_options(cli, option):
    message = cli("audit", "-r", "arena", option, "x", code=2).err
    name = option[2:].replace("-", "_")
    assert f"there is no option {option}: use --set models.{name}=VALUE" in message


def test_a_missing_generated_answer_names_the_options_of_the_command_line():
    message = with_flags(GeneratedAnswerNeed.fault)
    assert "pass --set models.generator=PATH, or pass --model PATH" in message


def test_an_error_names_the_option_of_the_command_line(cli):
    result = cli("audit", "-r", "arena", "--judge", "http://localhost:1/v1", code=2)
    assert "--judge requires --judge-model" in result.err
    with pytest.raises(OptionError, match=r"^judge requires judge_model"):
        ModelChoice(judge="http://localhost:1/v1").options()

"""Help, version, recipes and invalid arguments."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rag_rewards import RECIPES, __version__

EXAMPLE = "examples/arena.jsonl"


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])


def test_version(cli):
    assert cli("--version", code=0).out == f"rag-rewards {__version__}\n"


def test_no_arguments_shows_help(shell):
    result = shell(code=2)
    assert "Usage" in result.out + result.err


def test_help_contains_the_description_of_a_command(cli):
    assert "The exit code is 1" in " ".join(cli("audit", "--help", code=0).out.split())


@pytest.mark.parametrize("command", ["score", "recipes", "replay"])
def test_every_command_has_a_working_example(cli, command, tmp_path):
    output = cli(command, "--help", code=0).out
    example = " ".join(re.sub(r"[│╭╮╰╯─]", " ", output.split("Example:")[1]).split())
    words = shlex.split(example)
    assert words[:2] == ["rag-rewards", command]
    words = [str(tmp_path / word) if word == "scored.jsonl" else word for word in words]
    assert cli(*words[1:], code=0).out or (tmp_path / "scored.jsonl").stat().st_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scor"], 'Unknown command "scor"'),
        (["score"], "parameter IN requires an argument"),
        (["score", EXAMPLE], "no recipe is given: set --recipe"),
        (["score", EXAMPLE, "-r", "arna"], "no recipe 'arna'; did you mean 'arena'?"),
        (["recipes", "arna"], "did you mean 'arena'?"),
        (["recipes", "arna", "--json"], "did you mean 'arena'?"),
        (["score", EXAMPLE, "-r", "arena", "--wrokers", "2"], "--workers"),
        (["score", EXAMPLE, "-r", "arena", "--workers", "two"], "--workers"),
        (
            ["score", EXAMPLE, "-r", "arena", "--workers", "0"],
            "--workers must be at least 1, found 0",
        ),
        (["score", EXAMPLE, "-r", "arena", "--on-error", "cry"], "--on-error"),
        (["score", EXAMPLE, "-r", "arena", "--group-size", "0"], "--group-size must be at least 1"),
        (["score", EXAMPLE, "-r", "arena", "--group-size", "2", "--sort"], "use one of them"),
        (["replay", EXAMPLE], "the rows have no signature: set --recipe"),
        (
            ["replay", EXAMPLE, "-r", "arena", "--group-size", "0"],
            "--group-size must be at least 1",
        ),
        (["replay", EXAMPLE, "-r", "arena", "--group-size", "2", "--sort"], "use one of them"),
        (["replay", EXAMPLE, "-r", "arena", "--base", "bonus.valu=1"], "did you mean"),
        (["replay", "nope.jsonl", "-r", "arena"], "cannot read nope.jsonl"),
        (["replay", "docs", "-r", "arena"], "the folder docs has no file"),
    ],
)
def test_invalid_arguments(cli, arguments, message):
    assert message in cli(*arguments, code=2).err


@pytest.mark.parametrize("command", ["score", "report", "replay", "select", "audit"])
def test_an_unknown_option_before_the_file_is_named(cli, command):
    message = cli(command, "--recipi", "arena", EXAMPLE, code=2).err
    assert message == "rag-rewards: Unknown option: --recipi. Did you mean --recipe?\n"
    assert "Unknown option: --typo." in cli(command, "--typo", EXAMPLE, code=2).err


def test_the_value_of_an_option_may_begin_with_a_hyphen(cli):
    options = [
        "--model",
        "nowhere",
        "--set",
        "models.document_form=- {text}",
        "--set",
        "models.document_separator=---",
    ]
    error = cli("score", EXAMPLE, "-r", "ctrl-rag", *options, code=2).err
    assert "document" not in error
    assert "nowhere" in error


@pytest.mark.parametrize("option", ["--workers", "--group-size"])
@pytest.mark.parametrize("value", ["1.6", "1e0", "two"])
def test_a_whole_number_is_not_rounded(cli, option, value):
    error = cli("score", EXAMPLE, "-r", "arena", option, value, code=2).err
    assert option in error
    assert value in error


def test_the_last_of_several_values_of_an_option_applies(cli):
    ran = cli("score", EXAMPLE, "-r", "lear", "-r", "arena", "-o", "-", code=0)
    assert f"rag-rewards {__version__} arena" in ran.err


def test_a_definition_in_a_file_is_described_like_a_built_in_recipe(cli, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from rag_rewards.recipes.arena import ARENA as mine\nbrief = 5\n")
    built_in, own = cli("recipes", "arena", code=0), cli("recipes", f"{path}:mine", code=0)
    assert built_in.out.partition("\n  source")[2] == own.out.partition("\n  source")[2] != ""
    assert (
        f"{path}:brief is not a recipe: expected a Recipe, a Curriculum"
        in cli("recipes", f"{path}:brief", code=2).err
    )


def test_a_file_name_after_two_hyphens_may_begin_with_a_hyphen(cli):
    assert "cannot read --typo:" in cli("score", "-r", "arena", "--", "--typo", code=2).err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("accuracy.metrc=f1", "no setting 'accuracy.metrc'; did you mean 'accuracy.metric'?"),
        ("accuracy.metric=f7", "accuracy.metric: Invalid enum value 'f7'"),
        ("accuracy=5", "no setting 'accuracy'"),
        ("accuracy.metric", "--set expects KEY=VALUE, found 'accuracy.metric'"),
        ("=5", "--set expects KEY=VALUE, found '=5'"),
        ("bonus.value=many", "setting bonus.value: Expected float, got str"),
        ("bonus.value=", "setting bonus.value: Expected float, got null"),
        ("bonus.value=!!python/object:os.system 1", "Expected float, got str"),
        ("bonus.value=.inf", "bonus.value: a number up to 1e+100 expected, found inf"),
        ("bonus.value=.nan", "bonus.value: a number up to 1e+100 expected, found nan"),
        ("bonus.value=1e308", "bonus.value: a number up to 1e+100 expected"),
    ],
)
def test_invalid_settings(cli, change, message):
    assert message in cli("score", EXAMPLE, "-r", "arena", "--set", change, code=2).err


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(", "is not a regular expression"), (r"\d+", "has no group")],
)
def test_invalid_citation_patterns(cli, pattern, message):
    result = cli(
        "score", EXAMPLE, "-r", "rag-total", "--set", f"citation.pattern={pattern}", code=2
    )
    assert message in result.err


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0E-3"])
def test_notations_of_a_number(cli, text):
    result = cli("score", EXAMPLE, "-r", "arena", "-o", "/dev/null", "--set", f"bonus.value={text}")
    assert ' arena {"settings":{"bonus.value":0.001}}\n' in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy: {metrik: f1}\nrecipe: arena", "did you mean 'accuracy.metric'?"),
        ("recipe: arna", "did you mean 'arena'?"),
        ("recipe: 5", "config.yaml: recipe must be a name or module:name, found 5"),
        ("recipe: [arena]", "config.yaml: recipe must be a name or module:name, found ['arena']"),
        (
            "recipe: arena\nhardened: 'false'",
            "config.yaml: hardened must be true or false, found 'false'",
        ),
        ("", "no recipe is given"),
        ("- arena", "expected a mapping of settings, found list"),
        ("a: [", "is not YAML"),
        ("a: 2024-99-99", "config.yaml is not YAML: month must be in 1..12"),
        ("a: " + "9" * 5000, "config.yaml is not YAML: "),
        ("[" * 100_000, "config.yaml is not YAML: it is nested too deeply"),
        ("recipe: arena\na: &a\n  b: *a", "a mapping contains itself"),
        ("recipe: arena\nstages: []\nbonus: {value: x}", "Expected float"),
        ("stages: {a: 1}", "config.yaml: stages must be a list of mappings"),
        ("stages: [arena]", "config.yaml: stages must be a list of mappings"),
        ("stages: [{until_step: 5}]", "a stage has no recipe"),
        ("stages: [{recipe: [arena]}]", "recipe must be a name or module:name, found ['arena']"),
        ("stages: [{recipe: arena, untill: 1}]", "unknown key 'untill'"),
        ("stages: [{recipe: arena, settings: 5}]", "stages: settings must be a mapping, found 5"),
        ("stages: [{recipe: arena, until_step: true}]", "until_step must be a whole number"),
        ("stages: [{recipe: arena, until_step: 5}]", "the last has none"),
        (
            "stages: [{recipe: arena, until_step: 5}, {recipe: arena, until_step: 4},"
            " {recipe: arena}]",
            "until_step must increase",
        ),
        ("recipe: arena\nstages: [{recipe: arena}]", "--recipe and stages are both set"),
    ],
)
def test_invalid_config(cli, tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert message in cli("score", EXAMPLE, "--config", path, code=2).err


def test_a_config_file_that_cannot_be_read(cli, tmp_path):
    message = cli("score", EXAMPLE, "-r", "arena", "--config", tmp_path / "nope.yaml", code=2).err
    assert "nope.yaml: No such file" in message
    message = cli("score", EXAMPLE, "-r", "arena", "--config", tmp_path, code=2).err
    assert "Is a directory" in message
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not YAML" in cli("score", EXAMPLE, "--config", tmp_path / "binary.yaml", code=2).err


def test_set_takes_precedence_over_config(cli, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("recipe: arena\nhardened: true\nbonus:\n  value: 5\naccuracy.metric: f1\n")
    message = cli(
        "score", EXAMPLE, "--config", path, "--set", "bonus.value=7", "-o", "/dev/null"
    ).err
    assert ' arena hardened {"settings":{"accuracy.metric":"f1","bonus.value":7}}\n' in message


def test_stages(cli, tmp_path, write, arena):
    path = tmp_path / "stages.yaml"
    path.write_text(
        "stages:\n- {recipe: naive-grpo, until_step: 10}\n"
        "- {recipe: arena, settings: {bonus: {value: 4}}}\n"
    )
    thought = "<think>One.</think><answer>Seine</answer>"
    rows = [arena(step=9, response=thought), arena(step=10), arena(id="no step")]
    result = cli("score", write(rows), "--config", path, code=3)
    assert [row["reward"] for row in result.rows] == [2.0, 7.0]
    assert [list(row["components"]) for row in result.rows] == [
        ["format", "accuracy", "relevance", "bonus"]
    ] * 2
    assert result.rows[0]["components"]["bonus"] is None
    assert '"id":"no step"' in result.err
    assert "a curriculum selects its stage by the training step" in result.err
    assert cli("score", write(rows), "--config", path, "-r", "arena", code=2).out == ""


def test_recipes(cli):
    output = cli("recipes", code=0).out
    assert all(name in output for name in RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_one_recipe(cli, name):
    output = cli("recipes", name, code=0).out
    assert output.startswith(name)
    data = json.loads(cli("recipes", name, "--json", code=0).out)
    assert data["name"] == name
    assert data["settings"]


def test_recipes_as_json(cli):
    listed = json.loads(cli("recipes", "--json", code=0).out)
    assert [each["name"] for each in listed] == list(RECIPES)


@pytest.mark.parametrize("arguments", [["recipes"], ["score", EXAMPLE, "-r", "arena", "--table"]])
def test_output_in_ascii(shell, arguments):
    result = shell(*arguments, code=0, env={"PYTHONIOENCODING": "ascii"})
    assert "arena" in result.out

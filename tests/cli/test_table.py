"""Tables on a terminal. Text of rows is neither markup nor a control sequence."""

from __future__ import annotations

import pytest

ANSWER = "<relevance>[1]</relevance><analysis>One.</analysis><answer>{}</answer>"


@pytest.fixture
def shown(cli, write, arena):
    def show(**fields):
        row = arena(**fields)
        return cli("score", write([row, row]), "-r", "arena", "--table", code=0).out

    return show


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "[link=file:///x]y[/link]", ":smile:"])
def test_markup_is_text(shown, text):
    assert f"“{text}”" in shown(response=ANSWER.format(text))


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x08", "\x00", "\x7f", "\x9b", "\u202e"])
@pytest.mark.parametrize("field", ["id", "group", "response"])
def test_control_characters_are_not_printed(shown, character, field):
    text = f"red{character}[31mX"
    message = shown(**{field: ANSWER.format(text) if field == "response" else text})
    assert character not in message
    assert "[31mX" in message


@pytest.mark.parametrize("options", [["--on-error", "stop"], []])
def test_control_characters_in_errors(cli, write, arena, options):
    row = arena(id="\x1b[31m\x9b1m", answers=None)
    result = cli("score", write([row]), "-r", "arena", *options)
    assert "\x1b" not in result.err
    assert "\x9b" not in result.err
    output = cli("replay", write([row]), "-r", "arena", code=3).out
    assert "\x1b" not in output


def test_control_characters_in_arguments(cli):
    assert "\x1b" not in cli("score", "\x1b[31m.jsonl", "-r", "arena", code=2).err
    assert "\x1b" not in cli("recipes", "\x1b[31m", code=2).err


def test_a_table_and_an_output_file(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    result = cli("score", write([arena()]), "-r", "arena", "--table", "-o", out, code=0)
    assert "13.000" in result.out
    assert out.stat().st_size


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("out.jsonl", ()),
        ("out.jsonl", ("--sort",)),
        ("out.jsonl.gz", ()),
        ("out.parquet", ()),
        ("out", ("--output-format", "parts")),
    ],
)
def test_the_table_of_a_complete_output(cli, write, arena, tmp_path, name, options):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    responses = [arena(id=str(i), response=ANSWER.format(text)) for i, text in enumerate("ab")]
    rows = write([arena(), *responses, "{"])
    command = ("score", rows, "-r", "arena", "-o", tmp_path / name, "--table", *options)
    first, again = [cli(*command, "--resume", code=3) for _ in range(2)]
    assert f"{tmp_path / name} is complete" in again.err
    assert again.out == first.out
    assert first.out.count("“b”") == 1


def test_rows_in_error_are_reported_with_the_table(cli, write, arena):
    result = cli("score", write([arena(), "{"]), "-r", "arena", "--table", code=3)
    assert "13.000" in result.out
    assert '"line":2' in result.err


def test_groups_without_signal(cli, write, likely):
    rows = [likely(id=f"{group}{i}", group=group) for group in "ab" for i in range(2)]
    output = cli("score", write(rows), "-r", "ctrl-rag", "--table", code=0).out
    assert "2 groups, 2 without signal" in output

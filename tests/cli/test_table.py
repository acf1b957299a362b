"""Tables for people: text of rows is shown, never obeyed."""

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
def test_control_characters_do_not_reach_the_terminal(shown, character, field):
    text = f"red{character}[31mX"
    said = shown(**{field: ANSWER.format(text) if field == "response" else text})
    assert character not in said
    assert "[31mX" in said


@pytest.mark.parametrize("options", [["--on-error", "stop"], []])
def test_control_characters_in_errors(cli, write, arena, options):
    row = arena(id="\x1b[31m\x9b1m", answers=None)
    ran = cli("score", write([row]), "-r", "arena", *options)
    assert "\x1b" not in ran.err
    assert "\x9b" not in ran.err
    said = cli("replay", write([row]), "-r", "arena", code=3).out
    assert "\x1b" not in said


def test_control_characters_in_arguments(cli):
    assert "\x1b" not in cli("score", "\x1b[31m.jsonl", "-r", "arena", code=2).err
    assert "\x1b" not in cli("recipes", "\x1b[31m", code=2).err


def test_the_table_and_the_file(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    ran = cli("score", write([arena()]), "-r", "arena", "--table", "-o", out, code=0)
    assert "13.000" in ran.out
    assert out.stat().st_size


def test_bad_rows_stand_beside_the_table(cli, write, arena):
    ran = cli("score", write([arena(), "{"]), "-r", "arena", "--table", code=3)
    assert "13.000" in ran.out
    assert '"line":2' in ran.err


def test_groups_without_signal(cli, write, likely):
    rows = [likely(id=f"{group}{i}", group=group) for group in "ab" for i in range(2)]
    said = cli("score", write(rows), "-r", "ctrl-rag", "--table", code=0).out
    assert "2 groups, 2 without signal" in said

"""The same rows under other settings."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def scored(cli, write, arena, tmp_path):
    """Two rollouts of one group, scored with bonus.value=5: a right and a wrong one."""
    wrong = "<relevance>[1]</relevance><analysis>One.</analysis><answer>Rhine</answer>"
    rows = [arena(group="g"), arena(id="b", group="g", response=wrong)]
    path = write(rows, "scored.jsonl")
    cli("score", path, "-r", "arena", "--set", "bonus.value=5", "-o", path, code=0)
    return path


def compared(cli, *arguments, code=0):
    return json.loads(cli("replay", *arguments, "--json", code=code).out)


def test_settings_come_from_the_signature(cli, scored):
    found = compared(cli, scored, "--set", "bonus.value=0")
    assert found["means"]["reward"] == [5.0, 2.5]
    assert (found["rows"], found["groups"], found["changed"]) == (2, 1, 1)
    said = cli("replay", scored, "--set", "bonus.value=0", code=0).out
    assert "bonus.value: 5.0 → 0.0" in said


def test_base_goes_over_the_signature(cli, scored):
    found = compared(cli, scored, "--base", "bonus.value=1", "--set", "bonus.value=0")
    assert found["means"]["reward"] == [3.0, 2.5]


def test_hardened(cli, scored):
    found = compared(cli, scored, "--hardened")
    assert '"sections.repeated":"missing"' in found["after"]
    assert '"bonus.value":5.0' in found["after"]
    assert '"sections.repeated":"first"' in found["before"]


def test_another_recipe_than_the_signature(cli, scored, tmp_path):
    assert "rag-total" in compared(cli, scored, "-r", "rag-total")["after"]
    config = tmp_path / "config.yaml"
    config.write_text("recipe: rag-total\nalpha: 0.25\n")
    found = compared(cli, scored, "--config", config)
    assert '"alpha":0.25' in found["after"]
    config.write_text("stages: [{recipe: arena}]")
    assert "takes no stages" in cli("replay", scored, "--config", config, code=2).err


def test_nothing_changes(cli, scored):
    said = cli("replay", scored, code=0).out
    assert "none" in said
    assert "0 rewards change" in said


@pytest.mark.parametrize("show", ["0", "1", "-1"])
def test_show(cli, scored, show):
    found = compared(cli, scored, "--set", "bonus.value=0", "--show", show)
    assert len(found["most_changed"]) == max(int(show), 0)


def test_rows_in_error(cli, write, likely):
    rows = [likely(), likely(id="x", answers=""), likely(id="y", group="h"), "{"]
    path = write(rows)
    found = compared(cli, path, "-r", "ctrl-rag", code=3)
    assert (found["rows"], found["errors"]) == (0, 4)
    assert "no answer in it" in found["first_error"]
    assert "4 rows in error" in cli("replay", path, "-r", "ctrl-rag", code=3).out


def test_standard_input_and_groups(cli, write, likely):
    rows = [likely(id="1"), likely(id="2", group="h"), likely(id="3")]
    data = write(rows).read_bytes()
    for options in (["--sort"], []):
        found = json.loads(cli("replay", "-", "-r", "ctrl-rag", "--json", *options, stdin=data).out)
        assert (found["groups"], found["errors"]) == ((2, 0) if options else (2, 1))


def test_a_signature_that_cannot_be_read(cli, write, arena):
    for signature in (5, None, "x", "a b c d", "a b arena []", 'a b arena {"bonus.value":'):
        path = write([arena(signature=signature) | {"signature": signature}])
        assert "give --recipe NAME" in cli("replay", path, code=2).err
    path = write([arena(signature='a b arena {"gone":1}')])
    assert "no setting 'gone'" in cli("replay", path, code=2).err

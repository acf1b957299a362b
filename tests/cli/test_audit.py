"""`rag-rewards audit`: table, JSON and exit code."""

from __future__ import annotations

import json

import pytest

MINE = """
def brief(rollout):
    return 1.0 if "Paris" in rollout.parsed.text else 0.0

def shouting(rollout):
    return rollout.parsed.text.upper()
"""


def test_the_exit_code_depends_on_paying_attacks(cli):
    assert "pays by definition" in cli("audit", "-r", "arena", "--hardened", code=0).out
    output = cli("audit", "-r", "arena", code=1).out
    assert "citing every document" in output
    cli("audit", "-r", "truthrl", "--set", "verifier=substring", code=1)


def test_as_json(cli):
    data = json.loads(cli("audit", "-r", "arena", "--json", code=1).out)
    assert data["paying"] == len([f for f in data["findings"] if f["pays"] and not f["excused"]])
    assert {"attack", "name", "kind", "row", "without", "attacked", "gain"} <= set(
        data["findings"][0]
    )


def test_rows_of_a_file(cli, write, arena):
    rows = write([arena(), arena(id="b", response="nothing")])
    assert "2 rows" in cli("audit", rows, "-r", "arena", "--hardened", code=0).out
    cli("audit", rows, "-r", "arena", code=1)
    some = write([arena(), arena(id="c", supporting=None)], "some.jsonl")
    output = cli("audit", some, "-r", "arena", "--hardened", code=3).out
    assert "could not be scored, the first: c: " in output
    none = write([arena(supporting=None)], "none.jsonl")
    assert "nothing could be attacked: a: " in cli("audit", none, "-r", "arena", code=2).err
    bad = write([arena(), '{"response": 7}'], "bad.jsonl")
    assert "line 2: response: expected" in cli("audit", bad, "-r", "arena", code=2).err


def test_a_custom_reward_and_attack(cli, tmp_path, monkeypatch):
    (tmp_path / "mine_to_audit.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    output = cli("audit", "-r", "mine_to_audit:brief", "--attack", "mine_to_audit:shouting", code=1)
    assert "shouting" in output.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-r", "no_such_module:x"), "cannot import no_such_module"),
        (("-r", "json:nothing"), "json has no object 'nothing'"),
        (("-r", "json:dumps", "--hardened"), "without settings"),
        ((), "no recipe is given"),
        (("-r", "arenna"), "arena"),
        (("gone.jsonl", "-r", "arena"), "cannot read gone.jsonl"),
        (("-r", "arena", "--attack", "json:x"), "json has no object 'x'"),
    ],
)
def test_invalid_arguments(cli, arguments, message):
    assert message in cli("audit", *arguments, code=2).err


def test_control_characters_of_rows_are_not_printed(cli, write, arena):
    rows = write([arena(answers="\u001b[31mSeine"), arena(id="\u001b[2J")])
    assert "\u001b" not in cli("audit", rows, "-r", "arena", code=1).out

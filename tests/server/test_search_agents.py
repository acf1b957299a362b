"""Broken rows and malformed rollouts of search agents, in Python, on the command line and by HTTP.

A broken row is an error with the path of the field. A malformed rollout has a defined reward.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_server import connect

import rag_rewards as rr
from rag_rewards.cli import main
from rag_rewards.errors import BackendError, RolloutError, RowError, SettingError
from rag_rewards.loading import RecipeSpec

S, A = "<search>a</search>", "<answer>Seine</answer>"
PAGE = [{"text": "The Seine."}]


def turns(*each: Any, **fields: Any) -> dict[str, Any]:
    listed = [turn if isinstance(turn, dict) else {"text": turn} for turn in each]
    return {"turns": listed} | fields


BROKEN = {
    "turns out of order": (
        turns({"text": S, "token_span": [4, 6]}, {"text": A, "token_span": [0, 3]}),
        "turns[1].token_span",
        "list the turns in the order of their tokens",
    ),
    "texts out of order": (turns("b", "a", response="a b"), "turns[1].text", "does not occur"),
    "overlapping spans": (
        turns({"text": S, "token_span": [0, 4]}, {"text": A, "token_span": [3, 6]}),
        "turns[1].token_span",
        "overlaps an earlier turn, which ends at 4",
    ),
    "a span beyond the response": (
        turns({"text": S, "token_span": [0, 9]}, response_token_ids=[1, 2]),
        "turns[0].token_span",
        "exceeds the response, which has 2 tokens",
    ),
    "a reversed span": (
        turns({"text": S, "token_span": [3, 0]}),
        "turns[0].token_span",
        "the first position must not be above the second",
    ),
    "a span of three numbers": (
        turns({"text": S, "token_span": [0, 1, 2]}),
        "turns[0].token_span",
        "length 2",
    ),
    "results without text": (
        turns({"text": S, "results": [{"title": "Seine"}]}, A),
        "turns[0].results[0].text",
        "missing",
    ),
    "results with null as text": (
        turns({"text": S, "results": [{"text": None}]}, A),
        "turns[0].results[0].text",
        "expected str, found null",
    ),
    "results that are text": (
        turns({"text": S, "results": "Seine"}),
        "turns[0].results",
        "expected array",
    ),
    "results of other queries": (
        turns({"text": S, "queries": ["a"], "results": [PAGE, PAGE]}),
        "turns[0].results",
        "write one list per query",
    ),
    "a query and queries": (
        turns({"text": S, "query": "a", "queries": ["b"]}),
        "turns[0].queries",
        "set either query or queries",
    ),
    "a turn without text": (turns({"query": "a"}), "turns[0].text", "missing"),
    "no turn": (turns(), "turns", "add a turn, or remove the field"),
    "turns that are text": ({"turns": "abc"}, "turns", "expected array"),
}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


CASES = pytest.mark.parametrize(("row", "path", "words"), BROKEN.values(), ids=BROKEN)


def error_of(row: dict[str, Any]) -> RolloutError:
    with pytest.raises(RolloutError) as raised:
        rr.decode_row(row)
    return raised.value


@CASES
def test_a_broken_row_in_python(row: dict[str, Any], path: str, words: str) -> None:
    for form in (row, json.dumps(row)):
        error = error_of(form)  # type: ignore[arg-type]
        assert isinstance(error, RowError)
        assert error.path == path
        assert words in str(error)


def test_broken_rows_on_the_command_line(tmp_path: Path) -> None:
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    good = turns(A, answers=["Seine"], id="good")
    rows = [row | {"answers": ["Seine"], "id": name} for name, (row, _, _) in BROKEN.items()]
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, good]))
    with pytest.raises(SystemExit) as ended:
        main(["score", str(source), "-o", str(out), "-r", "search-r1"])
    assert ended.value.code == 3
    [scored] = map(json.loads, out.read_text().splitlines())
    assert (scored["id"], scored["reward"]) == ("good", 1.0)
    errors = lines_of(tmp_path / "out.jsonl.errors.jsonl")
    assert {each["id"]: each["error"]["path"] for each in errors} == {
        name: path for name, (_, path, _) in BROKEN.items()
    }


async def test_broken_rows_by_http() -> None:
    async with connect(RecipeSpec(recipe="search-r1")) as (client, _):
        for row, path, words in BROKEN.values():
            body = {"rollouts": [turns(A, answers=["Seine"]), row]}
            answer = await client.post("/score", json=body)
            assert answer.status_code == 422
            error = answer.json()["error"]
            assert error["path"] == f"rollouts[1].{path}"
            assert words in error["message"]


# --- malformed rollouts: reward with a penalty of 0.1 ---------------------------------------------

FORGED = f"{S}<information>Doc 1(Title: x) Seine</information>"
TAGS = "<search>" * 500 + "</answer>" * 500 + "<|begin_of_query|>" * 500 + "<think>" * 500
MALFORMED: dict[str, tuple[dict[str, Any], list[float | None]]] = {
    "a query in a foreign dialect": (
        turns("<|begin_of_query|>a<|end_of_query|>", A),
        [-0.1, 1.0],
    ),
    "an unclosed query": (turns("<search>a", A), [-0.1, 1.0]),
    "an empty query": (turns({"text": "<search> </search>", "results": []}, A), [-0.1, 1.0]),
    "no action": (turns("I think.", A), [-0.1, 1.0]),
    "forged results": (turns(FORGED, A), [-0.1, 1.0]),
    "an early answer": (turns(A, "Nothing."), [None, 0.0]),
    "a query and then an answer": (turns({"text": S + A, "results": PAGE}), [0.0]),
    "hostile tags": (turns(TAGS, A), [-0.1, 1.0]),
    "an answer in the results": (turns({"text": S, "results": [{"text": A}]}, "x"), [None, 0.0]),
    "an empty last turn": (turns({"text": S, "results": PAGE}, ""), [None, 0.0]),
    "only a search": (turns({"text": S, "results": PAGE}), [0.0]),
}
SETTINGS = {"dialect": "search-r1", "malformed_penalty": 0.1}


@pytest.mark.parametrize(("row", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_rollout_in_python(row: dict[str, Any], expected: list[float | None]) -> None:
    recipe = rr.recipe("search-r1", SETTINGS)
    score = recipe([rr.decode_row(row | {"answers": ["Seine"]})])[0]
    assert score.turns == pytest.approx(expected)
    assert score.value == pytest.approx(sum(each or 0.0 for each in expected))


async def test_malformed_rollouts_on_the_command_line_and_by_http(tmp_path: Path) -> None:
    rows = [row | {"answers": ["Seine"], "id": name} for name, (row, _) in MALFORMED.items()]
    expected = [entries for _, entries in MALFORMED.values()]
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    with pytest.raises(SystemExit) as ended:
        main(["score", str(source), "-o", str(out), "-r", "search-r1", *options])
    assert not ended.value.code
    scored = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["turn_rewards"] for row in scored] == [pytest.approx(each) for each in expected]

    plan = RecipeSpec(recipe="search-r1", settings=SETTINGS)
    async with connect(plan) as (client, _):
        answer = (await client.post("/score", json={"rollouts": rows})).json()
    assert [each["turn_rewards"] for each in answer["scores"]] == [
        pytest.approx(each) for each in expected
    ]


async def test_a_failed_environment_is_unscored_in_every_interface(tmp_path: Path) -> None:
    row = turns({"text": S, "error": "timeout"}, A, answers=["Seine"])
    with pytest.raises(BackendError, match="timeout"):
        rr.recipe("search-r1")([rr.decode_row(row)])
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(row))
    with pytest.raises(SystemExit) as ended:
        main(["score", str(source), "-o", str(out), "-r", "search-r1"])
    assert ended.value.code == 3
    assert '"path":"turns[0].error"' in (tmp_path / "out.jsonl.errors.jsonl").read_text()

    async with connect(RecipeSpec(recipe="search-r1")) as (client, _):
        [score] = (await client.post("/score", json={"rollouts": [row]})).json()["scores"]
    assert score["reward"] is None
    assert score["error"]["path"] == "turns[0].error"


def test_an_unknown_dialect_names_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    choices = "choose auto, search-r1, r1-searcher, research, tools"
    with pytest.raises(SettingError, match=f"dialect: Invalid enum value 'react'; {choices}"):
        rr.recipe("search-r1", {"dialect": "react"})
    with pytest.raises(SystemExit) as ended:
        main(["score", "-", "-r", "search-r1", "--set", "dialect=react"])
    assert ended.value.code == 2
    assert choices in capsys.readouterr().err
    with pytest.raises(SettingError, match=r"letters.; choose auto, words"):
        rr.recipe("lear", {"length.unit": "letters"})


async def test_ten_thousand_turns_in_every_interface(tmp_path: Path) -> None:
    searches = [{"text": f"<search>{i}</search>", "results": PAGE} for i in range(9_999)]
    row = turns(*searches, A, answers=["Seine"], id="long")
    score = rr.recipe("search-r1")([rr.decode_row(row)])[0]
    assert (score.value, len(score.turns)) == (1.0, 10_000)
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(row))
    with pytest.raises(SystemExit) as ended:
        main(["score", str(source), "-o", str(out), "-r", "search-r1"])
    assert not ended.value.code
    for command in (["report", "-o", "r.html"], ["explain", "--id", "long", "-o", "e.html"]):
        name, *options = command
        options[-1] = str(tmp_path / options[-1])
        with pytest.raises(SystemExit) as ended:
            main([name, str(out), *options])
        assert not ended.value.code

    async with connect(RecipeSpec(recipe="search-r1")) as (client, _):
        [scored] = (await client.post("/score", json={"rollouts": [row]})).json()["scores"]
    assert len(scored["turn_rewards"]) == 10_000


# --- stored evidence ---------------------------------------------------------------------------


def test_replay_and_score_need_no_model_for_stored_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = Path(__file__).parents[2] / "examples" / "igpo.jsonl"
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    for source, target in ((examples, out), (out, again)):
        with pytest.raises(SystemExit) as ended:
            main(["score", str(source), "-o", str(target), "-r", "igpo", "--keep-evidence"])
        assert not ended.value.code
    assert lines_of(out) == lines_of(again)
    assert all(len(row["turn_rewards"]) == len(row["turns"]) for row in lines_of(out))
    assert sum("turn_logprobs" in row for row in lines_of(out)) == 7  # one rollout does not search
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(out), "--set", "gain.kind=log", "--json"])
    assert not ended.value.code
    assert "gain.kind" in capsys.readouterr().out


async def test_the_server_of_openrlhf_logs_once_that_rewards_are_summed(caplog: Any) -> None:
    transcript = f"Which river?{S}<information>Doc 1(Title: b) Seine</information>{A}"
    body = {
        "query": [transcript],
        "prompts": ["Which river?"],
        "labels": ['{"answers": ["Seine"], "supporting": ["1"], "documents": [{"text": "Seine"}]}'],
    }

    settings = {"keys.weight": 0.0}
    async with connect(RecipeSpec(recipe="stepsearch", settings=settings)) as (client, _):
        for _ in range(2):
            assert (await client.post("/openrlhf", json=body)).status_code == 200
    assert caplog.text.count("turn rewards are summed") == 1

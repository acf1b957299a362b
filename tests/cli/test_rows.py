"""Rows in error, and rows whose bytes are preserved."""

from __future__ import annotations

import gc
import json
from importlib import import_module

import pytest
import sentencex

from rag_rewards.rows import Chunk
from rag_rewards.scorer import Scorer

CAST = {"RowError", "DataError", "EvidenceError", "GroupError"}


def errors_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_panic_of_native_code_is_an_error_of_its_row(cli, write, tmp_path, monkeypatch):
    class PanicException(BaseException):
        """An error like PanicException of pyo3, which is not an Exception."""

    def segment(language, text):
        if "bad" in text:
            raise PanicException("byte index 10 is no boundary")
        return [text]

    monkeypatch.setattr(sentencex, "segment", segment)
    rows = [
        {
            "id": name,
            "question": "Who won?",
            "documents": [{"text": "A won."}],
            "supporting": [1],
            "answers": "A",
            "answerable": True,
            "response": f"<think>t</think><answer>A won the {name} race [1].</answer>",
        }
        for name in ("good", "bad", "fine")
    ]
    out = tmp_path / "out.jsonl"
    settings = ("-r", "ground-grpo", "--set", "citation.judge_by=gold")
    result = cli("score", write(rows), *settings, "-o", out, code=3)
    (record,) = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert record["id"] == "bad"
    assert record["error"]["type"] == "ScoringError"
    assert record["error"]["message"] == "PanicException: byte index 10 is no boundary"
    assert [json.loads(row)["id"] for row in out.read_text().splitlines()] == ["good", "fine"]
    assert "2 scored, 1 in error" in result.err


def test_garbage_collection_skips_imported_modules_while_rows_are_scored(cli, write, monkeypatch):
    command = import_module("rag_rewards.cli.score")
    score_file, counts = command.score_file, []

    def counted(*arguments, **options):
        counts.append(gc.get_freeze_count())
        return score_file(*arguments, **options)

    monkeypatch.setattr(command, "score_file", counted)
    cli("score", write([{"response": "x", "answers": "x"}]), "-r", "naive-grpo", code=0)
    assert counts[0] > 10_000
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    ("line", "path", "message"),
    [
        (b"{", "", "not JSON"),
        (b"{}", "response", "missing"),
        (b"[]", "", "expected object, found array"),
        (b'"text"', "", "expected object, found str"),
        (b"null", "", "expected object, found null"),
        (b'{"response":"a"} x', "", "trailing characters"),
        (b'{"response":"\xff"}', "response", "byte 0xff at position 14 of the row is not UTF-8"),
        (b'{"response":"\\ud800 alone"}', "response", "half of a surrogate pair"),
        (b'{"response":"a","answers":"a","x":"\xe9"}', "x", "byte 0xe9 at position 36"),
        (b'{"response":"a","answers":"a","x":[{"y":"\xe9"}]}', "x[0].y", "is not UTF-8"),
        (b'{"response":"a","answers":"a","z\xff":1}', "", "in a field name, byte 0xff"),
        (b'{"response":"a","answers":"a","z\xff":1,"reward":1}', "", "in a field name, byte"),
        (b'{"response":"a","answers":"a","z\xff":1,"id":null}', "", "in a field name, byte"),
        (b'{"response":"a","answers":"a","x":"\\udc00"}', "x", "half of a surrogate pair"),
        (b'{"response":"a","answers":"a","\\ud800":1}', "", "in a field name, half of a surrogate"),
        (b'{"response":"a","answers":"a","x":"\x01"}', "", "not JSON"),
        (b'{"response":"a","answers":"a","x":"\\q"}', "", "not JSON"),
        (b'\xff\xfe{\x00"\x00', "", "not JSON"),
        (b'{"response":"a","id":[]}', "id", "found array"),
        (b'{"response":"a","answers":["a",["b"]]}', "answers", "not both"),
        (b'{"response":"a","answers":1e999}', "answers", "out of range"),
        (b'{"response":[{"role":"user","content":"q"}],"answers":"a"}', "response", "no assistant"),
        (b'{"response":"a","score":NaN}', "score", "not a finite number: nan"),
        (b'{"response":"a","deep":{"list":[0,Infinity]}}', "deep.list[1]", "not a finite number"),
        (b'{"response":"a","x":' + b"[" * 100_000, "", "not JSON: nested too deeply"),
        (
            b'{"response":"a","answers":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "",
            "not JSON: nested too deeply",
        ),
    ],
)
def test_row_errors(cli, write, arena, tmp_path, line, path, message):
    out = tmp_path / "out.jsonl"
    result = cli(
        "score", write([arena(), line, arena(id="z")]), "-r", "naive-grpo", "-o", out, code=3
    )
    (record,) = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert record["line"] == 2
    assert record["error"]["type"] == "RowError"
    assert record["error"]["path"] == path
    assert message in record["error"]["message"]
    assert [json.loads(row)["id"] for row in out.read_text().splitlines()] == ["a", "z"]
    assert "2 scored, 1 in error" in result.err
    assert "errors: RowError 1" in result.err
    assert "out.jsonl.errors.jsonl" in result.err


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"answers": None}, "answers", "missing"),
        ({"answers": []}, "answers", "contains no answer"),
        ({"answers": ""}, "answers", "contains no answer"),
        ({"answers": ["", "  "]}, "answers", "contains no answer"),
        ({"answers": [["Seine"], []]}, "answers[1]", "contains no answer"),
        ({"supporting": None}, "supporting", "missing"),
        ({"supporting": [9]}, "supporting[0]", "document id 9 does not exist (documents: 1)"),
        ({"supporting": ["kb-9"]}, "supporting[0]", "document id 'kb-9' does not exist"),
        (
            {"documents": [{"text": "a", "id": 2}, {"text": "b"}]},
            "documents[1].id",
            "have the label 2",
        ),
    ],
)
def test_data_errors(cli, write, arena, tmp_path, fields, path, message):
    out = tmp_path / "out.jsonl"
    cli("score", write([arena(**fields)]), "-r", "arena", "-o", out, code=3)
    (record,) = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert (record["error"]["type"], record["error"]["path"]) == ("DataError", path)
    assert message in record["error"]["message"]
    assert out.read_bytes() == b""


FULL = [-0.1, -0.2, -0.3]


@pytest.mark.parametrize(
    ("logprobs", "path"),
    [
        ({"full": FULL, "without": {"1": [-1.0] * 2, "2": FULL}}, "logprobs.without.1"),
        ({"full": [0.5, -0.2, -0.3], "without": {"1": FULL, "2": FULL}}, "logprobs.full[0]"),
        ({"full": FULL, "without": {"1": [0.7, -1, -1], "2": FULL}}, "logprobs.without.1[0]"),
        ({"full": [-0.1, float("nan"), -1], "without": {}}, "logprobs.full[1]"),
        ({"full": [-0.1, float("-inf"), -1], "without": {}}, "logprobs.full[1]"),
        ({"full": [-0.1, -1e308, -1], "without": {"1": FULL, "2": FULL}}, "logprobs.full[1]"),
    ],
)
def test_evidence_errors(cli, write, likely, tmp_path, logprobs, path):
    out = tmp_path / "out.jsonl"
    cli("score", write([likely(logprobs=logprobs)]), "-r", "ctrl-rag-clr", "-o", out, code=3)
    (record,) = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert record["error"]["type"] == "EvidenceError"
    assert record["error"]["path"] == path


def test_missing_evidence_is_an_error(cli, write, likely):
    row = likely(logprobs={"full": FULL, "without": {"1": FULL}})
    result = cli("score", write([row]), "-r", "ctrl-rag-clr", code=3)
    assert result.out == ""
    assert '"path":"logprobs' in result.err
    assert "DataError" in result.err


def test_the_record_of_an_error_contains_the_original_row(cli, write, tmp_path):
    lines = [b'{"id": "x", "big": 123456789012345678901234567890, "f": 1.0}', b'{"torn": "caf\xc3']
    out = tmp_path / "out.jsonl"
    cli("score", write(lines), "-r", "naive-grpo", "-o", out, code=3)
    text = (tmp_path / "out.jsonl.errors.jsonl").read_text()
    assert '"row":{"id":"x","big":123456789012345678901234567890,"f":1.0}' in text
    first, second = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert (first["id"], second["id"]) == ("x", "2")
    assert second["row"] == '{"torn": "caf�'


def test_no_error_file_without_errors(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    stale = tmp_path / "out.jsonl.errors.jsonl"
    stale.write_text("of an earlier run")
    cli("score", write([arena()]), "-r", "arena", "-o", out, code=0)
    assert not stale.exists()


def test_stop_at_the_first_error(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    rows = [arena(), arena(id="b"), b"{", arena(id="d"), b"["]
    result = cli("score", write(rows), "-r", "arena", "-o", out, "--on-error", "stop", code=2)
    assert "stopped at line 3: RowError: not JSON" in result.err
    assert f"2 rows before it are in {out}.partial" in result.err
    assert not out.exists()
    partial = (tmp_path / "out.jsonl.partial").read_text().splitlines()
    assert [json.loads(row)["id"] for row in partial] == ["a", "b"]


def test_stop_on_a_device_names_no_partial_file(cli, write):
    result = cli("score", write([b"{"]), "-r", "arena", "-o", "/dev/null", "--on-error", "stop")
    assert result.code == 2
    assert "partial" not in result.err


def test_stop_on_standard_output(cli, write, arena):
    rows = write([arena(), b"{", arena()])
    result = cli("score", rows, "-r", "arena", "--on-error", "stop", code=2)
    assert [row["id"] for row in result.rows] == ["a"]


# --- preserved fields --------------------------------------------------------------------------

ODD = (
    b'{"id":"a","big":123456789012345678901234567890,"float":1.0,"exp":1E+2,"neg":-0.0,'
    b'"esc":"caf\\u00e9 \\/ \\ud83d\\ude00","raw":"caf\xc3\xa9","nested":{"a":[ 1, {"b" :null}]},'
    b'"empty":{},"answers":"Seine","question":"q","":"no name",'
    b'"response":"<think>x</think><answer>Seine</answer>"'
)


def test_fields_are_preserved_byte_for_byte(cli, write):
    result = cli("score", write([ODD + b"}"]), "-r", "naive-grpo", code=0)
    assert result.out.encode().startswith(ODD + b',"group":"q","reward":2.0,')


def test_valid_text_is_preserved_byte_for_byte(cli, write):
    row = ODD + ',"café 日本 😀":"\\u00e9 😀","twice":1,"twice":[]}'.encode()
    result = cli("score", write([row]), "-r", "naive-grpo", code=0)
    assert result.out.encode().startswith(row[:-1] + b',"group":"q","reward":2.0,')


@pytest.mark.parametrize("field", [b'"reward":1,', b""])
@pytest.mark.parametrize("levels", [2, 500, 501, 1100])
def test_the_limit_of_nesting_does_not_depend_on_the_interpreter(field, levels):
    """A row that can be read can also be written."""
    nested = b"[" * (levels - 2) + b"{}" + b"]" * (levels - 2)  # the row is the first level
    line = b'{"response":"a","answers":"a",' + field + b'"x":' + nested + b"}"
    result = Scorer.load("naive-grpo").score_rows(Chunk(lines=[line], numbers=[1]))
    assert (len(result.numbers), len(result.error_numbers)) == ((1, 0) if levels <= 500 else (0, 1))


def test_brackets_in_texts_are_not_levels(cli, write):
    text = json.dumps('[1] \\ " {' * 2000).encode()
    row = b'{"response":' + text + b',"answers":["a"]}'
    cli("score", write([row]), "-r", "naive-grpo", code=0)


def test_scoring_again_replaces_the_old_fields(cli, write, tmp_path):
    path = write([ODD + b"}"])
    out = tmp_path / "out.jsonl"
    cli("score", path, "-r", "naive-grpo", "-o", out, code=0)
    first = out.read_bytes()
    again = tmp_path / "again.jsonl"
    cli("score", out, "-r", "naive-grpo", "-o", again, code=0)
    assert again.read_bytes() == first
    cli("score", out, "-r", "rag-total", "--set", "alpha=0", "-o", again, code=3)
    assert again.read_bytes() == b""  # no documents: nothing old is left standing either


def test_scoring_again_gives_the_same_bytes(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    cli("score", write([arena()]), "-r", "arena", "-o", out, code=0)
    first = json.loads(out.read_text())
    second, third = tmp_path / "second.jsonl", tmp_path / "third.jsonl"
    cli("score", out, "-r", "arena", "-o", second, code=0)
    cli("score", second, "-r", "arena", "-o", third, code=0)
    assert third.read_bytes() == second.read_bytes()
    assert json.loads(second.read_text()) == first


def test_most_responses_without_the_form_of_the_recipe(cli, write, arena, tmp_path):
    source = write(
        [arena(), arena(id="b"), arena(id="c", response=r"<think>.</think>\boxed{Seine}")]
    )
    options = ("-r", "truthrl", "--set", "verifier=exact")
    out, warning = tmp_path / "out.jsonl", "2 of 3 responses have no box, which truthrl reads"
    assert f"warning: {warning}" in cli("score", source, *options, "-o", out, code=0).err
    assert f"warning: {warning}" in cli("replay", out, code=0).err
    assert f"note: {warning}" in cli("report", out, "-o", tmp_path / "out.html", code=0).err
    assert "responses have no" not in cli("score", source, "-r", "rag-total").err
    other = write([arena(response="Seine [1]."), arena(id="b", response="Seine")], "other.jsonl")
    warning = "warning: 2 of 2 responses have no <answer> section, which rag-total reads"
    assert warning in cli("score", other, "-r", "rag-total", "--hardened").err
    assert "responses have no" not in cli("score", source, "-r", "ctrl-rag-clr").err
    few = write([arena(), arena(id="b"), arena(id="c", response="x")], "few.jsonl")
    assert "responses have no" not in cli("score", few, "-r", "arena").err
    unscored = write([arena(response="Seine", answers=None)], "unscored.jsonl")
    assert "responses have no" not in cli("replay", unscored, "-r", "arena", code=3).err


def test_missing_evidence_names_the_option(cli, write, arena):
    rows = write([arena()])
    assert "pass --model PATH" in cli("score", rows, "-r", "ctrl-rag", "--table", code=3).err
    boxed = write([arena(response=r"<think>.</think>\boxed{Rome}")], "boxed.jsonl")
    assert "pass --judge URL" in cli("score", boxed, "-r", "truthrl", "--table", code=3).err
    zero = cli("score", write([arena(supporting=[0])]), "-r", "arena", "--table", code=3).err
    assert "positions count from 1" in zero


def test_id_and_group_are_always_written(cli, write, arena):
    rows = [
        b"",
        arena(id=None),
        json.dumps(arena() | {"id": None, "group": None}),
        arena(id=7, group=8),
        arena(id="a"),
        arena(id="a", question=None),
    ]
    result = cli("score", write(rows), "-r", "arena", code=0)
    assert [row["id"] for row in result.rows] == ["2", "3", 7, "a", "a"]
    groups = ["Which river?", "Which river?", 8, "Which river?", None]
    assert [row["group"] for row in result.rows] == groups
    assert all(line.count('"group"') == 1 for line in result.out.splitlines())


def test_malformed_responses_are_scored(cli, write, arena):
    responses = ["", " ", "<answer>", "</answer><answer>", "\x00\x1b[31m", "<think>" * 9, "é" * 99]
    messages = [{"role": "assistant", "content": None}]
    rows = [arena(response=text) for text in [*responses, messages]]
    result = cli("score", write(rows), "-r", "arena", code=0)
    assert len(result.rows) == len(rows)
    assert all(isinstance(row["reward"], float) and row["error"] is None for row in result.rows)


def test_a_row_of_twenty_megabytes(cli, write, arena, tmp_path):
    rows = [arena(), arena(id="big", note="x" * 20_000_000), arena(id="c")]
    out = tmp_path / "out.jsonl"
    cli("score", write(rows), "-r", "arena", "-o", out, code=0)
    scored = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["id"] for row in scored] == ["a", "big", "c"]
    assert len(scored[1]["note"]) == 20_000_000


@pytest.mark.parametrize("field", ["id", "group", "question", "response", "supporting"])
def test_half_of_a_surrogate_pair_is_an_error_of_its_row(cli, write, tmp_path, field):
    row = {"id": "1", "group": "g", "question": "Q", "answers": "Paris", "response": "Paris"}
    row |= {"documents": [{"text": "Paris"}], "supporting": [1]}
    bad = row | {"group": "h", field: ["\ud800"] if field == "supporting" else "\ud800"}
    out = tmp_path / "out.jsonl"
    result = cli("score", write([bad, row]), "-r", "arena", "-o", out, code=3)
    (record,) = errors_of(tmp_path / "out.jsonl.errors.jsonl")
    assert record["line"] == 1
    assert "half of a surrogate pair" in record["error"]["message"]
    assert "1 scored, 1 in error" in result.err

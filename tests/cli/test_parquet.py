"""Parquet files as input and output."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import msgspec
import pytest

from rag_rewards.rows import ErrorRecord

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def read(path):
    return pq.read_table(path).to_pylist(maps_as_pydicts="strict")


def test_input_and_output(cli, write, arena, tmp_path):
    source, out, again = (tmp_path / f"{name}.parquet" for name in ("in", "out", "again"))
    pq.write_table(pa.Table.from_pylist([arena(step=7), arena(id="b", step=8)]), source)
    cli("score", source, "-r", "arena", "-o", out, code=0)
    rows = read(out)
    assert [row["reward"] for row in rows] == [13.0, 13.0]
    assert [row["step"] for row in rows] == [7, 8]
    assert rows[0]["components"]["bonus"] == 10.0
    assert json.loads(rows[0]["details"])["answer"] == "Seine"
    assert rows[0]["error"] is None
    cli("score", out, "-r", "arena", "-o", again, code=0)
    assert read(again) == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again.parquet",
        "in.parquet",
        "out.parquet",
    ]


def test_a_parquet_output_keeps_its_permissions(cli, write, arena, tmp_path):
    out = tmp_path / "out.parquet"
    out.touch(0o600)
    cli("score", write([arena()]), "-r", "arena", "-o", out, code=0)
    assert out.stat().st_mode & 0o777 == 0o600


def test_jsonl_and_parquet_have_equal_scores(cli, write, tmp_path, likely):
    rows = [likely(id=str(i), group=f"g{i // 3}") for i in range(6)]
    source = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source)
    one = cli("score", source, "-r", "ctrl-rag", "--sort", code=0).rows
    other = cli("score", write(rows), "-r", "ctrl-rag", code=0).rows
    assert one == other


def test_nulls_maps_and_nan(cli, tmp_path, likely):
    lists = pa.list_(pa.float64())
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("response", pa.string()),
            ("supporting", pa.list_(pa.int64())),
            ("documents", pa.list_(pa.struct([("text", pa.string()), ("title", pa.string())]))),
            (
                "logprobs",
                pa.struct([("full", lists), ("without", pa.map_(pa.string(), lists))]),
            ),
            ("when", pa.timestamp("us")),
            ("empty", pa.null()),
        ]
    )
    rows = []
    for name, first in (("a", -0.1), ("b", math.nan)):
        row = likely(id=name) | {"when": 0, "empty": None}
        row["logprobs"] = {
            "full": [first, -0.2, -0.3],
            "without": list(row["logprobs"]["without"].items()),
        }
        rows.append({key: row[key] for key in schema.names})
    source, out = tmp_path / "in.parquet", tmp_path / "out.jsonl"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), source)
    cli("score", source, "-r", "ctrl-rag-clr", "-o", out, code=3)  # no answers: see `correct`
    records = (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()
    errors = {json.loads(line)["id"]: json.loads(line)["error"] for line in records}
    assert errors["b"]["type"] == "EvidenceError"
    assert errors["b"]["path"] == "logprobs.full[0]"


@pytest.mark.parametrize("n", [2, 1500])
def test_fields_that_only_some_rows_have(cli, write, arena, tmp_path, n):
    rows = [arena(id=i) for i in range(n)]
    rows[-1] |= {"note": "late", "nested": {"a": [1, None], "b": {}}, "score": 1.5}
    rows[0] |= {"score": 1, "nested": {"c": []}}
    rows[-1]["documents"] = [{"id": "kb-1", "text": "x", "supports": [True]}]
    out = tmp_path / "out.parquet"
    cli("score", write(rows), "-r", "arena", "-o", out, code=0)
    scored = read(out)
    assert scored[-1]["note"] == "late"
    assert scored[-1]["nested"] == {"a": [1, None], "c": None}
    assert scored[-1]["documents"][0]["supports"] == [True]
    assert (scored[0]["score"], scored[-1]["score"]) == (1.0, 1.5)
    assert scored[0]["note"] is None
    assert [row["id"] for row in scored] == [str(i) for i in range(n)]


@pytest.mark.parametrize("recipe", ["arena", "ctrl-rag", "ground-grpo", "lear", "truthrl"])
def test_a_round_trip_of_every_example(cli, tmp_path, recipe, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    out = tmp_path / "out.parquet"
    result = cli("score", f"examples/{recipe}.jsonl", "-r", recipe, code=0)
    cli("score", f"examples/{recipe}.jsonl", "-r", recipe, "-o", out, code=0)
    again = cli("score", out, "-r", recipe, code=0)
    assert [row["reward"] for row in again.rows] == [row["reward"] for row in result.rows]


def test_values_that_do_not_fit_into_one_column(cli, write, arena, tmp_path):
    rows = [arena(extra=1), arena(id="b", extra="text")]
    out = tmp_path / "out.parquet"
    message = cli("score", write(rows), "-r", "arena", "-o", out, code=2).err
    assert "`extra` does not fit one column" in message
    assert f"The scored rows are in {out}.partial, as JSON lines" in message
    assert not out.exists()
    partial = (tmp_path / "out.parquet.partial").read_text().splitlines()
    assert [json.loads(line)["id"] for line in partial] == ["a", "b"]


def with_field(row, field):
    return json.dumps(row).encode()[:-1] + b"," + field + b"}"


def nested(levels):
    return b'"extra":' + b"[" * levels + b"1" + b"]" * levels


@pytest.mark.parametrize(
    ("field", "path", "message"),
    [
        (b'"extra":1e400', "extra", "a number beyond the range of 64 bits"),
        (b'"extra":{"a":[0,-1e400]}', "extra.a[1]", "a number beyond the range of 64 bits"),
        (b'"extra":' + b"1" * 5000, "extra", "a number beyond the range of 64 bits"),
        (b'"extra":123456789012345678901234567890', "extra", "an integer beyond the range"),
        (b'"extra":[9223372036854775808]', "extra[0]", "an integer beyond the range of 64 bits"),
        (b'"extra":{"a":-9223372036854775809}', "extra.a", "an integer beyond the range"),
        (b'"extra":"caf\xe9"', "extra", "is not UTF-8"),
        (b'"caf\xe9":1', "", "in a field name, byte 0xe9"),
        (b'"extra":"\\ud800"', "extra", "half of a surrogate pair"),
        (b'"extra":[NaN]', "extra[0]", "not a finite number"),
        (nested(49), "extra" + "[0]" * 48, "nesting of more than 48 levels"),
        (nested(490), "extra" + "[0]" * 48, "nesting of more than 48 levels"),
        (nested(100_000), "", "not JSON: nested too deeply"),
    ],
)
def test_an_unsupported_value(cli, write, arena, tmp_path, field, path, message):
    out = tmp_path / "out.parquet"
    rows = [arena(), with_field(arena(id="bad"), field), arena(id="z")]
    cli("score", write(rows), "-r", "arena", "-o", out, code=3)
    assert [row["id"] for row in read(out)] == ["a", "z"]
    errors = (tmp_path / "out.parquet.errors.jsonl").read_bytes()
    record = msgspec.json.decode(errors, type=ErrorRecord)
    assert (record.line, record.error["type"], record.error["path"]) == (2, "RowError", path)
    assert message in record.error["message"]


@pytest.mark.parametrize("options", [["--sort"], ["--workers", "2"]])
def test_an_unsupported_value_with_options(cli, write, likely, tmp_path, options):
    out = tmp_path / "out.parquet"
    bad = with_field(likely(id="bad", group="h"), b'"extra":1e400')
    cli("score", write([likely(), bad]), "-r", "ctrl-rag", "-o", out, *options, code=3)
    assert [row["id"] for row in read(out)] == ["l"]


def test_an_unsupported_value_fails_its_group(cli, write, likely, tmp_path):
    rows = [likely(id="a"), with_field(likely(id="b"), b'"extra":1e400'), likely(id="c", group="h")]
    out = tmp_path / "out.parquet"
    cli("score", write([*rows, likely(id="d", group="h")]), "-r", "ctrl-rag", "-o", out, code=3)
    assert [row["id"] for row in read(out)] == ["c", "d"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b'"extra":9223372036854775807', 2**63 - 1),
        (b'"extra":-9223372036854775808', -(2**63)),
        (b'"extra":1e308', 1e308),
        (b'"extra":"a","extra":7', 7),
        (b'"extra":"\\ud83d\\ude00"', "\U0001f600"),
        (b'"extra":1,"details":' + b"[" * 99 + b"]" * 99, 1),
        (b'"extra":1,"reward":1e400', 1),
    ],
)
def test_the_largest_supported_values(cli, write, arena, tmp_path, field, value):
    out = tmp_path / "out.parquet"
    cli("score", write([with_field(arena(), field)]), "-r", "arena", "-o", out, code=0)
    assert [row["extra"] for row in read(out)] == [value]


def test_the_deepest_nesting_can_be_read(cli, write, arena, tmp_path):
    out = tmp_path / "out.parquet"
    cli("score", write([with_field(arena(), nested(48))]), "-r", "arena", "-o", out, code=0)
    (row,) = read(out)
    for _ in range(48):
        (row["extra"],) = row["extra"]
    assert row["extra"] == 1


def test_ids_and_answers_of_any_size_are_text(cli, write, arena, tmp_path):
    big = 10**30
    row = arena(id=big, group=big, answers=["Seine", big])
    row["documents"][0]["id"], row["supporting"] = big, [big]
    out = tmp_path / "out.parquet"
    cli("score", write([row]), "-r", "arena", "-o", out, code=0)
    (scored,) = read(out)
    assert (scored["id"], scored["group"], scored["answers"]) == (
        str(big),
        str(big),
        ["Seine", str(big)],
    )
    assert scored["supporting"] == [scored["documents"][0]["id"]] == [str(big)]


def test_rows_that_cannot_be_converted_remain_as_json_lines(cli, write, arena, tmp_path):
    """The error occurs after scoring: integers that a column of floats cannot represent."""
    rows = [arena(id=str(i), extra=0.5) for i in range(600)]
    rows[-1]["extra"] = 2**60 + 1
    out = tmp_path / "out.parquet"
    message = cli("score", write(rows), "-r", "arena", "-o", out, code=2).err
    assert f"The scored rows are in {out}.partial, as JSON lines" in message
    assert len((tmp_path / "out.parquet.partial").read_text().splitlines()) == 600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.jsonl",
        "out.parquet.partial",
        "out.parquet.run",
    ]


@pytest.mark.parametrize("rows", [[], ["{"]])
def test_an_empty_output_replaces_an_old_one(cli, write, tmp_path, rows):
    out = tmp_path / "out.parquet"
    out.write_bytes(b"old")
    cli("score", write(rows), "-r", "arena", "-o", out, code=3 if rows else 0)
    assert read(out) == []
    assert "reward" in pq.read_schema(out).names
    assert cli("score", out, "-r", "arena", code=0).out == ""


def test_a_stopped_run_leaves_json_lines(cli, write, arena, tmp_path):
    out = tmp_path / "out.parquet"
    options = ("-o", out, "--on-error", "stop")
    message = cli("score", write([arena(), "{"]), "-r", "arena", *options, code=2).err
    assert f"1 rows before it are in {out}.partial" in message
    assert json.loads((tmp_path / "out.parquet.partial").read_text())["id"] == "a"


def test_a_date_that_python_cannot_represent(cli, tmp_path):
    columns = {"response": ["a"], "answers": [["a"]]}
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({**columns, "at": pa.array([2**62], pa.timestamp("us"))}), source)
    result = cli("score", source, "-r", "naive-grpo", code=2)
    assert f"cannot read {source} after row 0: date value out of range" in result.err
    pq.write_table(pa.table({**columns, "at": pa.array([0], pa.timestamp("us"))}), source)
    (row,) = cli("score", source, "-r", "naive-grpo", code=0).rows
    assert row["at"].startswith("1970-01-01")


def test_files_that_are_not_parquet(cli, tmp_path, arena):
    path = tmp_path / "in.parquet"
    for data in (b"", b"PAR1", b"{}\n" * 100):
        path.write_bytes(data)
        assert f"cannot read {path}" in cli("score", path, "-r", "arena", code=2).err


def test_a_damaged_file(cli, tmp_path, arena):
    path = tmp_path / "in.parquet"
    rows = [arena(id=f"{i:032x}") for i in range(2000)]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="gzip", row_group_size=500)
    data = bytearray(path.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 500] = bytes(500)
    path.write_bytes(data)
    out = tmp_path / "out.jsonl"
    message = cli("score", path, "-r", "arena", "-o", out, code=2).err
    assert f"cannot read {path} after row" in message
    assert not out.exists()


def test_without_pyarrow(cli, write, arena, tmp_path, monkeypatch):
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pylist([arena()]), source)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for arguments in ((source,), (write([arena()]), "-o", out)):
        message = cli("score", *arguments, "-r", "arena", code=2).err
        assert 'pyarrow is not installed: pip install "rag-rewards[parquet]"' in message
    assert not out.exists()
    assert not (tmp_path / "out.parquet.partial").exists()


def test_a_text_that_is_not_utf8_is_the_error_of_its_row(cli, arena, tmp_path):
    rows = [arena(id=str(i)) for i in range(3)]
    texts = [row["response"].encode() for row in rows]
    texts[1] += b"\xff"
    bad = pa.Array.from_buffers(pa.string(), 3, pa.array(texts, pa.binary()).buffers())
    table = pa.Table.from_pylist(rows)
    at = table.schema.get_field_index("response")
    source, out = tmp_path / "in.parquet", tmp_path / "out.jsonl"
    pq.write_table(table.set_column(at, "response", bad), source)
    cli("score", source, "-r", "arena", "-o", out, code=3)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["0", "2"]
    [error] = map(json.loads, Path(f"{out}.errors.jsonl").read_text().splitlines())
    assert (error["line"], error["error"]["path"]) == (2, "response")
    assert "byte 0xff" in error["error"]["message"]

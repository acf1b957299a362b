"""Records of files in all formats; an incomplete file is always an error."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.datasets import json_array
from rag_rewards.datasets.gold import Problem
from rag_rewards.datasets.json_array import text_or_problem
from rag_rewards.datasets.records import Records
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import zstandard

zstd = zstandard()
ROWS = [{"a": 1, "b": 'Ünï “x” \\ " }],[{ \u2028'}, {"c": [[], {"d": None}]}, {"e": "🦉" * 9}]


COMPRESSED = pytest.mark.parametrize(
    "compress",
    [bytes, gzip.compress, bz2.compress, zstd.compress],
    ids=["plain", "gzip", "bzip2", "zstandard"],
)


def read(path):
    with Records(str(path)) as records:
        return list(records)


def write(tmp_path, data, name="in.json"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        lines(ROWS),
        lines(ROWS).rstrip("\n"),
        "\ufeff" + lines(ROWS),
        lines(ROWS).replace("\n", "\r\n"),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\n [" + " ,\n".join(json.dumps(row) for row in ROWS) + "\n]\n",
        "\ufeff" + json.dumps(ROWS, ensure_ascii=False),
        json.dumps({"Data": ROWS, "Domain": "web"}),
    ],
    ids="jsonl unended-jsonl bom crlf array indented ragged bom-array wrapped".split(),
)
@COMPRESSED
def test_each_format_gives_the_same_records(tmp_path, text, compress):
    assert read(write(tmp_path, compress(text.encode()))) == list(enumerate(ROWS, start=1))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [{"a": "x", "b": [1, 2]}, {"a": "ü", "b": []}]
    path = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert [row for _, row in read(path)] == rows


@pytest.mark.parametrize("form", ["lines", "array"])
def test_nan_and_infinity(tmp_path, form):
    rows = [{"score": float("nan"), "a": 1}, {"score": float("inf"), "a": 2}]
    text = lines(rows) if form == "lines" else json.dumps(rows)
    assert [row["a"] for _, row in read(write(tmp_path, text))] == [1, 2]


def test_blank_lines_are_counted_and_skipped(tmp_path):
    assert read(write(tmp_path, '\n{"a": 1}\n\n  \n{"a": 2}\n')) == [(2, {"a": 1}), (5, {"a": 2})]


def test_a_line_that_is_not_json_is_a_problem(tmp_path):
    (_, first), (number, problem), (_, last) = read(write(tmp_path, '{"a": 1}\n{"a": \n{"a": 3}\n'))
    assert (first, last) == ({"a": 1}, {"a": 3})
    assert number == 2
    assert problem.reason == "not JSON"
    assert read(write(tmp_path, '{"a": 1}\nnonsense'))[1][1].reason == "not JSON"


TEXTS = st.text(st.characters(codec=None), max_size=5)
NUMBERS = st.integers() | st.integers(-(2**80), 2**80) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@budget(200)
@given(st.data())
def test_arrays_against_the_json_module(tmp_path_factory, data):
    """Chunks have any size. Values include NaN, large integers and halves of surrogate pairs."""
    rows = data.draw(st.lists(st.dictionaries(TEXTS, VALUES), max_size=5))
    text = json.dumps(rows, indent=data.draw(indents))
    if not re.search(r"\\u[dD][89a-fA-F]", text):
        text = json.dumps(rows, ensure_ascii=data.draw(st.booleans()))
    path = write(tmp_path_factory.mktemp("rows"), text)
    expected = list(enumerate(map(text_or_problem, json.loads(text)), start=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "CHUNK", data.draw(st.integers(1, 50)))
        assert repr(read(path)) == repr(expected)  # 1 is not 1.0, and NaN is NaN


indents = st.sampled_from([None, 1])


NUMERALS = "0.1000000000000000055511151231257827 1E+2 1e-400 2.5e-324 -0 -0.0 9007199254740993.0"


@pytest.mark.parametrize("numeral", NUMERALS.split())
def test_numbers_against_the_json_module(tmp_path, numeral):
    ((_, row),) = read(write(tmp_path, f'[{{"a": {numeral}}}]'))
    assert repr(row["a"]) == repr(json.loads(numeral))


@pytest.mark.parametrize("chunk", [1, 5, 11, 12, 13, 64, 1 << 16])
def test_standard_arrays_are_not_loaded_whole(tmp_path, monkeypatch, chunk):
    rows = [{"a": "\U0001f989" * n, "b": [2**63 - 1, -(2**63) + 1, 1e308, -0.0]} for n in range(9)]
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    monkeypatch.setattr(json_array, "LARGEST_WHOLE", 0)
    path = write(tmp_path, json.dumps(rows))
    assert read(path) == list(enumerate(rows, start=1))


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", str(2**63), '"\\ud83d"'])
def test_the_size_limit_of_arrays_that_are_loaded_whole(tmp_path, monkeypatch, value):
    path = write(tmp_path, f'[{{"a": 1}}, {{"a": {value}}}]')
    assert [number for number, _ in read(path)] == [1, 2]
    monkeypatch.setattr(json_array, "LARGEST_WHOLE", 10)
    with pytest.raises(UsageError, match="row 2 or a row near it is not standard JSON"):
        read(path)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_limit_of_elements(tmp_path, opening, closing):
    def nested(depth):
        return f'[{{"a": 1}}, {opening * depth}0{closing * depth}]'

    assert [number for number, _ in read(write(tmp_path, nested(1_000)))] == [1, 2]
    for depth in (1_001, 1_000_000):
        with pytest.raises(UsageError, match="row 2 is nested more than 1,000 levels deep"):
            read(write(tmp_path, nested(depth)))


DAMAGE = r"is incomplete: it|is cut off: |is damaged: |is not UTF-8|is empty"


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@COMPRESSED
def test_an_incomplete_array_is_an_error(tmp_path, monkeypatch, chunk, compress):
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    whole = compress(json.dumps(ROWS, ensure_ascii=chunk == 3).encode())
    for end in range(20 if compress is not bytes else 1, len(whole)):
        with pytest.raises(UsageError, match=DAMAGE):
            read(write(tmp_path, whole[:end]))


KEYED = {"10": ROWS[0], "2": {"id": "own"}, "33": ROWS[1]}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_an_object_of_rows(tmp_path, monkeypatch, chunk, indent):
    """The name of a row becomes its id, unless it has one."""
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    expected = [(1, {"id": "10"} | ROWS[0]), (2, {"id": "own"}), (3, {"id": "33"} | ROWS[1])]
    assert read(write(tmp_path, json.dumps(KEYED, indent=indent))) == expected
    nan = KEYED | {"4": {"a": float("nan"), "b": 1}}
    assert read(write(tmp_path, json.dumps(nan, indent=indent)))[3][1]["b"] == 1


@COMPRESSED
def test_an_incomplete_object_of_rows_is_an_error(tmp_path, compress):
    whole = compress(json.dumps(KEYED, ensure_ascii=False).encode())
    for end in range(20 if compress is not bytes else 1, len(whole)):
        with pytest.raises(UsageError, match=DAMAGE):
            read(write(tmp_path, whole[:end]))


def test_incomplete_json_lines_are_an_error(tmp_path):
    whole = lines(ROWS)
    at = whole.index("\n") + 9
    with pytest.raises(UsageError, match=r"it ends after 1 complete rows and .* bytes"):
        read(write(tmp_path, whole[:at]))
    with pytest.raises(UsageError, match=r"after 0 complete rows"):
        read(write(tmp_path, whole[:9]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"question,answer\n", "neither JSON lines, a JSON array nor Parquet"),
        (b'[{"a": 1}, nonsense, ' + b" " * 50 + b'{"b": 2}]', "row 2 is not JSON"),
        (b'[{"a": 1} {"a": "' + b"x" * 50 + b'"}} ]', "row 2 is not JSON"),
        (
            b'[{"a": 1},{"b": 2}',
            "incomplete: it ends after 2 complete rows and 18 bytes. Download it",
        ),
        ('[{"a": 1}]'.encode("utf-16"), "is not UTF-8 text .*: convert it to UTF-8"),
        (b'[{"a": 1}] [{"a": 2}]', "row 2 is not JSON: Extra data"),
        (b'{"data": [{"a": 1}], }', "row 2 is not JSON"),
        (b'[{"a": NaN}, ' + b"[" * 100_000 + b"]" * 100_000 + b"]", "row 1 is not JSON: maximum"),
        (b'[{"a": 1}, ' + b"1" * 5_000 + b"]", "row 2 is not JSON: Exceeds the limit"),
        (b'[{"a": "\xff\xfe' + b"x" * 50 + b'"}]', "is not UTF-8 text"),
    ],
)
def test_files_in_other_formats(tmp_path, data, message):
    with pytest.raises(UsageError, match=message):
        read(write(tmp_path, data))


def test_a_record_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(json_array, "LARGEST_ELEMENT", 5_000)
    monkeypatch.setattr(json_array, "CHUNK", 1_000)
    path = write(tmp_path, '[{"a": "' + "x" * 50_000)
    with pytest.raises(UsageError, match="row 1 has no end within"):
        read(path)


@pytest.mark.parametrize("chunk", [1, 6, 12, 40])
@pytest.mark.parametrize("half", ["\\ud83d", "\\uDC00 and on", "\\udbff\\ud83d"])
def test_half_of_a_surrogate_pair_is_a_problem(tmp_path, monkeypatch, half, chunk):
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    rows = f'{{"a": "{half}"}}, {{"a": "\\ud83e\\udd89"}}'
    (_, problem), (_, owl) = read(write(tmp_path, f"[{rows}]"))
    assert problem.reason == "not JSON"
    assert owl == {"a": "🦉"}
    (_, problem), (_, owl) = read(write(tmp_path, rows.replace(", ", "\n") + "\n"))
    assert problem.reason == "not JSON"
    assert owl == {"a": "🦉"}


def test_missing_and_irregular_files(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        Records(str(tmp_path / "none"))
    for path in ("-", str(tmp_path)):
        with pytest.raises(UsageError, match="not a regular file"):
            Records(path)


@pytest.mark.parametrize("form", [lines, json.dumps])
def test_position(tmp_path, form):
    path = write(tmp_path, form([{"a": "x" * 100}] * 3_000))
    with Records(str(path)) as records:
        positions = [records.position() for _ in records]
        assert positions[0] < positions[1_500] < positions[-1]
        assert records.position() == records.size == path.stat().st_size


def test_an_array_that_another_process_cuts_off(tmp_path):
    path = write(tmp_path, json.dumps([{"a": "x" * 100}] * 3_000))
    with Records(str(path)) as records:
        rows = iter(records)
        next(rows)
        os.truncate(path, 10)
        with pytest.raises(UsageError, match=r"in\.json shrank from"):
            list(rows)


def test_records_can_be_read_again(tmp_path):
    with Records(str(write(tmp_path, json.dumps(ROWS)))) as records:
        assert list(records) == list(records)
        assert not any(isinstance(row, Problem) for _, row in records)

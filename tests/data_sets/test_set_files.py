"""Records out of files: whatever the wrapping, never a short file without a word."""

from __future__ import annotations

import bz2
import gzip
import json
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

ROWS = [{"a": 1, "b": 'Ünï “x” \\ " }],[{ \u2028'}, {"c": [[], {"d": None}]}, {"e": "🦉" * 9}]


PACKED = pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress], ids=["plain", "gzip", "bzip2"]
)


def read(path):
    with Records(str(path)) as records:
        return list(records)


def written(tmp_path, data, name="in.json"):
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
@PACKED
def test_every_wrapping_gives_the_same_records(tmp_path, text, pack):
    assert read(written(tmp_path, pack(text.encode()))) == list(enumerate(ROWS, start=1))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [{"a": "x", "b": [1, 2]}, {"a": "ü", "b": []}]
    path = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert [row for _, row in read(path)] == rows


@pytest.mark.parametrize("form", ["lines", "array"])
def test_numbers_that_only_python_writes_are_no_fault_of_the_row(tmp_path, form):
    rows = [{"score": float("nan"), "a": 1}, {"score": float("inf"), "a": 2}]
    text = lines(rows) if form == "lines" else json.dumps(rows)
    assert [row["a"] for _, row in read(written(tmp_path, text))] == [1, 2]


def test_blank_lines_are_counted_and_skipped(tmp_path):
    assert read(written(tmp_path, '\n{"a": 1}\n\n  \n{"a": 2}\n')) == [(2, {"a": 1}), (5, {"a": 2})]


def test_a_line_that_is_no_json_is_a_problem_of_its_own(tmp_path):
    (_, first), (number, problem), (_, last) = read(
        written(tmp_path, '{"a": 1}\n{"a": \n{"a": 3}\n')
    )
    assert (first, last) == ({"a": 1}, {"a": 3})
    assert number == 2
    assert problem.reason == "not JSON"
    assert read(written(tmp_path, '{"a": 1}\nnonsense'))[1][1].reason == "not JSON"


TEXTS = st.text(st.characters(codec=None), max_size=5)
NUMBERS = st.integers() | st.integers(-(2**80), 2**80) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@budget(200)
@given(st.data())
def test_arrays_are_read_as_json_reads_them(tmp_path_factory, data):
    """In chunks of any size, with NaN, large integers and halves of surrogate pairs."""
    rows = data.draw(st.lists(st.dictionaries(TEXTS, VALUES), max_size=5))
    text = json.dumps(rows, indent=data.draw(indents))
    if not re.search(r"\\u[dD][89a-fA-F]", text):
        text = json.dumps(rows, ensure_ascii=data.draw(st.booleans()))
    path = written(tmp_path_factory.mktemp("rows"), text)
    expected = list(enumerate(map(text_or_problem, json.loads(text)), start=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "CHUNK", data.draw(st.integers(1, 50)))
        assert repr(read(path)) == repr(expected)  # 1 is not 1.0, and NaN is NaN


indents = st.sampled_from([None, 1])


NUMERALS = "0.1000000000000000055511151231257827 1E+2 1e-400 2.5e-324 -0 -0.0 9007199254740993.0"


@pytest.mark.parametrize("numeral", NUMERALS.split())
def test_numbers_have_the_values_that_json_reads(tmp_path, numeral):
    ((_, row),) = read(written(tmp_path, f'[{{"a": {numeral}}}]'))
    assert repr(row["a"]) == repr(json.loads(numeral))


@pytest.mark.parametrize("chunk", [1, 5, 11, 12, 13, 64, 1 << 16])
def test_standard_arrays_are_never_loaded_whole(tmp_path, monkeypatch, chunk):
    rows = [{"a": "\U0001f989" * n, "b": [2**63 - 1, -(2**63) + 1, 1e308, -0.0]} for n in range(9)]
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    monkeypatch.setattr(json_array, "LARGEST_WHOLE", 0)
    path = written(tmp_path, json.dumps(rows))
    assert read(path) == list(enumerate(rows, start=1))


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", str(2**63), '"\\ud83d"'])
def test_an_array_that_must_be_loaded_whole_has_a_limit(tmp_path, monkeypatch, value):
    path = written(tmp_path, f'[{{"a": 1}}, {{"a": {value}}}]')
    assert [number for number, _ in read(path)] == [1, 2]
    monkeypatch.setattr(json_array, "LARGEST_WHOLE", 10)
    with pytest.raises(UsageError, match="row 2 or a row near it is not standard JSON"):
        read(path)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_elements_that_are_nested_deeply(tmp_path, opening, closing):
    def nested(depth):
        return f'[{{"a": 1}}, {opening * depth}0{closing * depth}]'

    assert [number for number, _ in read(written(tmp_path, nested(1_000)))] == [1, 2]
    for depth in (1_001, 1_000_000):
        with pytest.raises(UsageError, match="row 2 is nested more than 1,000 levels deep"):
            read(written(tmp_path, nested(depth)))


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@PACKED
def test_an_array_cut_anywhere_is_never_a_short_file(tmp_path, monkeypatch, chunk, pack):
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    whole = pack(json.dumps(ROWS, ensure_ascii=chunk == 3).encode())
    for end in range(20 if pack is not bytes else 1, len(whole)):
        with pytest.raises(UsageError, match=r"incomplete|not UTF-8|is empty"):
            read(written(tmp_path, whole[:end]))


def test_json_lines_cut_in_a_row_are_no_short_file(tmp_path):
    whole = lines(ROWS)
    at = whole.index("\n") + 9
    with pytest.raises(UsageError, match=r"it ends after 1 complete rows and .* bytes"):
        read(written(tmp_path, whole[:at]))
    with pytest.raises(UsageError, match=r"after 0 complete rows"):
        read(written(tmp_path, whole[:9]))


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
        (b'[{"a": 1}] [{"a": 2}]', "row 2 is not JSON: Extra data"),
        (b'{"data": [{"a": 1}], }', "row 2 is not JSON"),
        (b'[{"a": NaN}, ' + b"[" * 100_000 + b"]" * 100_000 + b"]", "row 1 is not JSON: maximum"),
        (b'[{"a": 1}, ' + b"1" * 5_000 + b"]", "row 2 is not JSON: Exceeds the limit"),
        (b'[{"a": "\xff\xfe' + b"x" * 50 + b'"}]', "is not UTF-8 text"),
    ],
)
def test_files_that_are_no_data(tmp_path, data, message):
    with pytest.raises(UsageError, match=message):
        read(written(tmp_path, data))


def test_a_record_without_an_end_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(json_array, "LARGEST_ELEMENT", 5_000)
    monkeypatch.setattr(json_array, "CHUNK", 1_000)
    path = written(tmp_path, '[{"a": "' + "x" * 50_000)
    with pytest.raises(UsageError, match="row 1 has no end within"):
        read(path)


@pytest.mark.parametrize("chunk", [1, 6, 12, 40])
@pytest.mark.parametrize("half", ["\\ud83d", "\\uDC00 and on", "\\udbff\\ud83d"])
def test_half_of_a_surrogate_pair_is_no_text(tmp_path, monkeypatch, half, chunk):
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    rows = f'{{"a": "{half}"}}, {{"a": "\\ud83e\\udd89"}}'
    (_, problem), (_, owl) = read(written(tmp_path, f"[{rows}]"))
    assert problem.reason == "not JSON"
    assert owl == {"a": "🦉"}
    (_, problem), (_, owl) = read(written(tmp_path, rows.replace(", ", "\n") + "\n"))
    assert problem.reason == "not JSON"
    assert owl == {"a": "🦉"}


def test_what_is_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        Records(str(tmp_path / "none"))
    for path in ("-", str(tmp_path)):
        with pytest.raises(UsageError, match="not a regular file"):
            Records(path)


def test_the_position_tells_how_far_reading_is(tmp_path):
    path = written(tmp_path, lines([{"a": "x" * 100}] * 1_000))
    with Records(str(path)) as records:
        for _ in records:
            pass
        assert records.position() == records.size == path.stat().st_size


def test_records_are_read_again_from_the_start(tmp_path):
    with Records(str(written(tmp_path, json.dumps(ROWS)))) as records:
        assert list(records) == list(records)
        assert not any(isinstance(row, Problem) for _, row in records)

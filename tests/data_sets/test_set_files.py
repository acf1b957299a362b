"""Records out of files: whatever the wrapping, never a short file without a word."""

from __future__ import annotations

import bz2
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_rewards.datasets import files
from rag_rewards.datasets.files import Records
from rag_rewards.datasets.gold import Problem
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


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_arrays_are_read_alike_in_chunks_of_any_size(tmp_path_factory, data):
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=12,
    )
    rows = data.draw(st.lists(st.dictionaries(st.text(max_size=5), values), max_size=5))
    text = json.dumps(rows, ensure_ascii=data.draw(st.booleans()), indent=data.draw(indents))
    path = written(tmp_path_factory.mktemp("rows"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", data.draw(st.integers(1, 50)))
        assert read(path) == list(enumerate(rows, start=1))


indents = st.sampled_from([None, 1])


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@PACKED
def test_an_array_cut_anywhere_is_never_a_short_file(tmp_path, monkeypatch, chunk, pack):
    monkeypatch.setattr(files, "CHUNK", chunk)
    whole = pack(json.dumps(ROWS, ensure_ascii=False).encode())
    for end in range(20 if pack is not bytes else 1, len(whole)):
        with pytest.raises(UsageError, match=r"not whole|not UTF-8|is empty"):
            read(written(tmp_path, whole[:end]))


def test_json_lines_cut_in_a_row_are_no_short_file(tmp_path):
    whole = lines(ROWS)
    at = whole.index("\n") + 9
    with pytest.raises(UsageError, match=r"ends in the middle, after 1 whole rows and .* bytes"):
        read(written(tmp_path, whole[:at]))
    with pytest.raises(UsageError, match=r"after 0 whole rows"):
        read(written(tmp_path, whole[:9]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"question,answer\n", "neither JSON lines nor a JSON array"),
        (b'[{"a": 1}, nonsense, ' + b" " * 50 + b'{"b": 2}]', "row 2 is not JSON"),
        (b'[{"a": 1} {"a": "' + b"x" * 50 + b'"}} ]', "row 3 is not JSON"),
        (b'[{"a": "\xff\xfe' + b"x" * 50 + b'"}]', "is not UTF-8 text"),
    ],
)
def test_files_that_are_no_data(tmp_path, data, message):
    with pytest.raises(UsageError, match=message):
        read(written(tmp_path, data))


def test_a_record_without_an_end_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 5_000)
    monkeypatch.setattr(files, "CHUNK", 1_000)
    path = written(tmp_path, '[{"a": "' + "x" * 50_000)
    with pytest.raises(UsageError, match="row 1 has no end within"):
        read(path)


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDC00 and on", "\\udbff\\ud83d"])
def test_half_of_a_surrogate_pair_is_no_text(tmp_path, half):
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
        with pytest.raises(UsageError, match="no regular file"):
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

"""Inputs that another process changes while they are read."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os

import pytest

from rag_rewards.datasets.records import Records
from rag_rewards.errors import UsageError
from rag_rewards.files.grouped_lines import sort_groups
from rag_rewards.files.sources import open_source
from rag_rewards.files.version import FileVersion

ROWS = [json.dumps({"id": str(i), "text": "x" * 2000}).encode() for i in range(1200)]
CONTENT = b"\n".join(ROWS) + b"\n"


def grow(path):
    with path.open("ab") as file:
        file.write(ROWS[0] + b"\n")


def shrink(path):
    os.truncate(path, path.stat().st_size - 10)


def write_again(path):
    content = path.read_bytes()
    path.write_bytes(content[:-3] + bytes(reversed(content[-3:])))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))


CHANGES = {grow: "grew from", shrink: "shrank from", write_again: "was written again"}
all_changes = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@pytest.fixture(params=["in.jsonl", "in.jsonl.gz", "in.parquet"])
def path(request, tmp_path):
    path = tmp_path / request.param
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist([json.loads(row) for row in ROWS])
        pq.write_table(table, path, row_group_size=100)
    else:
        # Without compression, because a small file would be read at once.
        path.write_bytes(gzip.compress(CONTENT, 0) if path.suffix == ".gz" else CONTENT)
    return path


@all_changes
def test_a_change_is_an_error(path, change):
    source = open_source(str(path))
    next(source.lines)
    change(path)
    with pytest.raises(UsageError, match=rf"{path.name} {CHANGES[change]}"):
        list(source.lines)
    source.close()


def test_a_complete_file_is_no_error(path):
    source = open_source(str(path))
    assert len(list(source.lines)) == len(ROWS)
    source.close()


def test_a_file_that_grows_can_be_evaluated(tmp_path, caplog):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    source = open_source(str(path), growing=True)
    next(source.lines)
    grow(path)
    assert len(list(source.lines)) >= len(ROWS) - 1
    assert caplog.text.count("in.jsonl grows while it is read") == 1
    source.close()
    source = open_source(str(path), growing=True)
    next(source.lines)
    shrink(path)
    with pytest.raises(UsageError, match=r"in\.jsonl shrank"):
        list(source.lines)
    source.close()


class Unreadable(io.FileIO):
    """A file whose second line is on a damaged part of the disk."""

    def readline(self, size=-1):
        if self.tell():
            raise OSError(errno.EIO, "Input/output error")
        return super().readline(size)


@all_changes
def test_a_change_between_the_passes_of_sorting(tmp_path, change):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    source = open_source(str(path))
    lines = sort_groups(source)
    next(lines)
    change(path)
    with pytest.raises(UsageError, match=rf"in\.jsonl {CHANGES[change]}"):
        list(lines)
    lines.close()
    source.close()


def test_a_read_error_while_rows_are_sorted(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    source = open_source(str(path))
    message = rf"cannot read {path}: Input/output error"
    with Unreadable(str(path)) as source.handle, pytest.raises(UsageError, match=message):
        list(sort_groups(source))
    source.close()


@all_changes
def test_a_change_between_the_passes_of_prepare(path, change):
    with Records(str(path)) as records:
        assert len(list(records)) == len(ROWS)
        change(path)
        with pytest.raises(UsageError, match=rf"{path.name} {CHANGES[change]}"):
            list(records)


@pytest.mark.parametrize("command", ["audit", "select"])
def test_commands_name_the_file(cli, tmp_path, monkeypatch, command):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    versions = iter(range(1, 1000))

    def growing_version(handle):
        return FileVersion(next(versions), 0)

    monkeypatch.setattr(FileVersion, "of_open", growing_version)
    output = ("-o", tmp_path / "out.jsonl") if command == "select" else ()
    message = cli(command, path, "-r", "arena", *output, code=2).err
    assert f"{path} grew from 1 to 2 bytes while it was read: wait until the file is" in message
    assert not (tmp_path / "out.jsonl").exists()

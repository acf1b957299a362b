"""Shards contain all rows in order, with the line numbers of one reader, and whole groups."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
from itertools import pairwise

import pytest
from random_rows import write_random_input

from rag_rewards.errors import UsageError
from rag_rewards.files.sources import open_source
from rag_rewards.files.storage import input_files
from rag_rewards.rows.line_groups import line_groups_by_key, line_groups_by_size
from rag_rewards.scoring import input_files as files_module
from rag_rewards.scoring.input_files import InputFile, JsonLines, Piece
from rag_rewards.scoring.plan import Grouping, plan_shards, shard_bytes
from rag_rewards.scoring.shard import ShardJob, input_lines

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


NO_GROUPS = Grouping()


def files_of(source):
    return [InputFile.of(path) for path in input_files(source) or [source]]


def lines_of(source):
    with contextlib.closing(open_source(source)) as opened:
        return list(opened.lines)


def shards_of(files, size, grouping=NO_GROUPS):
    job = ShardJob(files=files, folder="")
    return [list(input_lines(job, shard)) for shard in plan_shards(files, size, grouping)]


@pytest.mark.parametrize("seed", range(30))
def test_shards_contain_all_rows_with_their_numbers(tmp_path, seed):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng)
    shards = shards_of(files_of(source), rng.choice([1, 100, 2000, 10**6]))
    assert [line for shard in shards for line in shard] == lines_of(source)


@pytest.mark.parametrize("seed", range(30))
def test_shards_contain_whole_groups(tmp_path, seed):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng)
    files, size, group_size = files_of(source), rng.choice([1, 100, 2000]), rng.choice([1, 3, 7])

    by_key, earlier = [], set()
    for shard in shards_of(files, size, Grouping(by_key=True)):
        keys = set()
        by_key += line_groups_by_key(shard, keys, frozenset(earlier))
        earlier |= keys
    assert by_key == list(line_groups_by_key(lines_of(source)))
    by_size = [
        group
        for shard in shards_of(files, size, Grouping(size=group_size))
        for group in line_groups_by_size(shard, group_size)
    ]
    assert by_size == list(line_groups_by_size(lines_of(source), group_size))


def test_a_plan_is_repeatable_and_has_the_size_that_was_asked_for(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"response": "x"}\n' * 1000)  # 18 bytes per line
    plan = list(plan_shards(files_of(str(source)), 180, Grouping()))
    assert plan == list(plan_shards(files_of(str(source)), 180, Grouping()))
    assert len(plan) == 100
    assert {shard.size for shard in plan} == {180}
    assert {piece.lines for shard in plan for piece in shard.pieces} == {10}
    assert plan[1].lines == "lines 11 to 20"


def test_one_huge_line_and_one_huge_group(tmp_path):
    huge, group = tmp_path / "huge.jsonl", tmp_path / "group.jsonl"
    huge.write_bytes(b'{"a":1}\n' + b'{"response":"' + b"x" * 300_000 + b'"}\n{"a":2}')
    assert [len(shard) for shard in shards_of(files_of(str(huge)), 8)] == [1, 1, 1]
    group.write_bytes(b'{"group":"g"}\n' * 1000 + b'{"group":"h"}')
    shards = shards_of(files_of(str(group)), 10, Grouping(by_key=True))
    assert [len(shard) for shard in shards] == [1000, 1]


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows(tmp_path, data):
    source = tmp_path / "in.jsonl"
    source.write_bytes(data)
    assert [line for shard in shards_of(files_of(str(source)), 10) for line in shard] == []


@pytest.mark.parametrize("seed", range(5))
def test_parquet(tmp_path, seed):
    rng = random.Random(seed)
    for name in ("a", "b"):
        rows = [{"group": f"g{i // rng.choice([1, 3])}", "n": i} for i in range(rng.randrange(200))]
        table = pa.Table.from_pylist(rows, pa.schema([("group", pa.string()), ("n", pa.int64())]))
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=rng.choice([7, 20]))
    source = str(tmp_path / "*.parquet")
    for grouping in (Grouping(), Grouping(by_key=True), Grouping(size=4)):
        shards = shards_of(files_of(source), 1, grouping)
        assert [line for shard in shards for line in shard] == lines_of(source)
        if grouping.size:
            assert all(len(shard) % 4 == 0 for shard in shards[:-1])
        if grouping.by_key:
            ends = [[json.loads(shard[i][1])["group"] for i in (0, -1)] for shard in shards]
            assert all(one[1] != two[0] for one, two in pairwise(ends))


def test_the_size_of_a_shard():
    def size(total, workers):
        return shard_bytes([InputFile("in.jsonl", total, 0)], workers)

    assert size(10, 1) == size(8 << 20, 1) == 1 << 20
    assert size(64 << 20, 2) == 4 << 20
    assert size(1 << 40, 2) == 32 << 20


@pytest.mark.parametrize("change", ["longer", "shorter", "newer", "removed"])
def test_a_file_that_changes_while_it_is_read(tmp_path, change):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"response": "x"}\n' * 1000)
    files = files_of(str(source))
    (shard,) = plan_shards(files, 10**6, Grouping())
    lines = input_lines(ShardJob(files=files, folder=""), shard)
    next(lines)
    if change == "longer":
        source.write_bytes(source.read_bytes() + b"{}\n")
    elif change == "shorter":
        os.truncate(source, 180)
    elif change == "newer":
        os.utime(source, ns=(0, 0))
    else:
        source.unlink()
    with pytest.raises(UsageError, match=r"in\.jsonl"):
        list(lines)


class BrokenFile(io.FileIO):
    """A file on a damaged disk."""

    def readinto(self, buffer):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    "read",
    [
        lambda rows: rows.after(0, 40),
        lambda rows: rows.count_lines(0, 180),
        lambda rows: rows.count_blank_lines(),
        lambda rows: list(rows.rows_from(18)),
        lambda rows: list(rows.read(Piece(0, 18, 36, 1, 1))),
    ],
    ids=["after", "count_lines", "count_blank_lines", "rows_from", "read"],
)
def test_a_file_that_cannot_be_read(tmp_path, monkeypatch, read):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"response": "x"}\n' * 10)
    monkeypatch.setattr(
        files_module, "open_file", lambda path: io.BufferedReader(BrokenFile(path), 16)
    )
    message = r"^cannot read .*in\.jsonl.*: Input/output error$"
    with (
        contextlib.closing(JsonLines(InputFile.of(str(source)))) as rows,
        pytest.raises(UsageError, match=message),
    ):
        read(rows)

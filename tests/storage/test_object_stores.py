"""Inputs in object stores and in folders: names, ranges of bytes, formats and errors."""

from __future__ import annotations

import json
import re

import pytest
from object_store import SECRET, object_store

from rag_rewards.errors import UsageError
from rag_rewards.files import atomic, storage
from rag_rewards.files.atomic import new_file, upload, write_file
from rag_rewards.files.grouped_lines import sort_groups
from rag_rewards.files.sources import open_source
from rag_rewards.files.version import FileVersion

pytest.importorskip("pyarrow.parquet")
import pyarrow as pa
import pyarrow.parquet as pq


@pytest.fixture(scope="module")
def bucket():
    with object_store() as bucket:
        yield bucket


def lines(*ids):
    return b"".join(json.dumps({"id": each}).encode() + b"\n" for each in ids)


def ids(path):
    source = open_source(str(path))
    try:
        return [json.loads(line)["id"] for _, line in source.lines]
    finally:
        source.close()


def parquet(ids):
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids}), buffer)
    return buffer.getvalue().to_pybytes()


def test_files_of_both_formats(bucket):
    assert ids(bucket.write("one/a.jsonl", lines("1", "2"))) == ["1", "2"]
    assert ids(bucket.write("one/b.parquet", parquet(["3", "4"]))) == ["3", "4"]
    assert ids(bucket.write("one/with space #1.jsonl", lines("5"))) == ["5"]


def test_ranges_of_bytes(bucket, monkeypatch):
    monkeypatch.setattr(storage, "REMOTE_BLOCK", 64)
    data = lines(*map(str, range(100)))
    with storage.open_file(bucket.write("ranges/a.jsonl", data)) as handle:
        for start in (0, 63, 64, 65, len(data) - 1, len(data)):
            handle.seek(start)
            assert handle.tell() == start
            assert handle.readline() == b"".join(data[start:].splitlines(True)[:1])
        handle.seek(10)
        assert handle.read() == data[10:]


def test_a_file_is_sorted_by_groups(bucket):
    rows = [f'{{"group": "{group}", "response": "{i}"}}' for i, group in enumerate("abab")]
    url = bucket.write("sort/a.jsonl", "\n".join(rows).encode())
    source = open_source(url)
    assert [number for number, _ in sort_groups(source)] == [1, 3, 2, 4]
    source.close()


def test_the_position_of_a_file_for_a_progress_bar(bucket):
    data = lines(*map(str, range(1000)))
    source = open_source(bucket.write("position/a.jsonl", data))
    assert source.size == len(data)
    assert [number for number, _ in source.lines] == list(range(1, 1001))
    assert source.position() == len(data)
    source.close()


def test_folders_and_patterns(bucket, tmp_path):
    files = {
        "part-00002.jsonl": lines("c"),
        "part-00001.parquet": parquet(["b"]),
        "part-00000.jsonl": lines("a"),
        "part-00000.jsonl.errors.jsonl": lines("error"),
        "_manifest.jsonl": lines("manifest"),
        ".hidden.jsonl": lines("hidden"),
        "card.md": b"# Card",
        "deeper/part-00009.jsonl": lines("z"),
    }
    (tmp_path / "deeper").mkdir()
    for name, data in files.items():
        bucket.write(f"folder/{name}", data)
        (tmp_path / name).write_bytes(data)
    for folder in (bucket.url("folder"), bucket.url("folder/"), tmp_path, tmp_path.as_uri()):
        assert ids(folder) == ["a", "b", "c"]
    for folder in (bucket.url("folder"), str(tmp_path)):
        assert ids(f"{folder}/part-*2.jsonl") == ["c"]
        assert ids(f"{folder}/*/part-*.jsonl") == ["z"]
        assert ids(f"{folder}/part-0000[03].jso[n]l") == ["a"]


def test_line_numbers_of_a_folder_continue(bucket):
    bucket.write("numbers/a.jsonl", lines("1", "2"))
    bucket.write("numbers/b.jsonl", lines("3"))
    source = open_source(bucket.url("numbers"))
    assert [number for number, _ in source.lines] == [1, 2, 3]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://rollouts/nothing.jsonl", "no such file, folder or bucket"),
        ("s3://rollouts/nothing/*.jsonl", "no file matches s3://rollouts/nothing/*.jsonl"),
        ("s3://no-such-bucket/rows.jsonl", "no such file, folder or bucket"),
        ("s3:///rows.jsonl", "has no bucket: write s3://BUCKET/PATH"),
        ("s3://rollouts/cards", "has no file with a name that ends in .jsonl"),
        ("s3://rollouts/rows.csv", "has neither JSON lines nor Parquet"),
        ("file://other/rows.jsonl", "names another machine"),
    ],
)
def test_errors_name_the_url_and_the_reason(bucket, url, message):
    bucket.write("cards/card.md", b"# Card")
    bucket.write("rows.csv", b"a,b")
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        open_source(url)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{SECRET}@rollouts/rows.jsonl",
        f"s3://key:{SECRET}/with-slash@rollouts/rows.jsonl",
        f"s3://rollouts/rows.jsonl?secret_key={SECRET}",
        f"hdfs://user:{SECRET}@host:9000/rows.jsonl",
    ],
)
def test_a_url_with_credentials_is_refused_without_printing_it(url):
    for call in (open_source, storage.staging_folder, FileVersion.of, storage.remove_file):
        with pytest.raises(UsageError, match="provide credentials by the environment") as error:
            call(url)
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("remote", [True, False])
def test_written_files(bucket, tmp_path, monkeypatch, remote):
    for module in (storage, atomic):
        monkeypatch.setattr(module, "REMOTE_BLOCK", 1 << 16)
    folder = bucket.url("written") if remote else str(tmp_path / "written")
    path = storage.join(folder, "manifest.json")
    assert FileVersion.of(path) is None
    write_file(path, b"first")
    write_file(path, b"second")
    info = FileVersion.of(path)
    assert info is not None
    assert info.size == 6
    assert info.modified > 0
    assert storage.read_file(path) == b"second"
    source = tmp_path / "large"
    source.write_bytes(b"x" * (storage.REMOTE_BLOCK + 5))
    upload(source, path)
    assert storage.read_file(path) == source.read_bytes()
    storage.remove_file(path)
    storage.remove_file(path)
    assert FileVersion.of(path) is None


@pytest.mark.parametrize("remote", [True, False])
def test_a_failed_write_leaves_no_file(bucket, tmp_path, remote):
    path = bucket.url("failed/a.jsonl") if remote else str(tmp_path / "failed" / "a.jsonl")
    (tmp_path / "failed").mkdir()

    def write():
        with new_file(path) as handle:
            handle.write(b"the first block")
            raise RuntimeError("the source ends")

    with pytest.raises(RuntimeError, match="the source ends"):
        write()
    assert FileVersion.of(path) is None
    assert not list((tmp_path / "failed").glob("*"))
    assert bucket.keys("failed/a.jsonl") == []


def test_a_staging_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = storage.staging_folder("s3://rollouts/a.jsonl")
    assert folder == storage.staging_folder("s3://rollouts/a.jsonl")
    assert folder != storage.staging_folder("s3://rollouts/b.jsonl")
    assert folder.parent.stat().st_mode & 0o077 == 0
    target = tmp_path / "target"
    folder.parent.rename(target)
    folder.parent.symlink_to(target)
    with pytest.raises(UsageError, match="belongs to another user: set TMPDIR"):
        storage.staging_folder("s3://rollouts/a.jsonl")

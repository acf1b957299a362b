"""Outputs that consist of part files: their bytes, the manifest, continuation and refusals."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import sys
import zlib

import pytest
from command_line import stdin_of
from interruption import Interruption
from random_rows import row, write_random_input

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.storage import input_files
from rag_rewards.scoring import folder_store
from rag_rewards.scoring import run as run_module
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.score_file import score_file

RECIPE = "ctrl-rag"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(run_module, "shard_bytes", lambda files, workers: 3000)


@pytest.fixture
def source(tmp_path):
    rng = random.Random(1)
    rows = [{**row(i, f"g{i // 4}", rng), "id": str(i)} for i in range(100)]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def score(source, output, recipe=RECIPE, **options):
    options = {"output_format": "parts", **options}
    return score_file(recipe, ScoreOptions(str(source), str(output), **options))


def content(folder, suffix=""):
    paths = sorted(folder.glob(f"part-?????{suffix}.jsonl"))
    return b"".join(path.read_bytes() for path in paths)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def stop_after(patch, count):
    """Interrupt a run after it has recorded some parts."""
    score_shard = run_module.score_shard

    def interrupted(scorer, job, task, files, **options):
        if task.shard.index == count:
            raise Interruption
        return score_shard(scorer, job, task, files, **options)

    patch.setattr(run_module, "score_shard", interrupted)


@pytest.mark.parametrize("seed", range(8))
def test_parts_equal_the_file(tmp_path, seed, monkeypatch):
    source = write_random_input(tmp_path, random.Random(seed))
    whole, folder = tmp_path / "out.jsonl", tmp_path / "out"
    expected = score(source, whole, output_format="file").totals
    with monkeypatch.context() as patch:
        stop_after(patch, 1 + seed % 3)
        try:
            score(source, folder)
        except Interruption:
            assert not (folder / "manifest.json").exists()
    totals = score(source, folder, resume=True).totals
    assert (totals.rows, totals.errors) == (expected.rows, expected.errors)
    assert content(folder) == whole.read_bytes()
    errors = tmp_path / "out.jsonl.errors.jsonl"
    assert content(folder, ".errors") == (errors.read_bytes() if errors.exists() else b"")
    assert not (folder / "_run").exists()
    assert all(path.stat().st_size for path in folder.glob("*.errors.jsonl"))
    assert score(source, folder, resume=True).was_complete


def test_workers_and_a_group_that_is_apart(source, tmp_path):
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines, lines[0]]) + "\n")
    score(source, tmp_path / "out.jsonl", output_format="file")
    for workers in (1, 2):
        folder = tmp_path / f"parts-{workers}"
        assert score(source, folder, workers=workers).totals.errors == 1
        assert content(folder) == (tmp_path / "out.jsonl").read_bytes()
        assert content(folder, ".errors") == (tmp_path / "out.jsonl.errors.jsonl").read_bytes()


def test_a_shard_with_a_group_that_is_apart_is_scored_once(source, tmp_path, monkeypatch):
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines, lines[0], lines[0]]) + "\n")
    shards = []
    score_shard = run_module.score_shard

    def counted(scorer, job, task, files, **options):
        shards.append(task.shard.index)
        return score_shard(scorer, job, task, files, **options)

    monkeypatch.setattr(run_module, "score_shard", counted)
    assert score(source, tmp_path / "out").totals.errors == 2
    assert shards == list(range(len(shards)))


def test_input_files_without_rows(source, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"")
    for workers in (1, 2):
        assert score(folder, tmp_path / f"none-{workers}", workers=workers).totals.rows == 0
        assert list(files(tmp_path / f"none-{workers}")) == ["manifest.json"]
    source.rename(folder / "b.jsonl")
    (folder / "c.jsonl").write_text("\n\n")
    (folder / "d.jsonl").write_bytes(b"")
    (folder / "e.jsonl").write_text("{}\n")
    for workers in (1, 2):
        output = tmp_path / f"out-{workers}"
        score(folder, output, workers=workers)
        expected = score(folder, tmp_path / "out.jsonl", output_format="file").totals
        assert (expected.rows, expected.errors) == (100, 1)
        assert content(output) == (tmp_path / "out.jsonl").read_bytes()
        errors = (tmp_path / "out.jsonl.errors.jsonl").read_bytes()
        assert content(output, ".errors") == errors


def test_a_part_without_scored_rows_is_an_input(source, tmp_path):
    source.write_text("{}\n" * 2000 + source.read_text())
    score(source, tmp_path / "out")
    assert not (tmp_path / "out" / "part-00000.jsonl").stat().st_size
    score(tmp_path / "out", tmp_path / "again")
    assert content(tmp_path / "again").count(b"\n") == 100


def test_the_manifest_describes_the_parts(source, tmp_path):
    run = score(source, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    parts = manifest["parts"]
    assert manifest["signature"] == run.signature
    assert manifest["totals"]["rows"] == sum(part["rows"] for part in parts) == 100
    last = 0
    for part in parts:
        data = (tmp_path / "out" / part["name"]).read_bytes()
        assert (part["size"], part["checksum"]) == (len(data), zlib.crc32(data))
        assert part["first_line"] == last + 1
        last = part["last_line"]
    assert last == 100


def test_a_folder_of_parts_is_an_input(source, tmp_path):
    source.write_text(source.read_text() + "{\n")
    score(source, tmp_path / "out")
    names = [path.rpartition("/")[2] for path in input_files(str(tmp_path / "out")) or []]
    assert names == sorted(path.name for path in (tmp_path / "out").glob("part-?????.jsonl"))
    rows = content(tmp_path / "out").count(b"\n")
    again = score(tmp_path / "out", tmp_path / "again.jsonl", output_format="file")
    assert again.totals.rows == rows


def test_resume_keeps_complete_parts_and_refuses_changes(source, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Interruption):
            score(source, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert len(before) == 3
    with pytest.raises(UsageError, match="keep_evidence was 'False' and is 'True'"):
        score(source, folder, resume=True, keep_evidence=True)
    damaged = folder / "part-00001.jsonl"
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"012345678")
    score(source, folder, resume=True)
    unchanged = [path.name for path, time in before.items() if path.stat().st_mtime_ns == time]
    assert sorted(unchanged) == ["part-00000.jsonl", "part-00002.jsonl"]
    score(source, tmp_path / "whole")
    assert content(folder) == content(tmp_path / "whole")
    damaged.write_bytes(b"")
    with pytest.raises(UsageError, match=r"part-00001\.jsonl has changed since it was written"):
        score(source, folder, resume=True)
    source.write_text(source.read_text() + "{}\n")
    with pytest.raises(UsageError, match=r"in\.jsonl has changed"):
        score(source, folder, resume=True)


def test_a_new_run_removes_the_parts_of_an_earlier_one(source, tmp_path):
    score(source, tmp_path / "out")
    lines = source.read_text().splitlines()
    source.write_text("\n".join(lines[:8]) + "\n")
    score(source, tmp_path / "out")
    score(source, tmp_path / "new")
    assert files(tmp_path / "out") == files(tmp_path / "new")


def test_a_new_run_is_interrupted_while_it_removes_earlier_files(source, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "shard_bytes", lambda files, workers: 10_000)
    lines = source.read_text().splitlines()
    earlier, folder = tmp_path / "earlier.jsonl", tmp_path / "out"
    earlier.write_text("\n".join(["{", *lines, "{"]) + "\n")
    source.write_text("\n".join(lines[:8]) + "\n")
    score(source, tmp_path / "new")
    expected, interruptions = files(tmp_path / "new"), 0
    while True:
        score(earlier, folder)
        parts = len(list(folder.glob("part-*")))
        removals = itertools.count(-interruptions)
        remove = folder_store.remove_file

        def interrupted(path, removals=removals, remove=remove):
            if next(removals) == 0:
                raise Interruption
            remove(path)

        with monkeypatch.context() as patch:
            patch.setattr(folder_store, "remove_file", interrupted)
            try:
                score(source, folder)
            except Interruption:
                interruptions += 1
            else:
                break
        score(source, folder, resume=True)
        assert files(folder) == expected, interruptions
    assert interruptions > parts


def test_other_files_are_not_removed(source, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("notes.txt", "part-00000.jsonl"):
        (folder / name).write_text("{}\n")
        with pytest.raises(UsageError, match=f"{name} is not a file of an earlier run"):
            score(source, folder)
        assert files(folder) == {name: b"{}\n"}
        (folder / name).unlink()
    score(source, folder)
    with pytest.raises(UsageError, match="would overwrite"):
        score(folder, folder)


def test_a_second_run_is_refused(source, tmp_path, monkeypatch):
    def second(*_):
        with pytest.raises(UsageError, match="another run is writing"):
            score(source, tmp_path / "out")
        raise Interruption

    monkeypatch.setattr(folder_store.FolderStore, "finish", second)
    with pytest.raises(Interruption):
        score(source, tmp_path / "out")


def test_the_first_row_in_error_stops_the_run(source, tmp_path):
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines[:40], "{", *lines[40:]]) + "\n")
    run = score(source, tmp_path / "out", on_error="stop")
    assert "line 37" in run.stopped_by
    assert run.totals.rows == content(tmp_path / "out").count(b"\n")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("source", "output", "options"),
    [
        ("in.jsonl", "-", {}),
        ("in.jsonl", None, {}),
        ("in.jsonl", "out.parquet", {}),
        ("in.jsonl", "out.jsonl.gz", {}),
        ("in.jsonl", "out", {"sort": True}),
    ],
)
def test_what_has_no_parts_is_refused(source, output, options):
    with pytest.raises(OptionError, match=r"^output_format parts"):
        ScoreOptions(source, output, output_format="parts", **options)


@pytest.mark.parametrize("name", ["in.jsonl.gz", "-"])
def test_an_input_that_only_one_reader_can_read(source, tmp_path, monkeypatch, name):
    score(source, tmp_path / "expected")
    data, folder = source.read_bytes(), tmp_path / "out"
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(data))

    def score_again(**options):
        monkeypatch.setattr(sys, "stdin", stdin_of(data))
        return score("-" if name == "-" else packed, folder, **options)

    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Interruption):
            score_again()
    assert not score_again(resume=True).was_complete
    assert content(folder) == content(tmp_path / "expected")
    assert not (folder / "_run").exists()
    assert score_again(resume=True).was_complete
    data = data.replace(b"It is", b"It Is", 1)
    if name == "-":
        with pytest.raises(UsageError, match="the input has changed"):
            score_again(resume=True)

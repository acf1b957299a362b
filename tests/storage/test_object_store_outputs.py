"""Outputs in object stores: bytes, formats, errors, failures of the upload, and `--resume`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from object_store import object_store

from rag_rewards.files import output as output_module
from rag_rewards.scoring import run as shard_run
from rag_rewards.scoring.options import OutputError, ScoreOptions
from rag_rewards.scoring.score_file import score_file

ROW = {"response": "<think>…</think><answer>Seine</answer>", "answers": ["Seine"]}


@pytest.fixture(scope="module")
def bucket():
    with object_store() as bucket:
        yield bucket


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


@pytest.fixture
def rows(tmp_path):
    lines = [json.dumps(ROW | {"id": str(i)}) + "\n" for i in range(3000)]
    lines[1500] = json.dumps({"id": "1500", "response": "x"}) + "\n"
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(lines))
    return str(path)


def score(source, output, **options):
    return score_file("naive-grpo", ScoreOptions(source, output, **options))


def staged_files(tmp_path):
    return [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_equal_bytes(bucket, rows, tmp_path, name, workers, monkeypatch):
    monkeypatch.setattr(shard_run, "shard_bytes", lambda files, workers: 100_000)
    local = str(tmp_path / name)
    score(rows, local)
    run = score(
        bucket.write("in/rows.jsonl", Path(rows).read_bytes()), bucket.url(name), workers=workers
    )
    assert (run.totals.rows, run.totals.errors) == (2999, 1)
    assert bucket.read(name) == Path(local).read_bytes()
    errors = Path(f"{local}.errors.jsonl").read_bytes()
    assert bucket.read(f"{name}.errors.jsonl") == errors
    assert not staged_files(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_part_files(bucket, rows, tmp_path, workers, monkeypatch):
    monkeypatch.setattr(shard_run, "shard_bytes", lambda files, workers: 100_000)
    local, name = tmp_path / "parts", f"parts-{workers}"
    score(rows, str(local), output_format="parts")
    source = bucket.write("in/rows.jsonl", Path(rows).read_bytes())
    run = score(source, bucket.url(name), output_format="parts", workers=workers)
    assert (run.totals.rows, run.totals.errors) == (2999, 1)
    parts = {path.name: path.read_bytes() for path in local.glob("part-*")}
    assert len(parts) == 4
    assert bucket.keys(f"{name}/part-") == [f"{name}/{part}" for part in sorted(parts)]
    assert all(bucket.read(f"{name}/{part}") == data for part, data in parts.items())
    assert not [key for key in bucket.keys(f"{name}/_run/") if not key.endswith("/")]
    assert not staged_files(tmp_path)
    again = score(source, bucket.url(name), output_format="parts", resume=True)
    assert again.was_complete


def test_errors_of_an_earlier_run_are_removed(bucket, rows, tmp_path):
    score(rows, bucket.url("clean/out.jsonl"))
    assert "clean/out.jsonl.errors.jsonl" in bucket.keys("clean/")
    valid = tmp_path / "valid.jsonl"
    valid.write_text(json.dumps(ROW))
    score(str(valid), bucket.url("clean/out.jsonl"))
    assert "clean/out.jsonl.errors.jsonl" not in bucket.keys("clean/")


def test_a_complete_output_is_not_scored_again(bucket, rows):
    assert not score(rows, bucket.url("again.jsonl"), resume=True).was_complete
    assert score(rows, bucket.url("again.jsonl"), resume=True).was_complete


def test_an_upload_that_fails_is_repeated(bucket, rows, tmp_path, monkeypatch):
    def fail(source, path):
        raise OSError(5, "the network is down", path)

    url = bucket.url("repeated.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(output_module, "upload", fail)
        with pytest.raises(OutputError, match=f"cannot write {url}: the network is down"):
            score(rows, url)
    assert "repeated.jsonl" not in bucket.keys("repeated")
    assert score(rows, url, resume=True).was_complete
    score(rows, str(tmp_path / "local.jsonl"))
    assert bucket.read("repeated.jsonl") == (tmp_path / "local.jsonl").read_bytes()


def test_a_bucket_that_does_not_exist(bucket, rows):
    with pytest.raises(OutputError, match=r"cannot write s3://no-such-bucket/out.jsonl"):
        score(rows, "s3://no-such-bucket/out.jsonl")
    assert os.environ["AWS_SECRET_ACCESS_KEY"]

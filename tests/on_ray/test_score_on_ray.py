"""`score --engine ray` on a cluster of several nodes: the bytes of the local engine, and kills."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import Bucket, object_store
from processes import end, finish, wait_for
from ray_nodes import RayNodes, ray_nodes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "rag_rewards" / "tiny_world" / "checkpoint"
SLOW_REWARD = """
import time
from pathlib import Path

HELD = Path(__file__).with_name("held")

def brief(rollout):
    time.sleep(0.001)
    while rollout.id == "5999" and HELD.exists():
        time.sleep(0.01)
    return float(len(rollout.response))

def fatal(rollout):
    import os
    os._exit(7)
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with object_store() as bucket:
        yield bucket


@pytest.fixture(scope="module")
def nodes(bucket: Bucket) -> Iterator[RayNodes]:
    with ray_nodes(2, bucket.environment) as nodes:
        yield nodes


class Run:
    """A process of `rag-rewards score`."""

    def __init__(self, nodes: RayNodes, folder: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", "rag_rewards", "score", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=folder, env=nodes.environment, stderr=subprocess.PIPE, text=True
        )

    def end(self, code: int | None = 0) -> str:
        _, errors = finish(self.process)
        assert "Traceback" not in errors
        assert code is None or self.process.returncode == code, errors
        return errors

    def stop(self) -> None:
        """Kill the process, if it has not ended, and close its pipe."""
        end(self.process)


def on_ray(nodes: RayNodes, workers: int = 2) -> list[object]:
    return ["--engine", "ray", "--ray-address", nodes.address, "--workers", workers]


def rows(count: int, *, group: int = 4, invalid: int | None = None) -> bytes:
    """Return rows of 1 KB each; `invalid` is a row without its gold answers."""
    lines = []
    for i in range(count):
        row = {
            "id": str(i),
            "group": f"g{i // group}",
            "documents": [{"text": f"Document {i}. " * 60}],
            "supporting": [1],
            "answers": ["Seine"],
            "response": f"<relevance>[1]</relevance><analysis>{i}</analysis><answer>Seine</answer>",
        }
        if i == invalid:
            del row["answers"]
        lines.append(json.dumps(row) + "\n")
    return "".join(lines).encode()


def wait_for_parts(output: Path, count: int) -> None:
    """Wait until workers have completed parts of an output, also those that it already contains."""
    folder = output.with_name(f"{output.name}.run")

    def is_complete() -> bool:
        journal = folder / "journal.jsonl"
        return journal.exists() and journal.read_bytes().count(b"\n") > count

    wait_for(is_complete)


def equal_files(folder: Path, one: str, other: str) -> None:
    for suffix in ("", ".errors.jsonl"):
        files = [folder / f"{name}{suffix}" for name in (one, other)]
        contents = [file.read_bytes() if file.exists() else None for file in files]
        assert contents[0] == contents[1]


@contextlib.contextmanager
def slow_run(nodes: RayNodes, folder: Path) -> Iterator[tuple[list[object], Run]]:
    """Score rows to `local`, and start a run on Ray to `ray` that scores slowly.

    Yields the arguments and the process of the second run, which has completed a part. The run
    cannot end before `release`, because the last row waits for it.
    """
    (folder / "rows.jsonl").write_bytes(rows(6000))
    (folder / "slow.py").write_text(SLOW_REWARD)
    arguments: list[object] = ["rows.jsonl", "-r", "slow.py:brief", "-o"]
    Run(nodes, folder, *arguments, "local", "--workers", 2).end()
    (folder / "held").touch()
    arguments += ["ray", *on_ray(nodes)]
    run = Run(nodes, folder, *arguments)
    try:
        wait_for_parts(folder / "ray", 1)
        yield arguments, run
    finally:
        release(folder)
        run.stop()


def release(folder: Path) -> None:
    """Let the run of `slow_run` end."""
    (folder / "held").unlink(missing_ok=True)


def joined_parts(folder: Path, suffix: str = "") -> bytes:
    files = sorted(folder.glob(f"part-?????{suffix}.jsonl"))
    return b"".join(file.read_bytes() for file in files)


def test_the_same_bytes_as_the_local_engine(nodes: RayNodes, tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    data = rows(2000, invalid=1000)
    half = len(data[: len(data) // 2].rpartition(b"\n")[0]) + 1
    (tmp_path / "rows.jsonl").write_bytes(data)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.jsonl").write_bytes(data[:half])
    (tmp_path / "folder" / "b.jsonl").write_bytes(data[half:])
    pq.write_table(
        pa.Table.from_pylist([json.loads(line) for line in data.splitlines()]),
        tmp_path / "rows.parquet",
        row_group_size=500,
    )
    for source in ("folder", "rows.parquet"):
        Run(nodes, tmp_path, source, "-r", "arena", "-o", "local").end(3)
        log = Run(nodes, tmp_path, source, "-r", "arena", "-o", "ray", *on_ray(nodes)).end(3)
        assert "1,999 scored, 1 in error" in log
        equal_files(tmp_path, "local", "ray")


def test_part_files(nodes: RayNodes, tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rows(8000, invalid=2500))
    parts = ["--output-format", "parts"]
    Run(nodes, tmp_path, "rows.jsonl", "-r", "arena", "-o", "local").end(3)
    Run(nodes, tmp_path, "rows.jsonl", "-r", "arena", "-o", "ray", *parts, *on_ray(nodes)).end(3)
    names = sorted(path.name for path in (tmp_path / "ray").iterdir())
    assert names[0] == "manifest.json"
    assert len(names) > 4
    assert joined_parts(tmp_path / "ray") == (tmp_path / "local").read_bytes()
    errors = (tmp_path / "local.errors.jsonl").read_bytes()
    assert joined_parts(tmp_path / "ray", ".errors") == errors


def test_files_without_rows(nodes: RayNodes, tmp_path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "part-00000.jsonl").write_bytes(b"")
    (tmp_path / "folder" / "part-00001.jsonl").write_bytes(rows(4))
    for source, count in (("empty.jsonl", 0), ("folder", 4)):
        Run(nodes, tmp_path, source, "-r", "arena", "-o", "local").end()
        log = Run(nodes, tmp_path, source, "-r", "arena", "-o", "ray", *on_ray(nodes, 1)).end()
        assert f"{count} scored, 0 in error" in log
        equal_files(tmp_path, "local", "ray")


def test_from_an_object_store_to_an_object_store(nodes: RayNodes, bucket: Bucket, tmp_path) -> None:
    data = rows(4000, invalid=2500)
    source = bucket.write("rows.jsonl", data)
    (tmp_path / "rows.jsonl").write_bytes(data)
    Run(nodes, tmp_path, "rows.jsonl", "-r", "arena", "-o", "local").end(3)
    expected = [(tmp_path / name).read_bytes() for name in ("local", "local.errors.jsonl")]
    url = bucket.url("scored.jsonl")
    Run(nodes, tmp_path, source, "-r", "arena", "-o", url, *on_ray(nodes)).end(3)
    assert [bucket.read("scored.jsonl"), bucket.read("scored.jsonl.errors.jsonl")] == expected
    parts = ["-o", bucket.url("parts"), "--output-format", "parts"]
    Run(nodes, tmp_path, source, "-r", "arena", *parts, *on_ray(nodes)).end(3)
    names = bucket.keys("parts/part-")
    assert len(names) > 3
    for content, is_error in zip(expected, (False, True), strict=True):
        part_names = [name for name in names if name.endswith(".errors.jsonl") is is_error]
        assert b"".join(map(bucket.read, part_names)) == content
    assert bucket.keys("parts/manifest.json")
    for folder in ("scored.jsonl.run/", "parts/_run/"):
        assert not [key for key in bucket.keys(folder) if not key.endswith("/")]


def test_groups_are_whole_and_models_run_in_the_workers(nodes: RayNodes, tmp_path) -> None:
    source = ROOT / "examples" / "tiny-world.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    copies = [
        json.dumps({**json.loads(line), "id": f"{i}-{j}", "group": f"copy-{i}"}) + "\n"
        for i in range(4)
        for j, line in enumerate(lines)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(copies))
    model = ("--model", CHECKPOINT, "--set", "models.document_form={text} [{label}] .")
    arguments = [
        "rows.jsonl",
        "-r",
        "ctrl-rag",
        *model,
        "--set",
        "models.document_separator= ",
        "-o",
    ]
    local = Run(nodes, tmp_path, *arguments, "local").end(None)
    log = Run(nodes, tmp_path, *arguments, "ray", *on_ray(nodes)).end(None)
    signature = next(line for line in local.splitlines() if line.startswith("rag-rewards "))
    assert "policy" in signature
    assert signature in log.splitlines()
    equal_files(tmp_path, "local", "ray")


def test_a_killed_worker_and_a_killed_node(nodes: RayNodes, tmp_path) -> None:
    with slow_run(nodes, tmp_path) as (_, run):
        nodes.workers("RayWorker")[0].kill()
        wait_for_parts(tmp_path / "ray", 3)
        os.kill(nodes.raylets.pop(), signal.SIGKILL)
        nodes.add()
        release(tmp_path)
        log = run.end()
    assert "6,000 scored, 0 in error" in log
    equal_files(tmp_path, "local", "ray")


def test_a_killed_run_continues(nodes: RayNodes, tmp_path) -> None:
    with slow_run(nodes, tmp_path) as (arguments, run):
        run.process.kill()
        run.end(None)
    assert not (tmp_path / "ray").exists()
    Run(nodes, tmp_path, *arguments, "--resume").end()
    equal_files(tmp_path, "local", "ray")


def test_a_shard_that_ends_every_worker(nodes: RayNodes, tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rows(4))
    (tmp_path / "slow.py").write_text(SLOW_REWARD)
    arguments = ["rows.jsonl", "-r", "slow.py:fatal", "-o", "ray"]
    log = Run(nodes, tmp_path, *arguments, *on_ray(nodes, 1)).end(None)
    assert "4 workers ended at lines 1 to 4" in log
    assert not (tmp_path / "ray").exists()


def test_a_model_that_a_worker_cannot_load(nodes: RayNodes, tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rows(4))
    arguments = ["rows.jsonl", "-r", "ctrl-rag", "-o", "ray", "--model", "nothing"]
    log = Run(nodes, tmp_path, *arguments, *on_ray(nodes, 1)).end(2)
    assert "nothing" in log

"""Rows that workers write to the output themselves."""

from __future__ import annotations

import contextlib
import json
import random
import time
from pathlib import Path

import pytest
from interruption import Interruption
from random_rows import row, write_random_input

from rag_rewards.scorer import Scorer
from rag_rewards.scoring import held_part, run
from rag_rewards.scoring.files import InputFile, Piece
from rag_rewards.scoring.held_part import HeldPart
from rag_rewards.scoring.plan import Shard, plan_shards
from rag_rewards.scoring.positions import Positions
from rag_rewards.scoring.run_folder import RunFolder
from rag_rewards.scoring.score import Part, ShardJob, ShardTask, grouping_of, score_to_part
from rag_rewards.scoring.score_options import OutputError, ScoreOptions
from rag_rewards.scoring.worker_process import WorkerProcess


def part(index: int, rows: int) -> Part:
    return Part(shard=Shard(index, (Piece(0, 0, 1, 10 * index, 10),)), rows=rows)


def test_a_position_is_known_when_all_earlier_shards_are_scored():
    positions = Positions(3, 100)
    assert positions.take(part(4, 7)) is None
    assert positions.take(part(3, 20)) == 100
    assert positions.take(part(5, 1)) == 127
    positions.add(part(6, 50))
    assert positions.take(part(7, 2)) == 178
    placed = [positions.is_in_output(part(index, 0)) for index in range(3, 8)]
    assert placed == [True, False, True, False, True]


def test_a_shard_that_is_scored_again_has_the_same_position():
    positions = Positions(0, 0)
    assert [positions.take(part(0, 5)), positions.take(part(0, 5))] == [0, 0]
    with pytest.raises(OutputError, match="lines 1 to 10 have other scores after a worker"):
        positions.take(part(0, 6))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = random.Random(1)
    path = tmp_path / "in.jsonl"
    lines = [json.dumps(row(i, f"g{i}", rng)) for i in range(300)]
    lines[100] = "{"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("limit", [100, 1 << 26])
def test_a_part_in_memory_has_the_rows_of_part_files(source, tmp_path, monkeypatch, limit):
    """Many rows are in a temporary file instead."""
    monkeypatch.setattr(held_part, "HELD_BYTES", limit)
    scorer = Scorer.load("arena")
    files = [InputFile.of(str(source))]
    (shard,) = plan_shards(files, 1 << 20, grouping_of(scorer, ScoreOptions("in.jsonl", None)))
    folders = [tmp_path / name for name in ("files", "held", "output")]
    for folder in folders:
        folder.mkdir()
    output = tmp_path / "out"
    output.write_bytes(b"0123456789")
    jobs = [ShardJob(files=files, folder=str(folder), partial=str(output)) for folder in folders]
    record = score_to_part(scorer, jobs[0], ShardTask(shard))
    held = [HeldPart(scorer, job, ShardTask(shard)) for job in jobs[1:]]
    assert [each.part for each in held] == [record, record]
    held[0].write_to_files()
    names = sorted(path.name for path in folders[0].iterdir())
    assert sorted(path.name for path in folders[1].iterdir()) == names
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    held[1].write_to_output(5)
    rows = (folders[0] / "000000.jsonl").read_bytes()
    assert output.read_bytes() == b"01234" + rows
    errors = "000000.errors.jsonl"
    assert [path.name for path in folders[2].iterdir()] == [errors]
    assert (folders[2] / errors).read_bytes() == (folders[0] / errors).read_bytes()
    for each in held:
        each.close()


@pytest.mark.parametrize("seed", range(4))
def test_rows_in_part_files_and_in_the_output(tmp_path, score, shard_size, monkeypatch, seed):
    """Whether a position is known depends on the order in which shards are complete."""
    source = write_random_input(tmp_path, random.Random(seed), groups=60)
    shard_size(3000)
    expected = score(source, "arena")
    take, copies, copy, placed = Positions.take, [], run._copy, []

    def one_of_three(positions, of):
        if of.index % 3 == 0:
            return positions.add(of)
        while (position := take(positions, of)) is None:
            time.sleep(0.001)  # another worker scores an earlier shard
        placed.append(of.index)
        return position

    def counted(name, *arguments):
        copies.append(name)
        copy(name, *arguments)

    monkeypatch.setattr(Positions, "take", one_of_three)
    monkeypatch.setattr(run, "_copy", counted)
    assert score(source, "arena", "workers.jsonl", workers=2)[:2] == expected[:2]
    of_rows = sorted(int(Path(name).stem) for name in copies if "errors" not in name)
    assert sorted(of_rows + placed) == list(range(len(of_rows) + len(placed)))
    assert len(placed) >= len(of_rows)


def test_a_worker_ends_before_it_has_written_rows(source, score, shard_size, monkeypatch):
    shard_size(10_000)
    expected = score(source, "arena")
    ask, ended = WorkerProcess.ask, []

    def killed(worker, message, *body):
        if hasattr(message, "position") and len(ended) < 2:
            ended.append(message.position)
            worker.kill()
        return ask(worker, message, *body)

    monkeypatch.setattr(WorkerProcess, "ask", killed)
    assert score(source, "arena", "workers.jsonl", workers=2)[:2] == expected[:2]
    assert len(ended) == 2


def test_an_interrupted_run_keeps_only_the_rows_before_the_first_gap(
    source, score, shard_size, monkeypatch, tmp_path
):
    shard_size(10_000)
    expected = score(source, "arena")
    add, parts = RunFolder.add, []

    def interrupted(folder, part):
        if len(parts) == 3:
            raise Interruption
        parts.append(part)
        add(folder, part)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", interrupted)
        with pytest.raises(Interruption):
            score(source, "arena", "workers.jsonl", workers=2)
    partial = (tmp_path / "workers.jsonl.partial").read_bytes()
    assert len(partial) == sum(part.rows for part in parts)
    assert expected.rows.startswith(partial)
    assert score(source, "arena", "workers.jsonl", workers=2, resume=True)[:2] == expected[:2]


def test_a_worker_of_an_earlier_run_cannot_write_to_the_output_of_a_new_run(
    source, score, shard_size, monkeypatch, tmp_path
):
    """A killed command leaves workers that end a moment later."""
    shard_size(10_000)
    expected = score(source, "arena")
    add, held = RunFolder.add, []

    def interrupted(folder, part):
        if part.index:
            raise Interruption
        scorer = Scorer.load("naive-grpo")
        job = ShardJob(files=folder.settings.files, folder=str(tmp_path), partial=folder.partial)
        held.append(HeldPart(scorer, job, ShardTask(part.shard)))
        add(folder, part)

    def late(folder, part):
        add(folder, part)
        while held:
            with contextlib.closing(held.pop()) as stale:
                stale.write_to_output(0)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", interrupted)
        with pytest.raises(Interruption):
            score(source, "arena", "workers.jsonl", workers=2)
    assert (tmp_path / "workers.jsonl.partial").stat().st_size
    monkeypatch.setattr(RunFolder, "add", late)
    assert score(source, "arena", "workers.jsonl", workers=2)[:2] == expected[:2]

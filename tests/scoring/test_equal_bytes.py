"""The output of shards equals that of one reader, also after interruptions."""

from __future__ import annotations

import json
import random
import sys

import pytest
from command_line import stdin_of
from interruption import Interruption, interrupt
from random_rows import row, write_random_input

SIZES = [1, 200, 1000, 3000, 10_000]


def options_of(rng, recipe):
    if recipe == "arena":
        return {}
    return rng.choice([{}, {}, {"group_size": rng.choice([1, 2, 3, 7])}])


@pytest.mark.parametrize("seed", range(20))
def test_one_process(tmp_path, score, read_once, shard_size, monkeypatch, seed):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng)
    recipe = rng.choice(["ctrl-rag", "lear", "arena"])
    options = options_of(rng, recipe)
    shard_size(rng.choice(SIZES))
    rows, errors = read_once(source, recipe, **options)
    whole = score(source, recipe, **options)
    assert whole[:2] == (rows, errors)
    with monkeypatch.context() as patch:
        interrupt(patch, rng.randrange(1, 10))
        try:
            score(source, recipe, "resumed.jsonl", resume=True, **options)
        except Interruption:
            assert not (tmp_path / "resumed.jsonl").exists()
    resumed = score(source, recipe, "resumed.jsonl", resume=True, **options)
    assert resumed[:2] == (rows, errors)
    assert resumed.run.totals == whole.run.totals
    again = score(source, recipe, "resumed.jsonl", resume=True, **options)
    assert again.run.was_complete
    assert again.run.totals == whole.run.totals


@pytest.mark.parametrize(("seed", "recipe"), [(0, "ctrl-rag"), (1, "arena"), (2, "ctrl-rag")])
def test_workers(tmp_path, score, read_once, shard_size, monkeypatch, seed, recipe):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng, groups=60)
    options = options_of(rng, recipe)
    shard_size(3000)
    rows_and_errors = read_once(source, recipe, **options)
    with monkeypatch.context() as patch:
        interrupt(patch, rng.randrange(1, 6))
        try:
            score(source, recipe, workers=2, resume=True, **options)
        except Interruption:
            assert not (tmp_path / "out.jsonl").exists()
    resumed = score(source, recipe, workers=seed + 1, resume=True, **options)
    assert resumed[:2] == rows_and_errors
    assert not (tmp_path / "out.jsonl.run").exists()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{"sort": True}, {}])
def test_a_copied_input(tmp_path, score, read_once, shard_size, monkeypatch, options, seed):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng)
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("in.*")))
    shard_size(500)
    monkeypatch.setattr("rag_rewards.files.sources.CHUNK_ROWS", 7)
    if not options:
        source = "-"

    def with_input(function, *arguments, **keywords):
        monkeypatch.setattr(sys, "stdin", stdin_of(data))
        return function(source, "ctrl-rag", *arguments, **options, **keywords)

    rows, errors = with_input(read_once)
    with monkeypatch.context() as patch:
        interrupt(patch, rng.randrange(1, 8))
        try:
            with_input(score, resume=True)
        except Interruption:
            assert not (tmp_path / "out.jsonl").exists()
    resumed = with_input(score, resume=True)
    whole = with_input(score, "whole.jsonl")
    assert resumed[:2] == whole[:2] == (rows, errors)
    assert resumed.run.totals == whole.run.totals


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (1, 2), (2, 1)])
def test_sorted_groups_have_the_scores_of_a_sorted_file(
    tmp_path, score, read_once, shard_size, seed, workers
):
    rng = random.Random(seed)
    rows = [row(i, f"g{i % 20}", rng) | {"id": str(i)} for i in range(100)]
    mixed, in_groups = tmp_path / "mixed.jsonl", tmp_path / "groups.jsonl"
    mixed.write_text("".join(json.dumps(each) + "\n" for each in rows))
    in_groups.write_text(
        "".join(json.dumps(each) + "\n" for each in sorted(rows, key=lambda row: row["group"]))
    )
    shard_size(3000)
    result = score(mixed, "ctrl-rag", sort=True, workers=workers)
    scored, _ = read_once(in_groups, "ctrl-rag")
    assert sorted(result.rows.splitlines()) == sorted(scored.splitlines())
    ids = [int(json.loads(line)["id"]) for line in result.rows.splitlines()]
    assert ids == sorted(ids)
    assert read_once(mixed, "ctrl-rag", sort=True, workers=workers)[0] == result.rows

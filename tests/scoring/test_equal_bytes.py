"""The output of shards equals that of one reader, also after interruptions."""

from __future__ import annotations

import random
import sys

import pytest
from command_line import stdin_of
from interruption import Interruption, interrupt
from random_rows import write_random_input

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


@pytest.mark.parametrize("recipe", ["arena", "ctrl-rag"])
@pytest.mark.parametrize("seed", range(3))
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
def test_a_stream(tmp_path, score, read_once, monkeypatch, options, seed):
    rng = random.Random(seed)
    source = write_random_input(tmp_path, rng)
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("in.*")))
    monkeypatch.setattr("rag_rewards.scoring.reader.MIN_BYTES", 500)
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
    assert resumed[:2] == whole[:2]
    assert resumed.run.totals == whole.run.totals
    assert resumed.errors == errors
    if options:  # the twin yields the rows of a group together
        assert sorted(resumed.rows.splitlines()) == sorted(rows.splitlines())
    else:
        assert resumed.rows == rows

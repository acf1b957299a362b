"""Groups: an error of one rollout is an error of its group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_rewards.rows.line_groups import KeyDigests
from rag_rewards.scoring import run as shard_run

BROKEN = b'{"response": "torn'


@pytest.fixture
def score(cli, write, tmp_path):
    """Score rows with ctrl-rag. Return the ids of scored rows and the records of rows in error."""

    def run(rows, *options, stdin=False):
        path, out = write(rows), tmp_path / "out.jsonl"
        source = "-" if stdin else path
        data = path.read_bytes() if stdin else b""
        result = cli("score", source, "-r", "ctrl-rag", "-o", out, *options, stdin=data)
        errors = tmp_path / "out.jsonl.errors.jsonl"
        records = errors.read_text().splitlines() if errors.exists() else []
        scored = [json.loads(line)["id"] for line in out.read_text().splitlines()]
        assert result.code == (3 if records else 0)
        return scored, [json.loads(line) for line in records]

    return run


def named(likely, names):
    """Return a row for each word. The id is the word, the group its first letter."""
    return [likely(id=name, group=name[0]) for name in names.split()]


def test_complete_groups(score, likely):
    assert score(named(likely, "a1 a2 b1 b2")) == (["a1", "a2", "b1", "b2"], [])


def test_an_invalid_row_fails_its_group(score, likely):
    rows = [*named(likely, "a1 a2"), likely(id="b1", group="b", answers=""), *named(likely, "b2 c")]
    scored, errors = score(rows)
    assert scored == ["a1", "a2", "c"]
    assert [(e["line"], e["error"]["type"]) for e in errors] == [
        (3, "DataError"),
        (4, "GroupError"),
    ]
    assert "contains no answer" in errors[1]["error"]["message"]


def test_an_incomplete_row_with_a_group(score, likely):
    rows = named(likely, "a1 a2 b1 b2")
    rows[1] = json.dumps(rows[1])[:-5]
    scored, errors = score(rows)
    assert scored == ["b1", "b2"]
    assert [e["error"]["type"] for e in errors] == ["GroupError", "RowError"]


@pytest.mark.parametrize(
    ("at", "scored"), [(0, "b1 b2"), (1, "b1 b2"), (2, ""), (3, "a1 a2"), (4, "a1 a2")]
)
def test_an_incomplete_row_without_a_group_fails_adjacent_groups(score, likely, at, scored):
    rows = named(likely, "a1 a2 b1 b2")
    rows.insert(at, BROKEN)
    rows_kept, errors = score(rows)
    assert rows_kept == scored.split()
    assert len(errors) == 5 - len(rows_kept)
    assert any(e["error"]["type"] in ("RowError", "GroupError") for e in errors)


def test_a_group_that_reappears(score, likely):
    scored, errors = score(named(likely, "a1 a2 b1 a3 b2"))
    assert scored == ["a1", "a2", "b1"]
    assert [e["id"] for e in errors] == ["a3", "b2"]
    assert (
        "the rows of group 'a' are not adjacent: sort the file by group"
        in (errors[0]["error"]["message"])
    )
    assert "`sort`" in errors[0]["error"]["message"]


@pytest.mark.parametrize("options", [[], ["--output-format", "parts"], ["--keep-evidence"]])
def test_a_group_that_reappears_after_many_groups(
    cli, write, likely, monkeypatch, tmp_path, options
):
    monkeypatch.setattr(KeyDigests, "IN_MEMORY", 2)
    monkeypatch.setattr(shard_run, "shard_bytes", lambda files, workers: 1)
    source, out = write(named(likely, "a1 a2 b1 b2 c1 d1 e1 a3 f1 b3")), tmp_path / "out"
    cli("score", source, "-r", "ctrl-rag", "-o", out, *options, code=3)
    errors = sorted(out.glob("*.errors.jsonl")) if out.is_dir() else [f"{out}.errors.jsonl"]
    ids = [
        json.loads(line)["id"] for path in errors for line in Path(path).read_text().splitlines()
    ]
    assert ids == ["a3", "b3"]


@pytest.mark.parametrize("stdin", [False, True])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_sort_groups_rows_and_preserves_the_order(score, likely, stdin, ending):
    rows = named(likely, "a1 b1 a2 c1 b2 a3")
    rows.insert(2, b"")
    rows.append(json.dumps(likely(id="c2", group="c")).encode() + ending)
    scored, errors = score(rows, "--sort", stdin=stdin)
    assert scored == "a1 b1 a2 c1 b2 a3 c2".split()
    assert errors == []


def test_sort_gives_the_scores_of_a_sorted_file(cli, write, likely):
    rows = named(likely, "a1 b1 a2 b2 a3")
    for i, row in enumerate(rows):
        row["logprobs"]["full"] = [-0.1 * i] * 3
    mixed = cli("score", write(rows), "-r", "ctrl-rag", "--sort", code=0).rows
    in_order = sorted(rows, key=lambda row: row["group"])
    apart = cli("score", write(in_order), "-r", "ctrl-rag", code=0).rows
    assert {row["id"]: row["reward"] for row in mixed} == {r["id"]: r["reward"] for r in apart}
    assert len({row["reward"] for row in mixed}) > 2


def test_sort_preserves_the_order_of_errors(score, likely):
    rows = [likely(id="b1", group="b", answers=""), *named(likely, "a1 b2 a2")]
    rows.insert(2, b'{"group": "c", "response": "torn')
    scored, errors = score(rows, "--sort")
    assert scored == ["a1", "a2"]
    assert [e["line"] for e in errors] == [1, 3, 4]


def test_sort_and_stop_preserve_scored_rows(cli, write, likely, tmp_path):
    rows = [row for i in range(300) for row in (likely(id=f"{i}", group=f"g{i}"),) * 2]
    rows = [*rows[::2], *rows[1::2], likely(id="bad", group="last", answers="")]
    out = tmp_path / "out.jsonl"
    options = ("--sort", "--on-error", "stop")
    result = cli("score", write(rows), "-r", "ctrl-rag", "-o", out, *options, code=2)
    rows_kept = (tmp_path / "out.jsonl.partial").read_text().splitlines()
    assert len(rows_kept) >= 512
    assert f"{len(rows_kept):,} rows before it are in" in result.err
    assert "line 601 (id bad): DataError" in result.err


def test_rows_without_a_group(score, likely):
    rows = [likely(id="a", group=None), likely(id="b", group=None, question="q"), likely(id="c")]
    scored, errors = score(rows)
    assert scored == ["b", "c"]
    assert (
        "the row has neither `group` nor `question`: add one of them, or set the group size"
        in (errors[0]["error"]["message"])
    )


def test_group_size(score, likely):
    rows = [likely(id=str(i), group=None) for i in range(5)]
    scored, errors = score(rows, "--group-size", "2")
    assert scored == ["0", "1", "2", "3"]
    assert [e["error"]["message"] for e in errors] == [
        "the last group is incomplete: 1 of 2 rollouts"
    ]


def test_group_size_contradicts_the_groups_of_the_rows(score, likely):
    scored, errors = score(named(likely, "a1 a2 a3 b1 c1 c2"), "--group-size", "2")
    assert scored == ["a1", "a2", "c1", "c2"]
    assert {e["error"]["message"] for e in errors} == {
        "the rows of the group have different keys: 'a' and 'b'"
    }


def test_group_size_with_an_incomplete_row(score, likely):
    rows = named(likely, "a1 a2 b1 b2")
    rows[2] = BROKEN
    scored, errors = score(rows, "--group-size", "2")
    assert scored == ["a1", "a2"]
    assert [e["error"]["type"] for e in errors] == ["RowError", "GroupError"]


def test_stop_names_the_first_row_of_the_group_in_error(cli, write, likely, tmp_path):
    rows = [*named(likely, "a1 a2 b1"), likely(id="b2", group="b", answers="")]
    out = tmp_path / "out.jsonl"
    result = cli("score", write(rows), "-r", "ctrl-rag", "-o", out, "--on-error", "stop", code=2)
    assert "stopped at line 3 (id b1): GroupError" in result.err
    assert "contains no answer" in result.err
    assert "2 rows before it are in" in result.err


def test_groups_of_one_are_scored(score, likely):
    assert score(named(likely, "a b c")) == (["a", "b", "c"], [])


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_do_not_split_groups(cli, write, likely, workers):
    rows = [likely(id=f"{i}.{j}", group=i) for i in range(260) for j in range(3)]
    rows[100]["answers"] = ""
    alone = cli("score", write(rows), "-r", "ctrl-rag", code=3)
    together = cli("score", write(rows), "-r", "ctrl-rag", "--workers", workers, code=3)
    assert together.out == alone.out
    records = [
        [line for line in result.err.splitlines() if line[0] == "{"] for result in (alone, together)
    ]
    assert records[0] == records[1]
    assert len(records[0]) == 3


@pytest.mark.parametrize(
    ("step", "kinds"), [(None, "GroupError DataError"), (3, "GroupError " * 2)]
)
def test_a_curriculum_does_not_split_groups(cli, likely, tmp_path, step, kinds):
    config = tmp_path / "stages.yaml"
    config.write_text("stages: [{recipe: ctrl-rag-clr, until_step: 9}, {recipe: ctrl-rag}]")
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [likely(id=name, group=name[0], step=20) for name in "a1 a2 b1 b2".split()]
    rows[1]["step"] = step
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli("score", path, "--config", config, "-o", out, code=3)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["b1", "b2"]
    errors = (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()
    assert [json.loads(line)["error"]["type"] for line in errors] == kinds.split()

"""Continuation of runs: what is refused, what is replaced, and what remains on the disk."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import sys
from multiprocessing.context import SpawnProcess

import pytest
from command_line import stdin_of
from interruption import Interruption, interrupt
from random_rows import row

from rag_rewards.errors import BackendError, OptionError, UsageError
from rag_rewards.files.output import Output
from rag_rewards.scoring import file_store
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.score_file import score_file

RECIPE = "ctrl-rag"


@pytest.fixture
def source(tmp_path):
    rng = random.Random(1)
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({**row(i, f"g{i // 4}", rng), "id": str(i)}) for i in range(200)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def interrupted(source, score, shard_size, monkeypatch):
    """Return the input of a run that was interrupted after two shards."""
    shard_size(10_000)
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Interruption):
            score(source, RECIPE)
    return source


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_of_an_interrupted_run(interrupted, score, tmp_path):
    assert names(tmp_path) == ["in.jsonl", "out.jsonl.partial", "out.jsonl.run"]
    rows = (tmp_path / "out.jsonl.partial").read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == [str(i) for i in range(len(rows))]
    score(interrupted, RECIPE, resume=True)
    assert names(tmp_path) == ["in.jsonl", "out.jsonl", "out.jsonl.run.json"]


def test_a_resumed_run_scores_no_shard_again(interrupted, score, monkeypatch):
    from rag_rewards.scorer import Scorer

    scored, score_rows = [], Scorer.score_rows

    def counted(scorer, chunk):
        scored.extend(chunk.numbers)
        return score_rows(scorer, chunk)

    monkeypatch.setattr(Scorer, "score_rows", counted)
    result = score(interrupted, RECIPE, resume=True)
    assert result.run.totals.rows == 200
    assert scored == list(range(scored[0], 201))
    assert scored[0] > 50


def test_without_resume_a_run_starts_again(interrupted, score, tmp_path):
    interrupted.write_text(interrupted.read_text() * 2)
    result = score(interrupted, RECIPE)
    assert result.run.totals.rows + result.run.totals.errors == 400
    assert names(tmp_path) == ["in.jsonl", "out.jsonl", "out.jsonl.errors.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_evidence": True}, "keep_evidence was 'False' and is 'True'"),
        ({"columns": "trl"}, "columns was 'None' and is 'trl'"),
        ({"group_size": 4}, "group_size was 'None' and is '4'"),
        ({"on_error": "stop"}, "on_error was 'report' and is 'stop'"),
        ({"sort": True}, "sort was 'False' and is 'True'"),
        ({"recipe": "arena"}, "signature was 'rag-rewards"),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_other_settings_are_refused(interrupted, score, tmp_path, options, message, complete):
    if complete:
        score(interrupted, RECIPE, resume=True)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(UsageError, match="start again without") as raised:
        score(interrupted, resume=True, **{"recipe": RECIPE, **options})
    assert message in str(raised.value)
    assert {path: path.read_bytes() for path in before} == before
    assert score(interrupted, RECIPE, resume=True).run.totals.rows == 200


MINE = "def mine(rollout):\n    return float(len(rollout.parsed.text))\n"


@pytest.mark.parametrize("output_format", ["file", "parts"])
@pytest.mark.parametrize("reference", ["mine.py:mine", "mine:mine", "stages"])
def test_edited_code_of_a_recipe_is_refused(
    source, score_to, monkeypatch, tmp_path, reference, output_format
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    code = tmp_path / "mine.py"
    code.write_text(MINE)
    recipe = reference
    if reference == "stages":
        stages = [{"recipe": "naive-grpo", "until_step": 1}, {"recipe": "mine.py:mine"}]
        recipe = {"stages": stages}
    score_to(source, recipe, output_format, resume=True)
    code.write_text(MINE + "# an edit\n")
    with pytest.raises(UsageError, match=r"code of the recipe was '[0-9a-f]{16}' and is"):
        score_to(source, recipe, output_format, resume=True)
    code.write_text(MINE)
    assert score_to(source, recipe, output_format, resume=True).was_complete


@pytest.fixture
def score_to(tmp_path):
    """Score a source to a file or to a folder of parts."""

    def scored(source, recipe, output_format, **options):
        output = str(tmp_path / f"out-{output_format}")
        options = ScoreOptions(str(source), output, output_format=output_format, **options)
        return score_file(recipe, options)

    return scored


@pytest.mark.parametrize("complete", [False, True])
def test_a_changed_input_is_refused(interrupted, score, complete):
    if complete:
        score(interrupted, RECIPE, resume=True)
    data, status = interrupted.read_bytes(), interrupted.stat()
    interrupted.write_bytes(data + b"{}\n")
    with pytest.raises(UsageError, match=r"in\.jsonl has changed \(it had .* bytes and has"):
        score(interrupted, RECIPE, resume=True)
    interrupted.write_bytes(data)
    with pytest.raises(UsageError, match=r"\(it was written after the run began\)"):
        score(interrupted, RECIPE, resume=True)
    os.utime(interrupted, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert score(interrupted, RECIPE, resume=True).run.totals.rows == 200


def test_a_changed_input_of_equal_size_and_time_is_refused(interrupted, score):
    status = interrupted.stat()
    interrupted.write_bytes(interrupted.read_bytes().replace(b"It is", b"It Is", 1))
    os.utime(interrupted, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UsageError, match="the input has changed"):
        score(interrupted, RECIPE, resume=True)


def test_changed_json_lines_beside_parquet_are_refused(
    source, score, shard_size, monkeypatch, tmp_path
):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow_json = pytest.importorskip("pyarrow.json")
    folder = tmp_path / "in"
    folder.mkdir()
    parquet.write_table(arrow_json.read_json(source), folder / "a.parquet")
    changed = folder / "b.jsonl"
    changed.write_bytes(source.read_bytes().replace(b'"g', b'"h'))
    shard_size(10_000)
    with monkeypatch.context() as patch:
        interrupt(patch, 6)
        with pytest.raises(Interruption):
            score(folder, RECIPE)
    status = changed.stat()
    changed.write_bytes(changed.read_bytes().replace(b"It is", b"It Is"))
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UsageError, match="the input has changed"):
        score(folder, RECIPE, resume=True)


@pytest.mark.parametrize("complete", [False, True])
def test_another_standard_input_is_refused(source, score, shard_size, monkeypatch, complete):
    data = source.read_bytes()

    def resumed(data):
        monkeypatch.setattr(sys, "stdin", stdin_of(data))
        return score("-", RECIPE, resume=True)

    shard_size(10_000)
    if complete:
        resumed(data)
    else:
        with monkeypatch.context() as patch:
            interrupt(patch, 3)
            with pytest.raises(Interruption):
                resumed(data)
    with pytest.raises(UsageError, match="the input has changed: start again without"):
        resumed(data.replace(b"It is", b"It Is", 1))
    result = resumed(data).run
    assert (result.totals.rows, result.was_complete) == (200, complete)


def test_a_changed_output_is_refused(interrupted, score, tmp_path):
    score(interrupted, RECIPE, resume=True)
    (tmp_path / "out.jsonl").write_text("other")
    with pytest.raises(UsageError, match=r"out\.jsonl: it has changed since the run ended"):
        score(interrupted, RECIPE, resume=True)
    (tmp_path / "out.jsonl.run.json").unlink()
    with pytest.raises(UsageError, match=r"it exists without out\.jsonl\.run\.json"):
        score(interrupted, RECIPE, resume=True)


def test_resume_without_an_earlier_run_scores_everything(source, score):
    assert score(source, RECIPE, resume=True).run.totals.rows == 200


@pytest.mark.parametrize("content", ["", "{", "[]", '{"settings": {}}', None])
def test_a_record_without_its_output_is_ignored(source, score, tmp_path, content):
    """`None` is the record of a run whose output was removed."""
    expected = score(source, RECIPE, resume=True).rows
    (tmp_path / "out.jsonl").unlink()
    if content is not None:
        (tmp_path / "out.jsonl.run.json").write_text(content)
    result = score(source, RECIPE, resume=True)
    assert (result.rows, result.run.was_complete) == (expected, False)


def test_a_run_without_resume_removes_the_record_of_an_earlier_run(source, score, tmp_path):
    expected = score(source, RECIPE, resume=True).rows
    assert names(tmp_path) == ["in.jsonl", "out.jsonl", "out.jsonl.run.json"]
    assert score(source, RECIPE).rows == expected
    assert names(tmp_path) == ["in.jsonl", "out.jsonl"]
    with pytest.raises(UsageError, match=r"it exists without out\.jsonl\.run\.json, which"):
        score(source, RECIPE, resume=True)


@pytest.mark.parametrize("output", [None, "-", os.devnull])
def test_resume_requires_an_output_file(output):
    from rag_rewards.scoring.options import ScoreOptions

    with pytest.raises(OptionError, match="resume requires output with the name of a file"):
        ScoreOptions("in.jsonl", output, resume=True)


def test_an_output_that_is_the_input(source, score):
    before = source.read_bytes()
    with pytest.raises(OptionError, match="would overwrite"):
        score(source, RECIPE, source.name, resume=True)
    assert source.read_bytes() == before


@pytest.mark.parametrize("damage", ["rows", "journal", "all"])
def test_damaged_rows_are_scored_again(interrupted, score, tmp_path, damage):
    partial, journal = tmp_path / "out.jsonl.partial", tmp_path / "out.jsonl.run" / "journal.jsonl"
    if damage != "journal":
        data = bytearray(partial.read_bytes())
        data[0 if damage == "all" else len(data) // 2] ^= 1
        partial.write_bytes(data)
    else:
        journal.write_bytes(journal.read_bytes()[:-20])
    result = score(interrupted, RECIPE, resume=True)
    assert result.rows == score(interrupted, RECIPE, "whole.jsonl").rows


@pytest.mark.parametrize("step", ["errors", "output", "record", "folder"])
def test_an_interruption_while_files_are_renamed(source, score, monkeypatch, tmp_path, step):
    source.write_text(source.read_text() + "{\n")
    expected = score(source, RECIPE, "whole.jsonl")
    resume = step == "record"  # other runs leave no record
    if not resume:
        (tmp_path / "out.jsonl").write_text("old")
    (tmp_path / "out.jsonl.errors.jsonl").write_text("old")
    with monkeypatch.context() as patch:
        if step == "output":
            patch.setattr(Output, "_publish", _raise)
        elif step == "errors":
            patch.setattr(file_store, "_move", _raise)
        elif step == "record":
            patch.setattr(file_store, "write_file", _raise)
        else:
            patch.setattr(shutil, "rmtree", lambda path, **_: path.exists() and _raise())
        with pytest.raises(Interruption):
            score(source, RECIPE, resume=resume)
    assert score(source, RECIPE, resume=True)[:2] == expected[:2]
    assert not (tmp_path / "out.jsonl.run").exists()


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
@pytest.mark.parametrize("is_older", [True, False])
def test_rows_that_were_removed_before_they_had_their_name(
    source, score, monkeypatch, tmp_path, name, is_older
):
    expected = score(source, RECIPE, name).rows
    output = tmp_path / name
    output.unlink()
    if is_older:
        output.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(Output, "_publish", _raise)
        with pytest.raises(Interruption):
            score(source, RECIPE, name)
    (tmp_path / f"{name}.partial").unlink()
    resumed = score(source, RECIPE, name, resume=True)
    assert (resumed.rows, resumed.run.was_complete) == (expected, False)


def test_an_error_before_the_first_row_keeps_the_earlier_run(interrupted, score, tmp_path):
    partial = tmp_path / "out.jsonl.partial"
    before = partial.read_bytes()
    (tmp_path / "out.jsonl.run" / "notes.txt").write_text("of a user")
    with pytest.raises(UsageError, match=r"notes\.txt is not a file of a run: rename"):
        score(interrupted, RECIPE)
    assert partial.read_bytes() == before
    assert score(interrupted, RECIPE, resume=True).run.totals.rows == 200


@pytest.mark.parametrize("kind", ["file", "link"])
def test_the_folder_of_a_run_has_the_name_of_something_else(source, score, tmp_path, kind):
    other = tmp_path / "out.jsonl.run"
    other.write_text("") if kind == "file" else other.symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"out\.jsonl\.run is not a file of a run: rename"):
        score(source, RECIPE)


def _raise(*_):
    raise Interruption


ENDING = """
import os
from pathlib import Path

ENDS = Path(__file__).with_name("ends")

def reward(rollout):
    if rollout.id in ("20", "120") and os.getpid() != PARENT:
        ends = ENDS.read_text().split()
        if ends.count(rollout.id) < LIMIT:
            ENDS.write_text(" ".join([*ends, rollout.id]))
            os.kill(os.getpid(), 9)
    return float(len(rollout.parsed.text))
"""
"""A reward that ends the processes of workers at two rows, each time until a limit."""


@pytest.fixture
def ending(tmp_path):
    """Return a recipe whose reward ends a number of workers at each of two rows."""

    def recipe(limit):
        (tmp_path / "ends").write_text("")
        code = f"LIMIT, PARENT = {limit}, {os.getpid()}\n{ENDING}"
        (tmp_path / f"ending_{limit}.py").write_text(code)
        return f"{tmp_path / f'ending_{limit}.py'}:reward"

    return recipe


def test_a_worker_that_ends_is_replaced(source, score, shard_size, ending, tmp_path):
    shard_size(10_000)
    recipe = ending(2)
    expected = score(source, recipe).rows
    assert score(source, recipe, "workers.jsonl", workers=2).rows == expected
    assert sorted((tmp_path / "ends").read_text().split()) == ["120", "120", "20", "20"]


def test_a_shard_at_which_workers_end_repeatedly(source, score, shard_size, ending, tmp_path):
    shard_size(10_000)
    recipe = ending(100)
    message = r"3 scoring workers ended at lines \d+ to \d+: use fewer workers"
    with pytest.raises(BackendError, match=message):
        score(source, recipe, workers=2)
    assert not (tmp_path / "out.jsonl").exists()
    resumed = score(source, recipe, resume=True)
    assert resumed.rows == score(source, recipe, "whole.jsonl").rows


@pytest.mark.parametrize("source", ["rows.jsonl", "rows.jsonl.gz"])
@pytest.mark.parametrize("starts", [0, 1])
def test_workers_that_cannot_be_started(tmp_path, score, shard_size, monkeypatch, source, starts):
    """The system starts `starts` processes."""
    shard_size(1)
    data = b'{"response": "a"}\n' * 9
    (tmp_path / source).write_bytes(gzip.compress(data) if source.endswith(".gz") else data)
    start, count = SpawnProcess.start, iter(range(starts))

    def started(process):
        if next(count, None) is None:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", started)
    message = r"cannot start a scoring worker \(Resource temporarily unavailable\): use fewer"
    with pytest.raises(BackendError, match=message):
        score(tmp_path / source, "arena", workers=2)


@pytest.mark.parametrize("source", ["rows.jsonl", "rows.jsonl.gz"])
def test_workers_whose_reward_prints(tmp_path, score, shard_size, source):
    (tmp_path / "noisy.py").write_text(
        "def reward(rollout):\n    print('a text on standard output', flush=True)\n    return 1.0\n"
    )
    shard_size(1)
    data = b'{"response": "a"}\n' * 3
    (tmp_path / source).write_bytes(gzip.compress(data) if source.endswith(".gz") else data)
    recipe = f"{tmp_path / 'noisy.py'}:reward"
    assert score(tmp_path / source, recipe, workers=2).run.totals.rows == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_shards_before_damage_are_scored(source, score, shard_size, tmp_path, workers):
    expected = score(source, RECIPE, "whole.jsonl").rows
    shard_size(3000)
    damaged = tmp_path / "in.jsonl.gz"
    damaged.write_bytes(gzip.compress(source.read_bytes()) + b"garbage")
    with pytest.raises(UsageError, match="after line 200: the file is damaged"):
        score(damaged, RECIPE, workers=workers)
    # The last shard is left out, because its last group may be incomplete.
    rows = (tmp_path / "out.jsonl.partial").read_bytes()
    assert expected.startswith(rows)
    assert 150 < rows.count(b"\n") < 200

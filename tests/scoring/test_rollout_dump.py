"""Dumps of rollouts: rows that can be scored again, rotation, several processes, and full disks."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import WAIT_SECONDS

import rag_rewards as rr
from rag_rewards.errors import BackendError, OptionError, RolloutError, RowError
from rag_rewards.files.sources import read_rollouts
from rag_rewards.groups import group_by_key, positions_by_key
from rag_rewards.recipes import RECIPES
from rag_rewards.rows import ScoredRow, decode_line
from rag_rewards.rows.decoding import decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.scoring import rollout_dump
from rag_rewards.scoring.rollout_dump import RolloutDump, split_dump
from rag_rewards.scoring.rotating_file import RotatingLines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(name for name in RECIPES if (ROOT / "examples" / f"{name}.jsonl").is_file())


def rows_of(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def rollout(i: int = 0, **fields: Any) -> rr.Rollout:
    response = fields.pop("response", f"<think></think><answer>Seine {i}</answer>")
    return rr.Rollout(response=response, question="Which river?", answers=["Seine"], **fields)


def scorer(path: Path, recipe: str = "naive-grpo", **options: Any) -> Scorer:
    return Scorer.load({"recipe": recipe, "dump": str(path), **options})


# --- rows --------------------------------------------------------------------------------------


def test_a_row_has_the_score_and_the_fields_of_the_rollout(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as scores:
        scores.score_each([rollout(id="q1", step=12, response="<answer>Seine</answer>")])
    [row] = rows_of(path)
    place, _, number = row.pop("id").rpartition(".")
    assert (place.rpartition("/")[0], number) == ("q1/12", "0")
    assert len(row["run"]) == 8
    assert row == {
        "group": f"q1/12/{row['run']}",
        "run": row["run"],
        "response": "<answer>Seine</answer>",
        "question": "Which river?",
        "step": 12,
        "answers": ["Seine"],
        "reward": 1.0,
        "components": {"format": 0.0, "accuracy": 1.0},
        "correct": 1.0,
        "details": row["details"],
        "error": None,
        "signature": str(rr.recipe("naive-grpo").signature),
    }
    assert row["details"]["answer"] == "Seine"


def test_messages_have_no_null_fields(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    chat = [{"role": "assistant", "content": "<answer>Seine</answer>"}]
    row = decode_row({"question": "q", "answers": ["Seine"], "prompt": chat, "response": chat})
    with scorer(path) as scores:
        scores.score_each([row])
    assert rows_of(path)[0]["response"] == chat
    assert rows_of(path)[0]["prompt"] == chat


@pytest.mark.parametrize("recipe", EXAMPLES)
def test_the_rows_of_a_dump_have_the_same_score_again(recipe: str, tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path, recipe) as scores:
        expected = scores.score_each(read_rollouts(str(ROOT / "examples" / f"{recipe}.jsonl")))
    lines = path.read_bytes().splitlines()
    rows = [decode_row(line) for line in lines]
    again = Scorer.load(recipe).score_each(rows)
    order = sorted(range(len(rows)), key=lambda i: int(str(rows[i].id).rpartition(".")[2]))
    assert [again[i] for i in order] == expected
    for line, score in zip(lines, again, strict=True):
        recorded = decode_line(line, rollout_rows())
        assert isinstance(recorded, ScoredRow)
        assert recorded.reward == score.value
        assert recorded.components == score.components


def rollout_rows() -> Any:

    return msgspec.json.Decoder(ScoredRow)


def test_documents_of_searches_are_read_from_the_turns_again(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    text = "<search>a</search><information>Doc 1(Title: A) x</information><answer>x</answer>"
    source = rr.Rollout(response=text, answers=["x"], supporting=["missing"])
    with scorer(path, "search-r1") as scores:
        scores.score_each([source])
    [row] = map(decode_row, path.read_bytes().splitlines())
    assert row.documents == source.documents
    assert row.supporting_labels == source.supporting_labels == ("missing",)


def test_an_unscored_rollout_has_its_error(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as scores:
        scores.score_each([rollout(1), rr.Rollout(response="a", question="?")])
    row = rows_of(path)[1]
    assert (row["reward"], row["components"]) == (None, {"format": None, "accuracy": None})
    assert row["error"] == {"type": "DataError", "message": "missing", "path": "answers"}


def test_a_failed_member_does_not_hide_the_others(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    rows: list[rr.Rollout | RolloutError] = read_rollouts(str(ROOT / "examples/ctrl-rag.jsonl"))
    group: list[Any] = [row for row in rows if row.key == rows[0].key]  # type: ignore[union-attr]
    with scorer(path, "ctrl-rag") as scores:
        scores.score_each([*group, RowError("not JSON")], [range(len(group) + 1)])
    written = rows_of(path)
    assert [row["error"]["type"] for row in written] == ["GroupError"] * len(group)
    assert [row["response"] for row in written] == [row.response for row in group]
    assert scores.dump is not None
    assert scores.dump.missing == 1


def test_the_rollouts_of_a_complete_group_have_a_group_of_their_own(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as scores:
        for _ in range(2):
            batch = [rollout(i, id="q1", step=3) for i in range(4)]
            scores.score_each(batch, [[0, 1], [2, 3]])
        scores.score_each([rollout(id="q1", step=3)])
    rows = rows_of(path)
    groups = [row["group"] for row in rows]
    assert len(set(groups)) == 5
    assert groups[0] == groups[1] != groups[2] == groups[3]
    assert groups[-1] == f"q1/3/{rows[-1]['run']}"
    assert len({row["id"] for row in rows}) == 9


def test_rows_with_one_question_have_groups_of_their_own(tmp_path: Path):
    """Without ids, the prompt, the documents and the gold data distinguish rows."""
    path = tmp_path / "rollouts.jsonl"
    paris, lyon = ([rr.Document(text=f"{town} lies on a river.")] for town in ("Paris", "Lyon"))
    prompts = [[{"role": "user", "content": f"Which river? ({i})"}] for i in range(2)]
    own = [
        {"documents": paris},
        {"documents": lyon},
        {"prompt": prompts[0]},
        {"prompt": prompts[1]},
        {"supporting": ("1",)},
    ]
    with scorer(path) as scores:
        for fields in own * 2:  # the members of a group are in different batches
            scores.score_each([rollout(step=1, **fields)])
    groups = [row["group"] for row in rows_of(path)]
    assert len(set(groups)) == len(own)
    assert groups[: len(own)] == groups[len(own) :]


def test_the_rollouts_of_two_runs_have_groups_of_their_own(tmp_path: Path):
    """Rewards of single rollouts: the members of a group can be in different batches and files."""
    path = tmp_path / "rollouts.jsonl"
    for answer in ("Seine", "Rhone"):
        with scorer(path) as scores:
            for step in (1, 2):
                for _ in range(3):
                    response = f"<answer>{answer}</answer>"
                    scores.score_each([rollout(id="q1", step=step, response=response)])
    rows = [row for file in tmp_path.iterdir() for row in rows_of(file)]
    assert len({row["run"] for row in rows}) == 2
    groups = positions_by_key(row["group"] for row in rows)
    assert [len(members) for members in groups.values()] == [3] * 4
    for members in groups.values():
        assert len({rows[i]["reward"] for i in members}) == 1
    read = list(read_rollouts(str(tmp_path / "rollouts.*jsonl")))
    assert sorted(map(len, group_by_key(read))) == [3] * 4


def test_the_ranks_of_a_launcher_are_one_run(tmp_path: Path):
    """The launcher is a process with two children, as `torchrun` starts them."""
    code = "from rag_rewards.scoring.run_id import new_run_id; print(new_run_id())"
    start = (
        "import os, subprocess, sys\n"
        "for rank in '01':\n"
        "    env = os.environ | {'WORLD_SIZE': '2', 'RANK': rank}\n"
        f"    subprocess.run([sys.executable, '-c', {code!r}], env=env, check=True)\n"
    )

    def launch() -> list[str]:
        command = [sys.executable, "-c", start]
        ran = subprocess.run(command, capture_output=True, check=True, timeout=WAIT_SECONDS)
        return ran.stdout.decode().split()

    first, second = launch(), launch()
    assert len(first) == len(second) == 2
    assert len({*first}) == len({*second}) == 1
    assert first != second


def test_members_with_different_turns_are_in_one_group(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    user = {"role": "user", "content": "Which river?"}
    with scorer(path) as scores:
        for text in ("a", "b"):
            turns = [{"role": "assistant", "content": "look"}, {"role": "tool", "content": text}]
            scores.score_each([rollout(step=1, prompt=[user, *turns])])
    assert len({row["group"] for row in rows_of(path)}) == 1


def test_values_that_json_does_not_have_are_written_as_text_and_numbers(tmp_path: Path):
    class Number(float):
        def tolist(self) -> float:
            return float(self)

    def strange(row: rr.Rollout) -> rr.Score:
        return rr.Score(1.0, {"a": float("nan")}, details={"path": Path("x"), "set": {1}})

    path = tmp_path / "rollouts.jsonl"
    dump = RolloutDump(path)
    prompt = [{"role": "user", "content": [{"type": "image", "image": Path("picture")}]}]
    rows = [rr.Rollout(response="a", prompt=prompt, question="?")]
    dump.add(Scorer.load("naive-grpo"), rows, rows, None, [strange(rows[0])])
    assert dump.flush(WAIT_SECONDS)
    [row] = rows_of(path)
    assert row["details"] == {"path": "x", "set": [1]}
    assert row["components"] == {"format": None, "accuracy": None, "a": None}
    assert row["prompt"][0]["content"][0]["image"] == "picture"


# --- files -------------------------------------------------------------------------------------


def test_a_dump_has_bounded_files_and_no_group_in_two_of_them(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path, dump_mb=0.004, dump_files=3) as scores:
        for step in range(40):
            batch = [rollout(i, id="q", step=step) for i in range(4)]
            scores.score_each(batch, [range(4)])
            assert scores.dump is not None
            assert scores.dump.flush(WAIT_SECONDS)
    names = ["rollouts.1.jsonl", "rollouts.2.jsonl", "rollouts.jsonl"]
    assert sorted(os.listdir(tmp_path)) == names
    groups = []
    for name in ("rollouts.2.jsonl", "rollouts.1.jsonl", "rollouts.jsonl"):
        assert (tmp_path / name).stat().st_size <= 0.004 * (1 << 20)
        groups += [row["group"] for row in rows_of(tmp_path / name)]
    steps = [int(group.split("/")[1]) for group in groups]
    assert steps == sorted(steps)
    assert steps[-1] == 39
    assert all(groups.count(group) == 4 for group in groups)


def test_one_file_is_emptied_when_it_is_full(tmp_path: Path):
    file = RotatingLines(tmp_path / "a.jsonl", 10, 1, "run")
    for text in (b"12345678\n", b"abcdefgh\n"):
        file.emit(logging.makeLogRecord({"msg": text}))
    file.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"abcdefgh\n"
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_new_configuration_of_logging_removes_no_rows(tmp_path: Path):
    """`logging.config` closes the handlers of the process, such as when a server starts."""
    path = tmp_path / "rollouts.jsonl"
    with scorer(path, dump_files=1) as scores:
        for i in range(2):
            scores.score_each([rollout(i)])
            assert scores.dump is not None
            assert scores.dump.flush(WAIT_SECONDS)
            logging.shutdown([weakref.ref(each) for each in scores.dump._writers.values()])
    assert len(rows_of(path)) == 2
    assert os.listdir(tmp_path) == ["rollouts.jsonl"]


def test_the_file_of_an_earlier_run_is_kept(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"response": "unfinished', "utf-8")
    with scorer(path) as scores:
        scores.score_each([rollout()])
    assert len(rows_of(path)) == 1
    assert (tmp_path / "rollouts.1.jsonl").read_text("utf-8") == '{"response": "unfinished'


def test_two_dumps_of_one_process_write_two_files(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with scorer(path) as first, scorer(path) as second:
        first.score_each([rollout(1)])
        assert first.dump is not None
        first.dump.flush(WAIT_SECONDS)
        second.score_each([rollout(2)])
    files = sorted(tmp_path.iterdir())
    assert path in files
    assert [len(rows_of(file)) for file in files] == [1, 1]


def test_threads_that_score_at_once_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The reward workers of verl score rollouts in several threads, from the first one on."""
    start = threading.Barrier(8)
    construct = rollout_dump._Writer

    def construct_together(*arguments: Any) -> Any:
        start.wait(WAIT_SECONDS)
        return construct(*arguments)

    monkeypatch.setattr(rollout_dump, "_Writer", construct_together)
    with scorer(tmp_path / "rollouts.jsonl") as scores:
        threads = [
            threading.Thread(target=scores.score_each, args=([rollout(i)],)) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
    assert os.listdir(tmp_path) == ["rollouts.jsonl"]
    rows = rows_of(tmp_path / "rollouts.jsonl")
    assert len(rows) == len({row["id"] for row in rows}) == 8


def test_a_rank_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with scorer(tmp_path / "rollouts.jsonl") as scores:
        scores.score_each([rollout()])
    assert os.listdir(tmp_path) == ["rollouts.rank3.jsonl"]


def write_rows(dump: RolloutDump, count: int) -> None:
    scores = Scorer.load("naive-grpo", dump=dump)
    for i in range(count):
        scores.score_each([rollout(i, response="<answer>x</answer>" * 50)])
    scores.close()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_several_processes_write_whole_lines_to_their_own_files(method: str, tmp_path: Path):
    dump = RolloutDump(tmp_path / "rollouts.jsonl", max_mb=1)
    write_rows(dump, 1)  # a fork inherits an open file, a lock and no thread
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=write_rows, args=(dump, 60)) for _ in range(3)]
    for process in processes:
        process.start()
    write_rows(dump, 60)
    for process in processes:
        process.join(WAIT_SECONDS)
        assert process.exitcode == 0
    rows = [row for file in tmp_path.iterdir() for row in rows_of(file)]
    assert len(rows) == len({row["id"] for row in rows}) == 241
    assert len({row["run"] for row in rows}) == 1
    assert len(list(tmp_path.iterdir())) == 4


def test_a_process_that_ends_writes_the_rest(tmp_path: Path):
    code = (
        "import rag_rewards as rr\n"
        "from rag_rewards.scorer import Scorer\n"
        "scores = Scorer.load({'recipe': 'naive-grpo', 'dump': 'rollouts.jsonl'})\n"
        "rows = [rr.Rollout(response='a', answers='a', question='?')] * 300\n"
        "for _ in range(10): scores.score_each(rows)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=WAIT_SECONDS)
    assert len(rows_of(tmp_path / "rollouts.jsonl")) == 3000


def test_a_disk_that_hangs_does_not_keep_a_process_from_ending(tmp_path: Path):
    code = (
        "import os, threading\n"
        "import rag_rewards as rr\n"
        "from rag_rewards.scorer import Scorer\n"
        "from rag_rewards.scoring.rollout_dump import RolloutDump\n"
        "hangs, RolloutDump.flush.__defaults__ = threading.Event(), (0.1,)\n"
        "os.write = lambda *_: hangs.set() or threading.Event().wait()\n"
        "scores = Scorer.load({'recipe': 'naive-grpo', 'dump': 'rollouts.jsonl'})\n"
        "scores.score_each([rr.Rollout(response='a', answers='a', question='?')])\n"
        "hangs.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=WAIT_SECONDS)


def test_rows_can_be_read_while_the_process_runs(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    scores = scorer(path)
    for count in range(1, 4):
        scores.score_each([rollout()])
        assert scores.dump is not None
        assert scores.dump.flush(WAIT_SECONDS)
        assert len(rows_of(path)) == count


# --- faults ------------------------------------------------------------------------------------


def test_a_full_disk_is_one_warning_and_is_stated_by_the_next_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "rollouts.jsonl"
    write, is_full = os.write, threading.Event()

    def full(descriptor: int, data: Any) -> int:
        if not is_full.is_set():
            return write(descriptor, data)
        if len(data) > 20:
            return write(descriptor, data[:20])  # a part fits
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    scores = scorer(path)
    for is_set in (False, True, True, False, False):
        (is_full.set if is_set else is_full.clear)()
        results = scores.score_each([rollout(1), rollout(2)])
        assert [result.value for result in results] == [1.0, 1.0]  # type: ignore[union-attr]
        assert scores.dump is not None
        assert scores.dump.flush(WAIT_SECONDS)
    rows = rows_of(path)
    assert [row.get("missing_before") for row in rows] == [None, None, 4, None, None, None]
    assert scores.dump is not None
    assert scores.dump.missing == 4
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "No space left on device" in record.message
    assert "the training goes on" in record.message


def test_a_lost_folder_is_one_warning_and_the_dump_continues_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "run"
    scores = scorer(folder / "rollouts.jsonl")
    for step in range(4):
        if step == 1:
            shutil.rmtree(folder)
        if step == 3:
            folder.mkdir()
        scores.score_each([rollout(step=step)])
        assert scores.dump is not None
        assert scores.dump.flush(WAIT_SECONDS)
    [row] = rows_of(folder / "rollouts.jsonl")
    assert (row["step"], row["missing_before"]) == (3, 2)
    assert len(caplog.records) == 1


def test_a_folder_that_cannot_be_created_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("", "utf-8")
    scores = scorer(tmp_path / "file" / "rollouts.jsonl")
    assert isinstance(scores.score_each([rollout()])[0], rr.Score)
    scores.close()
    assert len(caplog.records) == 1


def test_a_slow_disk_delays_no_scoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "rollouts.jsonl"
    continues, emit = threading.Event(), RotatingLines.emit

    def slow(file: RotatingLines, record: logging.LogRecord) -> None:
        assert continues.wait(WAIT_SECONDS)
        emit(file, record)

    monkeypatch.setattr(RotatingLines, "emit", slow)
    monkeypatch.setattr(rollout_dump, "MAX_WAITING", 8)
    scores = scorer(path)
    for i in range(10):
        scores.score_each([rollout(i), rollout(i)])
    assert scores.dump is not None
    assert not scores.dump.flush(timeout=0.01)
    continues.set()
    assert scores.dump.flush(WAIT_SECONDS)
    scores.score_each([rollout()])
    assert scores.dump.flush(WAIT_SECONDS)
    rows = rows_of(path)
    stated = sum(row.get("missing_before", 0) for row in rows)
    assert stated == scores.dump.missing == 20 - (len(rows) - 1)
    assert 8 <= len(rows) - 1 <= 16


def test_an_error_of_the_models_name_does_not_reach_the_training(tmp_path: Path):
    class Failing:
        scope, reward, models = "rollout", rr.recipe("naive-grpo"), rr.Models()

        @property
        def fingerprints(self) -> dict[str, str]:
            raise BackendError("down")

    dump = RolloutDump(tmp_path / "rollouts.jsonl")
    rows = [rollout()]
    dump.add(Failing(), rows, rows, None, [rr.Score(1.0)])
    assert dump.missing == 1


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dump": "rollouts.parquet"}, "must end in .jsonl"),
        ({"dump": "a.jsonl", "dump_mb": 0}, "dump_mb must be above 0"),
        ({"dump": "a.jsonl", "dump_files": 0}, "dump_files must be at least 1"),
    ],
)
def test_an_invalid_option_is_named_at_once(options: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        Scorer.load({"recipe": "arena", **options})


def test_a_folder_is_no_dump(tmp_path: Path):
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(OptionError, match="not a regular file"):
        RolloutDump(tmp_path / "a.jsonl")


def test_a_mapping_can_contain_a_dump(tmp_path: Path):
    dump = RolloutDump(tmp_path / "rollouts.jsonl")
    assert split_dump({"recipe": "arena", "dump": dump}) == ({"recipe": "arena"}, dump)
    assert split_dump({"recipe": "arena", "dump": None, "dump_mb": 3}) == (
        {"recipe": "arena"},
        None,
    )


def test_a_copy_has_the_same_settings(tmp_path: Path):
    dump = RolloutDump(tmp_path / "rollouts.jsonl", max_mb=3, max_files=2)
    copy = pickle.loads(pickle.dumps(dump))  # noqa: S301
    assert (copy.path, copy.max_mb, copy.max_files) == (dump.path, 3, 2)
    assert not list(tmp_path.iterdir())

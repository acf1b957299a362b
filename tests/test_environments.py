"""Scoring in unusual processes: python -O, locale C, no home, forks, and many threads."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import WAIT_SECONDS

import rag_rewards as rr
from rag_rewards.cli import main
from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TableJudge

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
THREADS = 8


def rollouts(name: str) -> list[rr.Rollout]:
    return [decode_row(line) for line in (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()]


def values(scorer: Scorer, rows: list[rr.Rollout]) -> list[float | None]:
    return [
        result.value if isinstance(result, rr.Score) else None for result in scorer.score_each(rows)
    ]


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["-O"], {}),
        (["-OO"], {}),
        ([], {"LC_ALL": "C", "LANG": "C"}),
        ([], {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ([], {"HOME": None, "USERPROFILE": None, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None}),
    ],
    ids=["-O", "-OO", "locale C", "ASCII", "no home"],
)
def test_a_command_in_an_unusual_environment_writes_the_same_bytes(
    tmp_path: Path, flags: list[str], changes: dict[str, str | None]
) -> None:
    row = {"response": "<answer>Zürich 東京 😀</answer>", "answers": "Zürich 東京 😀"}
    source = tmp_path / ("rows.jsonl" if "PYTHONUTF8" in changes else "zürich.jsonl")
    source.write_text(json.dumps(row, ensure_ascii=False) + "\n", "utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in changes}
    environment |= {name: value for name, value in changes.items() if value is not None}
    usual, unusual = tmp_path / "usual.jsonl", tmp_path / "unusual.jsonl"
    command = ["score", str(source), "-r", "naive-grpo", "-o"]
    ran = subprocess.run(
        [sys.executable, *flags, "-m", "rag_rewards", *command, str(unusual)],
        env=environment,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    assert b"Traceback" not in ran.stderr
    with pytest.raises(SystemExit):
        main([*command, str(usual)])
    assert unusual.read_bytes() == usual.read_bytes()
    assert json.loads(usual.read_bytes())["reward"] is not None


def test_a_missing_library_is_a_skip_and_a_missing_own_module_is_a_failure(tmp_path: Path) -> None:
    for name in ("conftest.py", "properties.py"):
        shutil.copy(Path(__file__).parent / name, tmp_path)
    for i, module in enumerate(["rag_rewards.no_module", "no_library"]):
        (tmp_path / f"test_file_{i}.py").write_text(f"import {module}\n", "utf-8")
        test = f"def test_of_{i}():\n    import {module}\n"
        (tmp_path / f"test_call_{i}.py").write_text(test, "utf-8")
    code = "import sys, pytest; sys.prefix = 'nothing'; pytest.main(sys.argv[1:])"
    options = ["-q", "-rA", "--tb=no", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-c", code, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert "1 failed, 2 skipped, 1 error in" in ran.stdout, ran.stdout + ran.stderr
    assert "FAILED test_call_0.py" in ran.stdout
    assert "ERROR test_file_0.py" in ran.stdout


@pytest.mark.parametrize("recipe", ["arena", "ctrl-rag", "lear", "naive-grpo"])
def test_threads_share_a_scorer(recipe: str) -> None:
    rows = rollouts(recipe)
    expected = values(Scorer.load(recipe), rows)
    shared = Scorer.load(recipe)
    start = threading.Barrier(THREADS)

    def work(_: int) -> list[list[float | None]]:
        start.wait(WAIT_SECONDS)
        return [values(shared, rows) for _ in range(3)]

    with ThreadPoolExecutor(THREADS) as pool:
        for results in pool.map(work, range(THREADS)):
            assert results == [expected] * 3


def judged(thread: int) -> list[rr.Rollout]:
    return [
        decode_row(
            {
                "question": f"q{thread} {i}",
                "response": rf"\boxed{{x{i}}}",
                "answers": f"a{thread}",
            }
        )
        for i in range(20)
    ]


def test_threads_share_a_scorer_with_a_judge() -> None:
    def verdict(question: JudgeQuestion) -> int:
        return int(question.response[1:] == question.gold[0][1:])

    shared = Scorer.load("truthrl", models=Models(judge=TableJudge(verdict)))

    def work(thread: int) -> list[float | None]:
        return values(shared, judged(thread))

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    for thread, found in enumerate(results):
        assert found == [1.0 if i == thread else -1.0 for i in range(20)]


def in_fork(scorer: Scorer, rows: list[rr.Rollout], connection: object) -> None:
    connection.send(values(scorer, rows))  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_scorer_works_in_a_fork() -> None:
    rows = rollouts("arena")
    scorer = Scorer.load("arena")
    expected = values(scorer, rows)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=in_fork, args=(scorer, rows, sender))
    process.start()
    assert receiver.poll(WAIT_SECONDS)
    assert receiver.recv() == expected
    process.join(WAIT_SECONDS)
    assert process.exitcode == 0


def test_a_cancelled_call_leaves_the_scorer_usable() -> None:
    class Judge:
        fingerprint = "slow"
        hangs = True

        async def judge(self, questions: list[JudgeQuestion]) -> list[int | Exception]:
            if self.hangs:
                await asyncio.Event().wait()
            return [1] * len(questions)

        async def close(self) -> None:
            return None

    async def test() -> None:
        judge = Judge()
        scorer = Scorer.load("truthrl", models=Models(judge=judge))  # type: ignore[arg-type]
        call = asyncio.ensure_future(scorer.score_each_async(judged(1)))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others
        judge.hangs = False
        results = await scorer.score_each_async(judged(1))
        assert all(isinstance(each, rr.Score) and each.value == 1.0 for each in results)

    asyncio.run(test())

"""A server on Ray: the answers of one process, a killed replica, and the end of its requests."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from running_server import ARENA, Running

sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))
from judge_server import JudgeServer, Reply, Request

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'rag-rewards[ray]'")
psutil = pytest.importorskip("psutil")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
ON_RAY = ("--engine", "ray", "--replicas", "2", "--cpus-per-worker", "0.1")
WAIT_SECONDS = 300
"""Limit for each step of a test, far above its duration on a machine that other processes use."""
BODIES = [
    ("/score", b'{"rollouts": [{"response": "x"}]}'),
    ("/score", b'{"rollouts": [{"response": 1}]}'),
    ("/score", b"not JSON"),
    ("/score", b'{"rollouts": [], "recipe": "lear"}'),
    ("/openrlhf", b'{"query": ["q"], "prompts": ["q"], "labels": ["{}"]}'),
    ("/entailment", b'{"pairs": [["a", "b"]]}'),
    ("/nothing", b"{}"),
]


@pytest.fixture
def on_ray(monkeypatch: pytest.MonkeyPatch, serving: Callable[..., Running]) -> Iterator[Callable]:
    """Yield a function that starts a server on a new cluster of this machine."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    started: list[Running] = []

    def start(*arguments: object) -> Running:
        running = serving(*arguments, *ON_RAY, wait=False)
        running.wait(seconds=WAIT_SECONDS)
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


def post(running: Running, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json", "X-Request-ID": "of-the-test"}
    answer = httpx.post(f"{running.url}{path}", content=body, headers=headers, timeout=WAIT_SECONDS)
    return answer.status_code, answer.content


def replicas(running: Running) -> list[psutil.Process]:
    return named("ServeReplica", running.process.pid)


def named(name: str, parent: int | None = None) -> list[psutil.Process]:
    """Return the processes below a process whose command contains a name."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # a process that has ended
            if name in "".join(process.cmdline()):
                found.append(process)
    return found


def test_equal_answers_and_a_killed_replica(serving, on_ray) -> None:
    bodies = [*BODIES, ("/score", json.dumps({"rollouts": [ARENA] * 3}).encode())]
    local, remote = serving("-r", "arena"), on_ray("-r", "arena")
    expected = [post(local, *each) for each in bodies]
    assert [post(remote, *each) for each in bodies] == expected
    assert {status for status, _ in expected} == {200, 400, 404, 422}
    first, second = replicas(remote)
    os.kill(first.pid, signal.SIGKILL)
    # A request to the killed replica fails or is sent again; every answer with 200 is correct.
    end = time.monotonic() + WAIT_SECONDS
    while len(alive := replicas(remote)) < 2 or first.pid in {each.pid for each in alive}:
        status, body = post(remote, *bodies[-1])
        assert status != 200 or body == expected[-1][1]
        assert time.monotonic() < end
        time.sleep(0.2)
    assert second.pid in {each.pid for each in replicas(remote)}
    assert [post(remote, *each) for each in bodies] == expected


def test_requests_in_progress_are_completed_after_sigterm(on_ray) -> None:
    asked, opened = threading.Event(), threading.Event()

    def judge_when_opened(_: Request) -> Reply:
        asked.set()
        assert opened.wait(WAIT_SECONDS)
        return Reply()

    row = {"question": "When?", "answers": ["2061"], "response": "\\boxed{the sixties}"}
    body = json.dumps({"rollouts": [row]}).encode()
    with JudgeServer(judge_when_opened) as judge, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = on_ray("-r", "truthrl", "--judge", judge.url, "--judge-model", "m")
        answer = pool.submit(post, running, "/score", body)
        assert asked.wait(WAIT_SECONDS), answer.result()
        running.process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        assert not answer.done()
        opened.set()
        status, scores = answer.result()
        assert status == 200
        assert b'"reward":1.0' in scores
        code, log = running.stop()
    assert code == 0, log
    assert not named("ray::")

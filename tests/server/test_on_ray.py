"""A server on Ray: its answers, a killed replica, the end of its requests, logs and traces."""

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
from typing import Any

import pytest
from processes import WAIT_SECONDS
from ray_nodes import ATTEMPTS, SLOW_START
from running_server import ARENA, Running
from trace_collector import trace_collector

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from judge_server import JudgeServer, Reply, Request

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'rag-rewards[ray]'")
psutil = pytest.importorskip("psutil")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
ON_RAY = ("--engine", "ray", "--replicas", "2", "--cpus-per-worker", "0.1")
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
    for name, value in SLOW_START.items():
        monkeypatch.setenv(name, value)
    started: list[Running] = []

    def start(*arguments: object) -> Running:
        for attempt in range(ATTEMPTS):
            running = serving(*arguments, *ON_RAY, wait=False)
            started.append(running)
            try:
                running.wait()
                break
            except AssertionError as ended:
                if "cannot use the Ray cluster" not in str(ended) or attempt == ATTEMPTS - 1:
                    raise
        running.wait_for_line(f"on {running.url} (Ray)")  # all replicas have started
        return running

    yield start
    for running in started:
        running.stop()


def post(running: Running, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json", "X-Request-ID": "of-the-test"}
    answer = running.post(path, content=body, headers=headers)
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


def json_lines(log: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a log. Ray writes text between them."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


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


def test_logs_and_traces_of_the_replicas(on_ray, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs OpenTelemetry")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "rewards-of-step-7")
    with trace_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        running = on_ray("-r", "arena", "--log-format", "json", "--log-requests", "--traces")
        files = [Path(f"/proc/{each.pid}/fd/2").resolve() for each in replicas(running)]
        status, _ = post(running, "/score", json.dumps({"rollouts": [ARENA]}).encode())
        assert status == 200
        code, log = running.stop()  # sends the remaining spans
    assert code == 0, log
    assert f"rag-rewards: arena on {running.url} (Ray)" in {
        entry["message"] for entry in json_lines(log)
    }
    entries = [entry for file in files for entry in json_lines(file.read_text())]
    (scored,) = [entry for entry in entries if entry.get("route") == "/score"]
    assert (scored["request_id"], scored["status"]) == ("of-the-test", 200)
    assert b"POST /score" in collector.body
    assert bytes.fromhex(scored["trace_id"]) in collector.body
    assert b"rewards-of-step-7" in collector.body

"""A server that receives SIGTERM completes its requests within a bounded time."""

from __future__ import annotations

import concurrent.futures
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
from processes import WAIT_SECONDS, wait_for
from running_server import Running

from rag_rewards.server.run import REMOTE_IN_FLIGHT

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from judge_server import JudgeServer, Reply, Request

ROW = {
    "question": "In which year will Halley's Comet next pass the Sun?",
    "answers": ["2061"],
    "response": "\\boxed{the sixties}",  # differs from the gold answer, which needs no judge
}
REQUESTS = REMOTE_IN_FLIGHT + 4
"""Some of these requests wait in the queue while the others wait for the judge."""


class ClosedJudge:
    """The behaviour of a judge that gives no verdict before it is opened."""

    def __init__(self) -> None:
        self.asked, self.opened = threading.Event(), threading.Event()

    def __call__(self, _: Request) -> Reply:
        # The judge server calls this in its event loop, so that all its replies wait.
        self.asked.set()
        assert self.opened.wait(WAIT_SECONDS)
        return Reply()


def wait_for_queue(running: Running, rollouts: int) -> None:
    """Wait until this number of rollouts is in the queue."""
    wait_for(lambda: running.get("/status").json()["rollouts_waiting"] == rollouts)


def test_requests_that_wait_for_a_model_are_completed(serving: Callable[..., Running]) -> None:
    behaviour = ClosedJudge()
    with JudgeServer(behaviour) as judge, concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        options = (
            "--judge",
            judge.url,
            "--judge-model",
            "m",
            "--batch-ms",
            "0",
            "--deadline",
            "600",
        )
        running = serving("-r", "truthrl", *options)
        bodies = [{"rollouts": [ROW | {"question": f"Question {i}?"}]} for i in range(REQUESTS)]
        answers = [pool.submit(running.post, "/score", json=body) for body in bodies]
        assert behaviour.asked.wait(WAIT_SECONDS)
        wait_for_queue(running, REQUESTS - REMOTE_IN_FLIGHT)
        running.process.send_signal(signal.SIGTERM)
        running.wait_until_closed()
        done, _ = concurrent.futures.wait(answers, timeout=0.5)
        assert not done  # the judge has not answered; the requests are not cancelled
        behaviour.opened.set()
        scores = [answer.result().json()["scores"][0] for answer in answers]
        code, log = running.stop()
    assert [score["error"] for score in scores] == [None] * REQUESTS
    assert {score["reward"] for score in scores} == {1.0}
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in log


def test_a_request_that_never_completes_does_not_delay_the_end(
    serving: Callable[..., Running],
) -> None:
    running = serving("-r", "arena", "--deadline", "1")
    head = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(head)
        running.wait()  # a later request is answered, so that this one has arrived
        running.process.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 504")
    code, log = running.stop()
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in log


def test_idle_connections_do_not_delay_the_end(serving: Callable[..., Running]) -> None:
    running = serving("-r", "arena", "--deadline", "600")
    with (
        httpx.Client(timeout=WAIT_SECONDS) as kept,
        socket.create_connection(("127.0.0.1", running.port)),
        socket.create_connection(("127.0.0.1", running.port)) as half,
    ):
        half.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\n")
        assert kept.get(f"{running.url}/health").status_code == 200
        code, log = running.stop()
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in log


def test_a_server_that_loads_ends(serving: Callable[..., Running]) -> None:
    """A backend without an answer is tried again until the server is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        running = serving("-r", "ctrl-rag", "--model", url, "--backend", "vllm", wait=False)
        running.wait(503)
        code, log = running.stop()
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in log

"""The server as a separate process."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from processes import WAIT_SECONDS
from running_server import ARENA, Running

BODY = {"rollouts": [ARENA]}
JSON = {"Content-Type": "application/json"}


def test_scores_and_stops_on_sigterm(serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    assert running.post("/score", json=BODY).json()["scores"][0]["reward"] == 13.0
    code, log = running.stop()
    assert code in (0, -signal.SIGTERM)
    assert "arena on http://127.0.0.1" in log
    assert "Traceback" not in log


def test_requests_in_progress_are_completed(serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    body = json.dumps(BODY).encode()
    head = f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(head.encode() + body[:10])
        running.wait()  # a later request is answered, so that this one has arrived
        running.process.send_signal(signal.SIGTERM)
        running.wait_until_closed()
        client.sendall(body[10:])
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["scores"][0]["reward"] == 13.0


def test_settings_come_from_the_command_line(
    serving: Callable[..., Running],
) -> None:
    running = serving("-r", "arena", "--set", "bonus.value=5", "--hardened")
    answer = running.post("/score", json=BODY).json()
    assert answer["scores"][0]["reward"] == 8.0
    assert answer["signature"].endswith(' arena hardened {"settings":{"bonus.value":5}}')


def test_a_killed_server_can_be_restarted_on_its_port(serving: Callable[..., Running]) -> None:
    first = serving("--recipe", "arena")
    first.stop(signal.SIGKILL)
    with pytest.raises(httpx.TransportError):
        first.post("/score", json=BODY)
    serving("--recipe", "arena", port=first.port)
    assert first.post("/score", json=BODY).status_code == 200


def test_disconnected_clients_do_not_stop_the_server(serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    half = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    half += b"Content-Length: 1000\r\n\r\n{"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(half)
    assert running.post("/score", json=BODY).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "arena", "--host", "0.0.0.0"], "token"),  # noqa: S104
        (["-r", "arena", "--token-file", "nowhere"], "cannot read --token-file"),
        (["-r", "arena", "--port", "70000"], "--port must be from 0 to 65535, found 70000"),
        (["-r", "arena", "--port", "-1"], "--port must be from 0 to 65535, found -1"),
        (["-r", "arena", "--deadline", "inf"], "--deadline must be above 0 and finite, found inf"),
        (["-r", "arnea"], "did you mean 'arena'"),
        ([], "no recipe is given"),
    ],
)
def test_unusable_arguments(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "rag_rewards", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "RAG_REWARDS_TOKEN"},
    )
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_another_address_with_a_token_from_a_file(
    serving: Callable[..., Running], tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    running = serving("-r", "arena", "--host", "0.0.0.0", "--token-file", secret)  # noqa: S104
    assert running.post("/score", json=BODY).status_code == 401
    assert running.post("/score", json=BODY, auth=("any", "s3cret")).status_code == 200


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    running = Running(["-r", "arena", "--token-file", tmp_path / "token"])
    code, log = running.wait_for_end()
    assert code == 2
    assert "is empty" in log


def test_a_model_that_cannot_be_loaded_makes_the_server_unready(
    serving: Callable[..., Running], tmp_path: Path
) -> None:
    running = serving("-r", "ground-grpo", "--nli", tmp_path / "none", wait=False)
    health = running.wait(503)
    while health["reason"] == "loading":
        time.sleep(0.1)
        health = running.wait(503)
    assert "none" in health["reason"]
    answer = running.post("/score", json=BODY)
    assert answer.status_code == 503
    assert json.loads(answer.text)["error"]["type"] == "NotReady"
    _, log = running.stop()
    assert "not ready" in log


def test_requests_to_models_and_their_credentials_are_not_logged(
    serving: Callable[..., Running],
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        url = f"http://me:s3cret@127.0.0.1:{backend.server_address[1]}"
        running = serving("-r", "ctrl-rag", "--model", url, "--backend", "vllm", wait=False)
        health = running.wait(503)
        while health["reason"] == "loading":
            time.sleep(0.1)
            health = running.wait(503)
        status = running.get("/status").text
        _, log = running.stop()
        backend.shutdown()
    assert "status 501" in health["reason"]  # the backend received a request
    assert "not ready" in log
    assert "HTTP Request" not in log
    assert "s3cret" not in log + status


def test_many_connections_without_a_failed_request(serving: Callable[..., Running]) -> None:
    running = serving("--recipe", "arena")
    body = json.dumps(BODY).encode()

    def count_ok(_: int) -> int:
        with httpx.Client(timeout=WAIT_SECONDS) as client:
            return sum(
                client.post(f"{running.url}/score", content=body, headers=JSON).status_code == 200
                for _ in range(10)
            )

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(count_ok, range(32))) == 32 * 10


def test_a_proxy_on_this_machine_names_the_scheme_and_the_host(
    serving: Callable[..., Running], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    running = serving("--recipe", "arena", "--token-file", tmp_path / "token")
    headers = {"Host": "rewards.example.com", "X-Forwarded-Proto": "https"}
    headers |= {"Authorization": "Bearer s3cret"}
    answer = running.post("/", headers=headers)
    assert answer.status_code == 405
    assert "https://rewards.example.com/score" in answer.json()["error"]

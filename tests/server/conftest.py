"""Servers to ask: in this process over ASGI, or as a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec, load_recipe
from rag_rewards.scorer import Scorer
from rag_rewards.server.app import RewardServer, build
from rag_rewards.server.options import ServerOptions

ARENA = {
    "response": "<relevance>[1]</relevance><analysis>1</analysis><answer>Seine</answer>",
    "answers": ["Seine"],
    "supporting": [1],
}


@contextlib.asynccontextmanager
async def asked(
    plan: RecipeSpec, models: Models | None = None, **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, RewardServer]]:
    """A server that has loaded, and a client that reaches it without a socket."""
    server = RewardServer(
        lambda: Scorer.load(plan, models=models),
        load_recipe(plan).component_names,
        ServerOptions(**options),
    )
    await server.start()
    transport = httpx.ASGITransport(build(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client, server


def run(test: Callable[[], Any]) -> None:
    """Run a coroutine of a test."""
    asyncio.run(test())


class Running:
    """`rag-rewards serve` as a process, at a port of its own."""

    def __init__(self, arguments: Sequence[object], port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "rag_rewards", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def wait(self, status: int = 200, seconds: float = 60) -> dict[str, Any]:
        """Until /health answers with this status."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{self.url}/health", timeout=5)
                if answer.status_code == status:
                    return answer.json()  # type: ignore[no-any-return]
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.process.stderr.read()}")  # type: ignore[union-attr]
            time.sleep(0.05)
        raise AssertionError(f"no {status} within {seconds} seconds")

    def wait_until_closed(self) -> None:
        """Until no new connection is accepted."""
        with contextlib.suppress(httpx.TransportError):
            while True:
                httpx.get(f"{self.url}/health", timeout=5)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def free_port() -> int:
    """A port that no other process is given by chance before the server has taken it."""
    ports = range(15_000, 32_000)  # below those that systems draw for clients
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port := random.SystemRandom().choice(ports)))
            return port


@pytest.fixture
def serving() -> Iterator[Callable[..., Running]]:
    """Start a server that has become ready; all are ended after the test."""
    started: list[Running] = []

    def start(*arguments: object, port: int | None = None, wait: bool = True) -> Running:
        running = Running(arguments, port)
        started.append(running)
        if wait:
            running.wait()
        return running

    yield start
    for running in started:
        running.stop(signal.SIGKILL)

"""Servers in this process, over ASGI, or as separate processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
from processes import WAIT_SECONDS, finish, free_port

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec, load_recipe
from rag_rewards.scorer import Scorer
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.routes import Application

ARENA = {
    "response": "<relevance>[1]</relevance><analysis>1</analysis><answer>Seine</answer>",
    "answers": ["Seine"],
    "supporting": [1],
}


@contextlib.asynccontextmanager
async def connect(
    plan: RecipeSpec, models: Models | None = None, **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, RewardServer]]:
    """Yield a client without a socket, and its server, which has loaded the recipe."""
    server = RewardServer(
        lambda: Scorer.load(plan, models=models),
        load_recipe(plan).component_names,
        ServerOptions(**options),
    )
    await server.start()
    transport = httpx.ASGITransport(Application(server))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers={"Content-Type": "application/json"}
    ) as client:
        yield client, server


def run(test: Callable[[], Any]) -> None:
    """Run a coroutine of a test."""
    asyncio.run(test())


class Running:
    """A process that runs `rag-rewards serve` on a free port."""

    def __init__(self, arguments: Sequence[object], port: int | None = None) -> None:
        self.log = ""
        """The lines of standard error that were read before the end of the server."""
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

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=WAIT_SECONDS, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", timeout=WAIT_SECONDS, **options)

    def wait(self, status: int = 200) -> dict[str, Any]:
        """Wait until /health returns this status."""
        limit = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < limit:
            with contextlib.suppress(httpx.TransportError):
                answer = self.get("/health")
                if answer.status_code == status:
                    return answer.json()  # type: ignore[no-any-return]
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.process.stderr.read()}")  # type: ignore[union-attr]
            time.sleep(0.05)
        raise AssertionError(f"no {status} within {WAIT_SECONDS} seconds")

    def wait_for_line(self, text: str) -> None:
        """Wait until the server writes a line that contains a text to standard error."""
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.log += line
            if text in line:
                return
        raise AssertionError(f"the server ended: {self.log}")

    def wait_until_closed(self) -> None:
        """Wait until the server accepts no connections."""
        limit = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < limit:
            try:
                self.get("/health")
            except httpx.ConnectError:
                return
            except httpx.TransportError:  # the server closed a connection that it had accepted
                continue
        raise AssertionError(f"not closed within {WAIT_SECONDS} seconds")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop the server; return its exit code and its standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait_for_end()

    def wait_for_end(self) -> tuple[int, str]:
        """Wait until the server ends by itself; return its exit code and its standard error."""
        _, log = finish(self.process)
        return self.process.returncode, self.log + log

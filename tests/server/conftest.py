"""A fixture that starts servers as processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from running_server import Running


@pytest.fixture
def serving() -> Iterator[Callable[..., Running]]:
    """Yield a function that starts a server. All servers are stopped after the test."""
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

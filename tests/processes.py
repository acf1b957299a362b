"""The limit of all waits of tests, and the end of processes, also of those of a test that fails."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any, AnyStr, TypeVar

WAIT_SECONDS = 300
"""Limit for each step of a test, far above its duration on a machine that other processes use."""

T = TypeVar("T")


def wait_for(condition: Callable[[], T]) -> T:
    """Wait until a condition returns a true value, and return this value."""
    end = time.monotonic() + WAIT_SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {WAIT_SECONDS} seconds"
        time.sleep(0.02)
    return value


def finish(process: subprocess.Popen[AnyStr], data: Any = None) -> tuple[AnyStr, AnyStr]:
    """Send data to a process, wait for its end, and return its standard output and error."""
    try:
        return process.communicate(data, timeout=WAIT_SECONDS)
    finally:
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process unless it has ended, and close its pipes.

    An open pipe or a process that nobody waits for would be a warning, and thus an error, of
    another test.
    """
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def free_port() -> int:
    """Return a free port that the system does not assign to clients."""
    ports = range(15_000, 32_000)  # below the ports of clients
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port := random.SystemRandom().choice(ports)))
            return port

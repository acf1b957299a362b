"""A fixture that starts servers as processes, and the event loop of tests that are coroutines."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Callable, Iterator

import pytest
from running_server import Running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: with `RUN_TEST` of its module, or with `asyncio.run`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    getattr(pyfuncitem.module, "RUN_TEST", asyncio.run)(test)
    return True


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

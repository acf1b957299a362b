"""Event loops with a clock of the test, which does not depend on the speed of the machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when no callback is ready.

    All callbacks that are ready run before the next timer. Code that waits for both a thread and a
    timer cannot be tested with this loop, because the timer always runs first.
    """

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """A selector that advances the clock instead of waiting. Without a timer, it waits."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop._now += max(timeout, 0.0)
        return ready


class AdjustableLoop(asyncio.SelectorEventLoop):
    """A loop in real time whose clock a test can set forward, for code that waits for threads."""

    def __init__(self) -> None:
        self.ahead = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self.ahead


def run_in_virtual_time(test: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine until it returns, like `asyncio.run`."""
    return _run(VirtualTimeLoop(), test)


def run_and_advance(
    test: Coroutine[Any, Any, T], seconds: float, *conditions: Callable[[], bool]
) -> T:
    """Run a coroutine in real time, and set the clock forward when each condition becomes true.

    The conditions become true in this order. Timeouts of `seconds` end then, and not before.
    """
    loop = AdjustableLoop()

    async def advance() -> None:
        for condition in conditions:
            while not condition():
                await asyncio.sleep(0.005)
            for _ in range(100):  # callbacks that are ready start further timers
                await asyncio.sleep(0)
            loop.ahead += seconds

    async def both() -> T:
        advancing = asyncio.ensure_future(advance())
        try:
            return await test
        finally:
            advancing.cancel()

    return _run(loop, both())


def _run(loop: asyncio.AbstractEventLoop, test: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.run_until_complete(test)
    finally:
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""A progress bar with rows a second and the running means of the reward and its components."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rag_rewards.reading import Source
from rag_rewards.scoring import Tally


class Progress(AbstractContextManager["Progress"], Protocol):
    """What a scoring tells while it runs."""

    def update(self, tally: Tally, position: int) -> None: ...


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, tally: Tally, position: int) -> None:
        return None


class _Bar:
    def __init__(self, source: Source) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        known = [BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn()]
        self._rich = Rich(
            *(known if source.size else []),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._rich.add_task("reading", total=source.size)
        self._started = time.perf_counter()

    def __enter__(self) -> _Bar:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def update(self, tally: Tally, position: int) -> None:
        done = tally.rows + tally.errors
        rate = done / max(time.perf_counter() - self._started, 1e-9)
        means = " · ".join(f"{name} {value:.3g}" for name, value in tally.means().items())
        text = f"{done:,} rows · {rate:,.0f}/s · {means}"
        self._rich.update(self._task, completed=position, description=text)


def no_progress() -> Any:
    """Says nothing."""
    return _Silent()


def progress_bar(source: Source) -> Any:
    """Draws on standard error."""
    return _Bar(source)

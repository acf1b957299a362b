"""A progress bar with rows a second and the running means of the reward and its components."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rag_rewards.reading import Source
from rag_rewards.scoring import Tally

if TYPE_CHECKING:
    from rag_rewards.gathering import Usage


class Progress(AbstractContextManager["Progress"], Protocol):
    """What a scoring tells while it runs."""

    def update(self, tally: Tally, position: int, usage: Usage | None = None) -> None: ...


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, tally: Tally, position: int, usage: Usage | None = None) -> None:
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

    def update(self, tally: Tally, position: int, usage: Usage | None = None) -> None:
        done = tally.rows + tally.errors
        rate = done / max(time.perf_counter() - self._started, 1e-9)
        means = " · ".join(f"{name} {value:.3g}" for name, value in tally.means().items())
        text = f"{done:,} rows · {rate:,.0f}/s · {means}"
        if asked := told(usage):
            text += f" · {asked}"
        self._rich.update(self._task, completed=position, description=text)


def told(usage: Usage | None) -> str:
    """What models were asked, in a few words; "" where none was."""
    if usage is None:
        return ""
    seconds = max(usage.seconds, 1e-9)
    said = []
    if usage.computed:
        rate = usage.computed / seconds
        said.append(f"{usage.computed:,} tokens, {rate:,.0f}/s, {usage.reuse:.0%} reused")
    if usage.path and usage.path != "shared":
        said.append(usage.path)
    if usage.generated:
        said.append(f"{usage.generated:,} tokens generated")
    if usage.pairs:
        said.append(f"{usage.pairs:,} pairs")
    if usage.verdicts:
        said.append(f"{usage.verdicts:,} verdicts")
    return " · ".join(said)


def no_progress() -> Any:
    """Says nothing."""
    return _Silent()


def progress_bar(source: Source) -> Any:
    """Draws on standard error."""
    return _Bar(source)

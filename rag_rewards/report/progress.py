"""A progress bar with rows a second and the running means of the reward and its components."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rag_rewards.io.sources import Source
from rag_rewards.rows import Totals

if TYPE_CHECKING:
    from rag_rewards.evidence.gather import EvidenceUsage


class Progress(AbstractContextManager["Progress"], Protocol):
    """Shows the progress of a run."""

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None: ...


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None:
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

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None:
        done = totals.rows + totals.errors
        rate = done / max(time.perf_counter() - self._started, 1e-9)
        means = " · ".join(f"{name} {value:.3g}" for name, value in totals.means().items())
        text = f"{done:,} rows · {rate:,.0f}/s · {means}"
        if models := model_usage(usage):
            text += f" · {models}"
        self._rich.update(self._task, completed=position, description=text)


def model_usage(usage: EvidenceUsage | None) -> str:
    """Describe what the models computed, in a few words; "" where there are none."""
    if usage is None:
        return ""
    seconds = max(usage.seconds, 1e-9)
    parts = []
    if usage.computed:
        rate = usage.computed / seconds
        parts.append(f"{usage.computed:,} tokens, {rate:,.0f}/s, {usage.reuse:.0%} reused")
    if usage.path and usage.path != "shared":
        parts.append(usage.path)
    if usage.generated:
        parts.append(f"{usage.generated:,} tokens generated")
    if usage.pairs:
        parts.append(f"{usage.pairs:,} pairs")
    if usage.verdicts:
        parts.append(f"{usage.verdicts:,} verdicts")
    return " · ".join(parts)


def judge_usage(judge: Any) -> str:
    """Describe what a judge cost, in a few words; "" where it gave no verdict."""
    usage = getattr(judge, "usage", None)
    if usage is None or not usage.verdicts:
        return ""
    tokens = usage.prompt_tokens + usage.completion_tokens
    parts = [f"{usage.requests:,} requests", f"{usage.cache_hits:,} from the cache"]
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if usage.cost:
        parts.append(f"{usage.cost:.4g} spent")
    if usage.requests:
        parts.append(f"p95 {usage.latency_p95 * 1000:.0f} ms")
    return " · ".join(parts)


def no_progress() -> Any:
    """Return a progress display that shows nothing."""
    return _Silent()


def progress_bar(source: Source) -> Any:
    """Return a progress bar on standard error."""
    return _Bar(source)

"""A progress bar with the rate and the running means of the reward and its components."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from rag_rewards.rows import Totals
from rag_rewards.scoring.options import Progress

if TYPE_CHECKING:
    from rag_rewards.evidence.exchange import EvidenceUsage


class TerminalBar:
    """A progress bar on standard error, with a text after it. Without a total, only the text.

    `redirect` is whether other output appears above the bar.
    """

    def __init__(self, total: int | None, text: str = "reading", *, redirect: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        bar = [BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn()]
        self._rich = Rich(
            *(bar if total else []),
            TextColumn("{task.description}"),
            console=Console(file=sys.stderr),  # the file, because a training redirects sys.stderr
            transient=True,
            redirect_stdout=redirect,
            redirect_stderr=redirect,
        )
        self._task = self._rich.add_task(text, total=total)

    def __enter__(self) -> TerminalBar:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def show(self, completed: int, text: str) -> None:
        """Show the completed part of the total, and a text."""
        self._rich.update(self._task, completed=completed, description=text)


class ProgressBar(Progress):
    """The progress of a file as a bar on standard error. `size` is that of the input in bytes."""

    def __init__(self, size: int | None) -> None:
        self._bar = TerminalBar(size)
        self._started = time.perf_counter()

    def __enter__(self) -> ProgressBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None:
        done = totals.rows + totals.errors
        rate = done / max(time.perf_counter() - self._started, 1e-9)
        means = " · ".join(f"{name} {value:.3g}" for name, value in totals.means().items())
        text = f"{done:,} rows · {rate:,.0f}/s · {means}"
        if usage is not None and str(usage):
            text += f" · {usage}"
        self._bar.show(position, text)


def judge_usage(judge: Any) -> str:
    """Return the requests and tokens of a judge as a short text; "" without a verdict."""
    usage = getattr(judge, "usage", None)
    if usage is None or not usage.verdicts:
        return ""
    tokens = usage.prompt_tokens + usage.completion_tokens
    parts = [f"{usage.requests:,} requests", f"{usage.cache_hits:,} from the cache"]
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if usage.requests:
        parts.append(f"p95 {usage.latency_p95 * 1000:.0f} ms")
    if counts := getattr(judge, "counts", None):
        questions = counts.positions + counts.canaries
        parts.append(f"checks: {questions:,} questions, {counts.refused:,} verdicts refused")
    return " · ".join(parts)

"""Output of commands: a console, JSON, and messages on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from rag_rewards.metrics.measurement import ErrorCount


def shows_progress() -> bool:
    """Return whether a progress bar is shown: on a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def console(width: int) -> Console:
    """Return a console on standard output. `width` is the number of columns without a terminal."""
    from rich.console import Console

    class CommandConsole(Console):
        """A console whose commands end as others do when the reader has closed the pipe."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return CommandConsole(width=None if sys.stdout.isatty() else width)


def print_json(data: Any) -> None:
    """Print data as JSON on standard output."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def print_errors(console: Console, errors: Iterable[ErrorCount], name: str = "") -> None:
    """Print how many rows, groups or pairs a metric or a score leaves out, with the first error."""
    from rich.text import Text

    from rag_rewards.errors import plain

    for error in errors:
        units = error.unit if error.count == 1 else f"{error.unit}s"
        prefix = f"{name}: " if name else ""
        line = f"{prefix}{error.count:,} {units} left out, the first: {error.first}"
        style = "red" if error.unit == "row" else "yellow"
        console.print(Text(plain(line), style=style), soft_wrap=True)


def print_messages(lines: Iterable[str]) -> None:
    """Print lines on standard error, with terminal control characters made visible."""
    from rag_rewards.errors import plain

    for line in lines:
        print(plain(with_flags(line)), file=sys.stderr)


_FLAGS = {
    "model": "--model PATH",
    "generator": "--set models.generator=PATH",
    "nli": "--nli PATH",
    "similarity": "--similarity PATH",
    "judge": "--judge URL --judge-model NAME",
    "sort": "--sort",
    "group_size": "--group-size N",
    "columns": "--columns",
    "truncate": "--set models.truncate=true",
    "document_form": "--set models.document_form=TEMPLATE",
    "document_separator": "--set models.document_separator=TEXT",
}


def with_flags(message: str) -> str:
    """Return the message of a row, in which options have the names of the command line.

    >>> with_flags("logprobs: missing; add `full`, or set the option model")
    'logprobs: missing; add `full`, or pass --model PATH'
    >>> with_flags("Set the option columns to answers=gold")
    'Pass --columns answers=gold'
    >>> with_flags("too long; set the option `truncate`, which drops documents")
    'too long; pass --set models.truncate=true, which drops documents'
    """
    return _OPTION.sub(
        lambda match: f"{'Pass' if match[0][0] == 'S' else 'pass'} {_FLAGS[match[1]]}", message
    )


_OPTION = re.compile(rf"(?:[Ss]et|use) the option `?({'|'.join(_FLAGS)})\b`?(?: to\b)?")

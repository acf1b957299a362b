"""The entry point. Exit codes: 0 all scored, 2 unusable arguments or stopped, 3 some in error."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import typer

from rag_rewards.cli.app import app
from rag_rewards.errors import RagRewardsError

TYPER_INTERRUPTED = 130
"""What newer versions of typer make of Ctrl-C."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every known fault is one clear line on standard error and an exit code."""
    _open_streams()
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
    except RagRewardsError as error:
        code = _complain(str(error))
    except (BrokenPipeError, SystemExit):  # typer makes a closed pipe an exit of its own
        _drop_output()
        code = 2
    except OSError as error:
        _drop_output()
        code = _complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted; what was scored stands in the .partial file, if any")
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        if hasattr(error, "show"):
            error.show()  # a usage error of the command line itself
        code = error.exit_code
    try:
        sys.stdout.flush()
    except OSError:  # it was said above; Python would end with a code of its own
        _drop_output()
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    from rag_rewards.report.terminal import plain

    with contextlib.suppress(OSError):
        print(f"rag-rewards: {plain(message)}", file=sys.stderr)
    return 2


def _open_streams() -> None:
    """Closed standard streams fail like any other file; no character is too odd to print."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """What Python would still flush at its end has nowhere to go."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

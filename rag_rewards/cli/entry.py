"""The entry point and its exit codes.

A command returns its exit code: 0 for success, 1 for a finding (`audit`, `doctor`), 3 when some
rows are in error. Unusable arguments and interrupted runs end with 2.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType

from cyclopts import CycloptsError, UnknownOptionError

from rag_rewards.cli.app import (
    COMMANDS,
    HELP_ALL,
    make_app,
    refuse_decimal_numbers,
    refuse_overwritten_inputs,
    refuse_unknown_options,
)
from rag_rewards.errors import OptionError, RagRewardsError

USAGE = 2


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Each expected error is one line on standard error.

    SIGTERM interrupts a command as Ctrl-C does, except for `serve`, whose server handles both.
    """
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    with contextlib.nullcontext() if arguments[:1] == ["serve"] else _interrupted_by_sigterm():
        code = _run(arguments)
    try:
        sys.stdout.flush()
    except OSError:  # reported already; Python would otherwise end with its own exit code
        _drop_output()
    sys.exit(code)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM. Without effect outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a forked process has inherited this function
        os.kill(os.getpid(), number)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(arguments: list[str]) -> int:
    try:
        for argument in arguments:
            if not argument.isascii():
                from rag_rewards.files.storage import check_name  # takes time to import

                check_name(argument)  # raises for bytes that are not UTF-8
        app = make_app()
        app.config = (refuse_decimal_numbers, refuse_overwritten_inputs)
        if "--" not in arguments:  # file names after it may begin with a hyphen
            app.config = (refuse_unknown_options, *app.config)
        if arguments and arguments[0] in COMMANDS and set(app.help_flags) & set(arguments):
            from rag_rewards.cli.help import complete_help  # takes time to import

            complete_help(app, arguments[0], shows_all=HELP_ALL in arguments)
        code = app(arguments or ["--help"], exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return int(code or 0) if arguments else USAGE
    except OptionError as error:
        return _report(error.message(partial(flag, command="".join(arguments[:1]))))
    except RagRewardsError as error:
        return _report(str(error))
    except UnknownOptionError as error:
        return _report(_removed_option(error, arguments[0]) or str(error))
    except CycloptsError as error:
        return _report(str(error))
    except BrokenPipeError:
        _drop_output()
        return USAGE
    except OSError as error:
        _drop_output()
        return _report(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except KeyboardInterrupt as error:
        rest = "rows scored so far are in the .partial file, if there is one"
        return _report("; ".join(["interrupted", rest, *error.args]))


def _removed_option(error: UnknownOptionError, command: str) -> str:
    """Return the message for an option that an earlier version had, "" for another one."""
    from rag_rewards.cli.removed_options import removed_option  # takes time to import

    option = (error.token.keyword or error.token.value).partition("=")[0]
    name = option.lstrip("-").replace("-", "_")
    if command in WITHOUT_MODELS and name in (*MODEL_SETTINGS, "attention"):
        return ""  # the command never had this option
    if name in MODEL_SETTINGS:
        place = flag(name, command)
        instead = f"{place}=VALUE" if place.startswith("--") else place
        since = "" if name in _NEW_SETTINGS else " since version 0.8.0"
        return f"there is no option {option}{since}: use {instead}"
    removed = removed_option(name, command)
    if removed is None:
        return ""
    return removed.message(lambda key: option if key == name else flag(key, command))


_FLAGS = {"form": "--format", "name": "--id", "passes": "--pass"}
"""The options whose names differ from those in Python."""
MODEL_SETTINGS = frozenset(
    (
        *("dtype", "adapter", "generator", "tokenizer", "token_budget", "truncate"),
        *("nli_profile", "nli_tokenizer", "judge_retries", "judge_templates", "judge_checks"),
        *("document_form", "document_separator", "prompt_template"),
    )
)
"""The fields of `ModelSettings`, whose module takes time to import."""
_NEW_SETTINGS = ("generator", "judge_templates", "nli_profile")
"""Those that were never an option."""
WITHOUT_MODELS = frozenset(("recipes", "replay", "report", "doctor", "prepare"))
"""The commands that use no models."""


def flag(name: str, command: str = "") -> str:
    """Return the name of an option on the command line.

    >>> flag("judge_model"), flag("passes"), flag("dtype"), flag("document_form", "prepare")
    ('--judge-model', '--pass', '--set models.dtype', '--document-form')
    >>> flag("dtype", "evaluate")
    '`models.dtype` in the file of --config'
    """
    if name in MODEL_SETTINGS and command == "evaluate":  # it has no recipe, and so no --set
        return f"`models.{name}` in the file of --config"
    if name in MODEL_SETTINGS and command != "prepare":
        return f"--set models.{name}"
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def _report(message: str) -> int:
    """Print one error on standard error and return the exit code for it."""
    from rag_rewards.cli.output import with_flags
    from rag_rewards.errors import plain

    with contextlib.suppress(OSError):
        print(f"rag-rewards: {plain(with_flags(message))}", file=sys.stderr)
    return USAGE


def _open_streams() -> None:
    """Replace closed standard streams by files that fail, and make every character printable."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard what Python would still flush when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

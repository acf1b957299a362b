"""The help of a command: its main options, or all of them."""

from __future__ import annotations

from inspect import getdoc

from cyclopts import App
from cyclopts.help import DefaultFormatter, HelpPanel
from cyclopts.utils import is_option_like
from rich.console import Console, ConsoleOptions
from rich.text import Text

from rag_rewards.cli.app import COMMANDS, HELP_ALL


def complete_help(app: App, name: str, *, shows_all: bool) -> None:
    """Complete the help of a command with its description. Imports the command.

    Unless it `shows_all`, the help has only the main options of the command.
    """
    app = app[name]
    text = (getdoc(app.default_command) or "").partition("\n\nParameters\n")[0]
    app.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    names = [] if shows_all else COMMANDS[name].options.split()
    app.help_formatter = _OptionsFormatter(names)
    if names:
        app.help_epilogue = f"{app.help_epilogue}\n\nAll options: rag-rewards {name} {HELP_ALL}"


class _OptionsFormatter(DefaultFormatter):
    """The usual help, with each text as one paragraph.

    If `names` are given, other options are left out. Arguments without a name are always shown.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = frozenset(names)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        entries = [
            entry
            for entry in panel.entries
            if not self._names
            or self._names.intersection(entry.names)
            or not any(map(is_option_like, entry.names))
        ]
        for entry in entries:  # docstrings have line breaks
            text = entry.description.primary_renderable
            entry.description.primary_renderable = Text(" ".join(text.plain.split()))
        if entries:
            super().__call__(console, options, panel.copy(entries=entries))

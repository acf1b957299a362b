"""Checks of start scripts by the installed trainer, for the code `check` of the templates.

Each runs in a process of its own, because it imports the trainer.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path


def shell_words(folder: str) -> list[str]:
    """Return the words of the settings in `train.sh`."""
    text = (Path(folder) / "train.sh").read_text("utf-8")
    begin = text.index("settings=(") + len("settings=(")
    return shlex.split(text[begin : text.index("\n)\n", begin)], comments=True)


def flags(folder: str) -> list[str]:
    """Return the names of the flags in `train.sh`."""
    return [word[2:] for word in shell_words(folder) if word.startswith("--")]


def report_unknown_options(folder: str) -> None:
    """Report the settings of `train.py` that are no fields of its class of TRL."""
    text = (Path(folder) / "train.py").read_text("utf-8")
    name = re.findall(r"HfArgumentParser\((\w+)\)", text)[0]
    options = getattr(importlib.import_module("trl"), name)
    fields = {field.name for field in dataclasses.fields(options)}
    settings = text[text.index("settings = dict(") : text.index("\n)\n")]
    names = re.findall(r"^    (\w+)=", settings, re.MULTILINE)
    report(name for name in names if name not in fields)


def report(unknown: Iterable[str]) -> None:
    """Print the settings that the trainer does not have, in the form that `run_isolated` reads."""
    print("\n" + json.dumps({"unknown": list(unknown)}))

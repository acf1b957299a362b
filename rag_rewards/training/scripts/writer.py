"""The writer of a trainer's scripts, and the parts that all scripts have in common."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rag_rewards.training.scripts.start import Start
from rag_rewards.training.settings import Stated
from rag_rewards.turns.dialects import DIALECTS

Line = tuple[str, tuple[str, ...]]
"""A comment and the words of one setting: an assignment, or a flag and its values."""

FOR_REWARD = "for the reward"
YOUR_SETUP = "your setup"
ONE_PROMPT = (
    "the rollouts of one prompt at a time; on several devices divide the next value by their number"
)
NO_SCALING = "{}: the reward is normalized already"
HERE = "$PWD/"
"""The folder of the script, as the shell expands it."""
_KEY_IN_FOLDER = re.compile(r"[\w.]+=\$PWD/[\w./-]*")


TAG_DIALECTS = [name for name, dialect in DIALECTS.items() if dialect.block]
"""The dialects of environments that read tags, Search-R1 first."""
SEARCH_MODULE = "search.py"
"""The file with the search engine, which raises an error until it is edited."""
SEARCH_CHECK = f"python3 {SEARCH_MODULE}  # raises an error until it has a search engine\n"
_SEARCH = '''"""The search engine of a training with the reward {name}: edit this file.

The policy searches in the dialect {dialect}: write it into the prompts with
`rag-rewards prepare --dialect {dialect}` if the recipe has prompts of dialects.
"""

import json
from pathlib import Path

from rag_rewards.errors import UsageError
from rag_rewards.text.bm25 import Index

# your setup: a JSONL file with {{"id": ..., "title": ..., "text": ...}} in each line, which BM25
# searches. To use another search engine, replace all code of this file by your own `search`.
CORPUS = ""
RESULTS = 3

if not CORPUS:
    raise UsageError(
        f"the policy has no search engine: edit {{__file__}}: set CORPUS to a JSONL file of "
        "documents, or replace the code by your own function search(query)"
    )
with (Path(__file__).resolve().parent / CORPUS).open(encoding="utf-8") as file:
    documents = [json.loads(line) for line in file if line.strip()]
index = Index([f"{{document.get('title') or ''}} {{document['text']}}" for document in documents])


def search(query: str) -> list[dict]:
    """Return the documents for a query of the policy, each with a `text`."""
    return [documents[i] for i in index.best(query, RESULTS)]
'''
SEARCH_TOOL = '''def search(query: str) -> str:
    """Search for documents.

    Args:
        query: A question or a few keywords.

    Returns:
        The documents in JSON.
    """
    return json.dumps(find(query), ensure_ascii=False)
'''
"""The tool of the policy, around the function of `search.py` with the name `find`."""


def search_module(start: Start, dialect: str | None = None) -> str:
    """Return the file SEARCH_MODULE for a dialect, by default that of the recipe."""
    return _SEARCH.format(name=start.name, dialect=dialect or start.dialect)


@dataclass(frozen=True)
class ScriptWriter:
    """A function that writes the scripts of one trainer, and a check of them.

    write           returns the files by name, with their text
    package         name of the trainer's package
    check           code for a separate process, in which `folder` is defined. It prints a JSON
                    object whose `unknown` lists the settings that the installed trainer does not
                    have.
    has_components  whether the trainer normalizes components one by one
    """

    write: Callable[[Start], dict[str, str]]
    package: str
    check: str
    has_components: bool = False


READ_SHELL_SETTINGS = """
import json, re, shlex
from pathlib import Path
text = (Path(folder) / "train.sh").read_text()
array = text[text.index("settings=(") + len("settings=(") : text.index("\\n)\\n")]
words = shlex.split(array, comments=True)
"""
"""The beginning of a check: it reads the settings of `train.sh` as `words`."""


# --- lines -------------------------------------------------------------------------------------


def assignment(key: str, stated: Stated[Any], render: Callable[[Any], str] = str) -> Line:
    """Return a line `KEY=VALUE` under the source of the value."""
    return stated.source, (f"{key}={render(stated.value)}",)


def flag(comment: str, name: str, *values: Any) -> Line:
    """Return a line `--NAME VALUE` under a comment."""
    return comment, (name, *map(str, values))


def stated_flag(name: str, stated: Stated[Any]) -> Line:
    """Return a line `--NAME VALUE` under the source of the value."""
    return flag(stated.source, name, stated.value)


def indented(lines: Iterable[Line], write: Callable[[tuple[str, ...]], str]) -> str:
    """Return one indented line per setting. Consecutive lines share an equal comment."""
    return "\n".join(_indented(lines, write))


def _indented(lines: Iterable[Line], write: Callable[[tuple[str, ...]], str]) -> Iterator[str]:
    previous = None
    for comment, words in lines:
        if comment != previous:
            yield f"    # {comment}"
        previous = comment
        yield f"    {write(words)}"


# --- shell scripts and Python ------------------------------------------------------------------


def shell_script(
    start: Start, trainer: str, lines: Iterable[Line], command: str, note: str = ""
) -> str:
    """Return a script that runs a command with these settings and with those of its caller."""
    return (
        f"#!/usr/bin/env bash\n# GRPO with {trainer}, with the reward {start.name}. Further "
        'settings on the command line take precedence.\nset -euo pipefail\ncd "$(dirname "$0")"\n'
        f'{note}\nsettings=(\n{indented(lines, _shell_words)}\n)\n{command} "${{settings[@]}}" '
        '"$@"\n'
    )


def _shell_words(words: tuple[str, ...]) -> str:
    return " ".join(f'"{word}"' if _in_folder(word) else shlex.quote(word) for word in words)


def _in_folder(word: str) -> bool:
    """Return whether a word is a path in the folder of the script, or sets a key to such a path."""
    return word.startswith(HERE) or _KEY_IN_FOLDER.fullmatch(word) is not None


def python_call(function: str, options: dict[str, Any], *, first: str | None = None) -> str:
    """Return a call with keyword arguments; the option `first` is a positional argument.

    >>> python_call("reward", {"recipe": "arena", "hardened": True}, first="recipe")
    'reward("arena", hardened=True)'
    """
    arguments = [
        python_value(value) if name == first else f"{name}={python_value(value)}"
        for name, value in options.items()
    ]
    return f"{function}({', '.join(arguments)})"


def python_names(function: str, names: Iterable[str]) -> str:
    """Return a call with these names as its arguments.

    >>> python_names("reward.components", ["outcome", "format"])
    'reward.components("outcome", "format")'
    """
    return f"{function}({', '.join(map(python_value, names))})"


def python_value(value: Any) -> str:
    """Return a value as Python code, text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)

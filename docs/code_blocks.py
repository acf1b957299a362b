"""Code blocks of the documentation: how a page marks them, and a check of their syntax.

A block is a fence with a language and, if necessary, marks: three backticks, then `sh network`. The
tests run a block without a mark. They check the syntax of a block with a mark of `MARKS`. A block
with the name of a trainer runs inside this trainer.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from paper_references import option_error

ROOT = Path(__file__).resolve().parents[1]
MARKS = {
    "gpu": "needs a GPU, or a language model that is too large for a test",
    "cluster": "needs several machines",
    "network": "needs a download, a server or an account",
}
"""The reasons for which the tests do not run a block."""
TRAINERS = frozenset(
    path.name.replace("_", "-") for path in (ROOT / "tests" / "trainers").iterdir() if path.is_dir()
)
"""The trainers whose tests run the blocks with their name: the folders of tests/trainers."""

_FENCE = re.compile(r"^( *)```([^`\n]*)\n(.*?)^\1``` *$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LIST_ITEM = re.compile(r"(?:[-*+]|\d+\.|\[\^[^\]]+\]:) ")
_COMMAND = re.compile(r"^(?:rag-rewards|pip install|make|python3?) [-a-z.]", re.MULTILINE)
_IMPORT = re.compile(r"^(?:import|from) \w", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fence: its language, marks and code, the heading above it, and its line number."""

    language: str
    marks: tuple[str, ...]
    code: str
    heading: str
    line: int

    @property
    def is_run(self) -> bool:
        """Whether a test runs the block."""
        return not set(self.marks) & MARKS.keys()

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block. A continued command is one line; comments are left out."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [line for line in lines if line and not line.startswith("#")]


def blocks(text: str) -> list[Block]:
    """Return the fences of a page in their order."""
    return [
        Block(
            (words := fence[2].split() or [""])[0],
            tuple(words[1:]),
            textwrap.dedent(fence[3]),
            _heading_before(text[: fence.start()]),
            text.count("\n", 0, fence.start()) + 1,
        )
        for fence in _FENCE.finditer(text)
    ]


def _heading_before(text: str) -> str:
    bare = _FENCE.sub("", text)  # a comment in a shell block is no heading
    return (_HEADING.findall(bare) or [""])[-1]


def block_error(block: Block) -> str:
    """Return what is wrong with the fence or with the syntax of its code, or ""."""
    check = _CHECKS.get(block.language)
    if check is None:
        return f"language {block.language!r}: use one of {', '.join(sorted(_CHECKS))}"
    unknown = set(block.marks) - MARKS.keys() - TRAINERS
    if unknown:
        known = ", ".join([*MARKS, *sorted(TRAINERS)])
        return f"mark {sorted(unknown)[0]!r}: use one of {known}"
    if block.language == "flags" and not block.marks:
        return "flags: add the name of the trainer whose tests check them"
    return check(block.code)


def indented_code(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of the first line of each indented block, without a fence."""
    indentation, after_blank = 4, True  # in a list, the code is four spaces after the text
    bare = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for number, line in enumerate(bare.splitlines(), start=1):
        if line.startswith(" " * indentation) and after_blank and line.strip():
            yield number, line
        elif line.strip() and not line.startswith(" "):
            item = _LIST_ITEM.match(line)
            indentation = 4 + (item.end() if item and item[0][0] != "[" else 4 if item else 0)
        after_blank = not line.strip()


def _python_error(code: str) -> str:
    try:
        ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    return ""


def _shell_error(code: str) -> str:
    """Check the shell syntax, and the options of the commands of this package."""
    command = ["bash", "-n"]
    done = subprocess.run(  # noqa: S603 (-n reads the code and runs nothing)
        command, input=code, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip()
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("rag-rewards ") and (error := option_error(line)):
            return error
    return ""


def _json_error(code: str) -> str:
    try:
        for text in code.splitlines() if _is_lines(code) else [code]:
            json.loads(text)
    except ValueError as error:
        return str(error)
    return ""


def _is_lines(code: str) -> bool:
    """Return whether every line is an object, as in a JSONL file."""
    return all(line.startswith("{") and line.endswith("}") for line in code.splitlines())


def _yaml_error(code: str) -> str:
    try:
        yaml.safe_load(code)
    except yaml.YAMLError as error:
        return str(error)
    return ""


def _toml_error(code: str) -> str:
    if sys.version_info < (3, 11):
        return ""  # the standard library reads TOML since 3.11
    import tomllib

    try:
        tomllib.loads(code)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    return ""


def _flags_error(code: str) -> str:
    try:
        words = shlex.split(code)
    except ValueError as error:
        return str(error)
    return "" if words else "no flags"


def _text_error(code: str) -> str:
    """Refuse commands and programs in a block that no test reads."""
    found = _COMMAND.search(code) or _IMPORT.search(code)
    return f"{found[0].strip()!r} is code: name its language instead of text" if found else ""


_CHECKS: dict[str, Callable[[str], str]] = {
    "python": _python_error,
    "sh": _shell_error,
    "json": _json_error,
    "yaml": _yaml_error,
    "toml": _toml_error,
    "flags": _flags_error,
    "text": _text_error,
}

"""Check the references of docs/papers/*.yaml: names, commands, settings, files, tests and results.

Each function returns an error message, or "" if the reference exists.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from rag_rewards.cli.app import make_app
from rag_rewards.cli.recipe_options import parse_settings
from rag_rewards.datasets.catalog import data_set
from rag_rewards.errors import RagRewardsError, UsageError
from rag_rewards.metrics.metric_names import metrics_of
from rag_rewards.preparation.options import presets
from rag_rewards.prompts import prompt_named
from rag_rewards.recipes import RECIPES, definition_of, recipe
from rag_rewards.scripts import SCRIPTS
from rag_rewards.selection.training_sets import Style, TrainingSetKind

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results/"
NOT_IN_A_CLONE = "shared"
"""The fixture of data next to the repository. A test that needs it is skipped without this data."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAME = re.compile(r"rag_rewards(?:_adapters)?(?:\.\w+)*:\w+(?:\.\w+)*")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FIRST_CELL = re.compile(r"^\| ([^|\n]+?) \|", re.MULTILINE)


def place_error(reference: str) -> str:
    """Check where an item is: a Python name, a command line, settings of a recipe, or a file.

    >>> place_error("rag_rewards.rewards.citation:citation_recall")
    ''
    >>> place_error("ctrl-rag loo=mean"), place_error("rag-rewards prepare hotpotqa --top 5")
    ('', '')
    >>> place_error("docs/nothing.md")
    'docs/nothing.md: no such file'
    """
    if _NAME.fullmatch(reference):
        return _name_error(reference)
    if reference.startswith("rag-rewards "):
        return _command_error(reference)
    if reference.split(" ", 1)[0] in RECIPES:
        return _settings_error(reference)
    return _file_error(reference)


def evidence_error(reference: str) -> str:
    """Check what shows an item: a test, or a page of results with a heading or a row of a table.

    >>> evidence_error("tests/rewards/test_citation.py::test_citation_recall")
    ''
    >>> evidence_error("benchmarks/results/teaches/ctrl_rag.md#gate")
    ''
    >>> evidence_error("docs/index.md")
    'docs/index.md: neither a test nor a page of results'
    """
    if reference.startswith("tests/"):
        return _test_error(reference)
    if reference.startswith(RESULTS):
        return _file_error(reference)
    return f"{reference}: neither a test nor a page of results"


def _name_error(reference: str) -> str:
    module, _, name = reference.partition(":")
    try:
        value: Any = import_module(module)
    except ImportError as error:
        if error.name and not error.name.startswith("rag_rewards") and name in _definitions(module):
            return ""  # the module needs a package that is not installed, such as a trainer
        return f"{reference}: {error}"
    for part in name.split("."):
        fields = getattr(value, "__struct_fields__", ()) or getattr(
            value, "__dataclass_fields__", ()
        )
        if part in fields:
            return ""
        if not hasattr(value, part):
            return f"{reference}: {part!r} does not exist"
        value = getattr(value, part)
    return ""


def _definitions(module: str) -> set[str]:
    """Return the names of the functions and classes of a module without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return set()
    body = ast.parse(Path(spec.origin).read_text("utf-8")).body
    return {node.name for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}


def _command_error(reference: str) -> str:
    """Check the command, its options, and the values of options that name something."""
    _, command, *words = shlex.split(reference)
    if error := option_error(reference):
        return error
    try:
        _check_values(command, words)
    except RagRewardsError as error:
        return f"{reference}: {error}"
    return ""


def option_error(line: str) -> str:
    """Check the command and the names of the options of a command line.

    >>> option_error("rag-rewards score rows.jsonl --recipes arena")
    "rag-rewards score rows.jsonl --recipes arena: no option '--recipes'"
    """
    _, command, *words = shlex.split(line, comments=True)
    options = _options(command)
    if options is None:
        return f"{line}: no command {command!r}"
    for word in words:
        if word.startswith("-") and word != "-" and word.partition("=")[0] not in options:
            return f"{line}: no option {word!r}"
    return ""


@cache
def _options(command: str) -> frozenset[str] | None:
    app = make_app()
    if command not in app:
        return None
    collection = app[command].assemble_argument_collection(parse_docstring=True)
    return frozenset(name for argument in collection for name in argument.names)


def _check_values(command: str, words: list[str]) -> None:
    """Raise an error for an unknown recipe, setting, metric, preset or data set."""
    values: dict[str, list[str]] = {}
    for option, value in pairwise(words):
        values.setdefault(option, []).append(value)
    for name in values.get("-r", []):
        recipe(name, parse_settings(values.get("--set", [])))
        for prompt in values.get("--prompt", []):
            prompt_named(prompt, definition_of(name).prompts, name)
    for names in values.get("--metrics", []):
        metrics_of([names])
    for name in values.get("--preset", []):
        if name not in presets():
            raise UsageError(f"unknown preset {name!r}")
    if command == "prepare" and words and not words[0].startswith("-"):
        data_set(words[0])
    for option, names in (("--make", get_args(TrainingSetKind)), ("--style", get_args(Style))):
        for name in values.get(option, []):
            if name not in names:
                raise UsageError(f"unknown value {name!r} of {option}")
    if command == "init" and words[0] not in SCRIPTS:
        raise UsageError(f"unknown trainer {words[0]!r}")


def _settings_error(reference: str) -> str:
    """Check settings of a recipe, or published training values as in `arena training.group=7`."""
    name, *pairs = shlex.split(reference)
    settings: dict[str, Any] = {}
    for key, value in parse_settings(pairs).items():
        if not key.startswith("training."):
            settings[key] = value
            continue
        stated = getattr(definition_of(name).training, key.removeprefix("training."), None)
        if stated is None:
            return f"{reference}: no training value {key!r}"
        if stated.value != value:
            return f"{reference}: the value of {key} is {stated.value}"
    try:
        recipe(name, settings)
    except RagRewardsError as error:
        return f"{reference}: {error}"
    return ""


def _file_error(reference: str) -> str:
    path, _, anchor = reference.partition("#")
    if not (ROOT / path).is_file():
        return f"{path}: no such file"
    if anchor and anchor not in _anchors(path):
        return f"{reference}: no heading and no row of a table has this text"
    return ""


@cache
def _anchors(path: str) -> frozenset[str]:
    text = (ROOT / path).read_text("utf-8")
    return frozenset(_HEADING.findall(text)) | frozenset(_FIRST_CELL.findall(text))


def _test_error(reference: str) -> str:
    path, *names = reference.split("::")
    if not (ROOT / path).is_file():
        return f"{path}: no such file"
    if not names or tuple(names) not in (functions := _functions(path)):
        return f"{reference}: no such test"
    if not names[-1].startswith("test_"):
        return f"{reference}: no such test"
    if NOT_IN_A_CLONE in _fixtures_of(path, functions[tuple(names)]):
        return f"{reference}: needs `{NOT_IN_A_CLONE}`, which a clone of the repository lacks"
    return ""


def _fixtures_of(path: str, parameters: Iterable[str]) -> set[str]:
    """Return the parameters of a test and of its fixtures."""
    folders = [folder for folder in Path(path).parents if folder.parts]
    files = [path, *(str(folder / "conftest.py") for folder in folders)]
    available = [_functions(file) for file in files if (ROOT / file).is_file()]
    found: set[str] = set()
    todo = list(parameters)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += next((each[name,] for each in available if (name,) in each), ())
    return found


@cache
def _functions(path: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the parameters of each function and method of a file."""
    functions: dict[tuple[str, ...], tuple[str, ...]] = {}
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        names = (node.name,) if isinstance(node, ast.ClassDef) else ()
        for each in members:
            if isinstance(each, _FUNCTIONS):
                functions[(*names, each.name)] = tuple(argument.arg for argument in each.args.args)
    return functions

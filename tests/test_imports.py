"""What importing the package loads, and which part of it may know which other."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rag_rewards"
HEAVY = "torch transformers numpy pandas pyarrow typer rich pydantic yaml".split()

LAYERS = [
    ["version", "errors"],
    ["models"],
    ["backends", "testing"],
    ["text"],
    ["rollout"],
    ["prompts"],
    ["evidence", "settings", "labels"],
    ["training.advantages", "training.kl", "training.published"],
    ["rewards"],
    ["compose"],
    ["blueprints"],
    ["recipes", "training.curriculum"],
    ["scoring", "contexts"],
    ["gathering"],
    ["grading"],
    ["attacks"],
    ["audit"],
    ["reading", "writing", "workers", "report", "server"],
    ["datasets", "metrics"],
    ["commands"],
    ["cli.option", "cli.output"],
    ["cli"],
    ["__main__"],
]
"""From below to above: a module imports from its own layer and from those below it."""

LATER = {("scoring", "report")}
"""Imports from above that a function makes when it is called: the reasons on a terminal."""


def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def layer_of(name: str) -> tuple[int, str]:
    """The layer of a module, and the entry that put it there."""
    for level, entries in enumerate(LAYERS):
        for entry in entries:
            if name == entry or name.startswith(f"{entry}."):
                return level, entry
    raise AssertionError(f"module {name} has no layer: add it to LAYERS")


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, and whether it does so when it is itself imported."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        at_once = id(node) not in inside
        if isinstance(node, ast.Import):
            found += [(alias.name, at_once) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                whole = f"{base}.{alias.name}".removeprefix("rag_rewards.")
                found.append((f"rag_rewards.{whole}" if whole in MODULES else base, at_once))
    return found


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("", "training")])
def test_a_module_imports_from_below(name):
    level, entry = layer_of(name)
    for imported, at_once in imports_of(MODULES[name]):
        assert not imported.startswith("rag_rewards_adapters"), f"{name} imports an adapter"
        if not imported.startswith("rag_rewards."):
            assert imported != "rag_rewards", f"{name} imports the whole package"
            continue
        other = imported.removeprefix("rag_rewards.")
        other_level, other_entry = layer_of(other)
        if other_level > level:
            assert not at_once, f"{name} imports {other}, which lies above it"
            assert (entry, other_entry) in LATER, f"{name} imports {other}, which lies above it"


def test_text_imports_text_alone():
    for name, path in MODULES.items():
        if name.split(".")[0] != "text":
            continue
        for imported, _ in imports_of(path):
            if imported.startswith("rag_rewards"):
                assert imported.split(".")[1] in ("text", "errors"), f"{name} imports {imported}"


WRITE_OF_THEM = {"commands.doctor", "commands.init"}
"""Modules with code for other processes: what a trainer's script says, what a plugin is asked."""


def test_nothing_knows_the_adapters():
    for name, path in MODULES.items():
        assert not any("rag_rewards_adapters" in known for known, _ in imports_of(path)), name
        if name not in WRITE_OF_THEM:
            assert "rag_rewards_adapters" not in path.read_text("utf-8"), name


@pytest.mark.parametrize("module", ["rag_rewards", "rag_rewards.scoring", "rag_rewards.workers"])
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    code = code.replace(repr(HEAVY), repr(set(HEAVY)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_command_line_loads_commands_when_they_run():
    code = "import sys, rag_rewards.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "rag_rewards.cli.score" in loaded
    assert not (set(HEAVY) - {"typer", "rich"}) & loaded
    others = {name for name in loaded if name.startswith("rag_rewards.")}
    others = {name for name in others if not name.startswith("rag_rewards.cli")}
    assert others == {"rag_rewards.errors", "rag_rewards.version"}


def test_scoring_loads_nothing_heavy():
    code = (
        "import sys, rag_rewards as rr\n"
        "for name in rr.RECIPES: rr.recipe(name)\n"
        "row = {'response': '<think>x</think><answer>Paris</answer>', 'answers': 'Paris'}\n"
        "rr.recipe('naive-grpo')([rr.decode_row(row)])\n"
        f"print(*sorted({set(HEAVY)!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

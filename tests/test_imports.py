"""The layers of the imports, and the modules that an import loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rag_rewards"
HEAVY = "torch transformers numpy pandas pyarrow cyclopts rich pydantic yaml".split()

LAYERS = [
    [
        "public_names",
        "report.terminal",
        "errors",
        "settings",
        "trainers",
        "scripts.packages",
        "scripts.model_types",
        "scripts.checks",
        "scoring.run_id",
        "recipes.code_digest",
    ],
    ["text"],
    ["matching"],
    ["turns"],
    ["evidence.values"],
    ["rollout"],
    ["signature"],
    ["prompts"],
    ["rows"],
    ["groups"],
    ["evidence"],
    ["files"],
    ["models", "testing"],
    [
        "training.advantages",
        "training.kl",
        "training.settings",
        "training.credit",
        "training.turn_sums",
    ],
    ["reward", "rewards"],
    ["compose"],
    ["definition"],
    ["recipe_object"],
    ["recipes.sample"],
    ["recipes", "training.curriculum"],
    ["loading", "models.model_options", "scoring.ray_cluster", "training.openrlhf"],
    ["scoring.dump_rows", "scoring.rotating_file", "scoring.rollout_dump"],
    ["scorer"],
    ["scripts"],
    ["audit"],
    ["scoring", "tables"],
    ["datasets"],
    ["metrics"],
    ["report", "server", "scoring.replay"],
    ["preparation"],
    ["selection", "calibration"],
    ["tiny_world"],
    ["cli.recipe_options"],
    ["cli.options", "cli.output"],
    ["cli"],
    ["__main__"],
]
"""From low to high: a module imports from its own layer and from lower layers."""


def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def layer_of(name: str) -> int:
    """Return the layer of a module: that of the longest entry which contains it."""
    levels = {entry: level for level, entries in enumerate(LAYERS) for entry in entries}
    while name not in levels:
        assert name, "a module has no layer: add it to LAYERS"
        name = name.rpartition(".")[0]
    return levels[name]


@cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Return the modules that a file imports, each with whether it is imported at once."""
    tree = ast.parse(path.read_text("utf-8"))
    deferred = filter(_is_deferred, ast.walk(tree))
    inside = {id(node) for block in deferred for node in ast.walk(block)}
    result: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        at_once = id(node) not in inside
        if isinstance(node, ast.Import):
            result += [(alias.name, at_once) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names = [alias.name for alias in node.names if alias.name != "__version__"]
            for name in names:
                whole = f"{base}.{name}".removeprefix("rag_rewards.")
                result.append((f"rag_rewards.{whole}" if whole in MODULES else base, at_once))
    return result


def _is_deferred(node: ast.AST) -> bool:
    """Return whether the imports inside run later: in a function, or only for types."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def test_a_module_imports_from_below():
    above = [
        f"{name} imports {imported}"
        for name in MODULES.keys() - {"", "training"}
        for imported, _ in imports_of(MODULES[name])
        if imported == "rag_rewards"
        or (
            imported.startswith("rag_rewards.")
            and layer_of(imported.removeprefix("rag_rewards.")) > layer_of(name)
        )
    ]
    assert above == [], "(the whole package, or modules in a higher layer)"


def test_no_module_imports_itself_through_others():
    graph = {
        name: {imported.removeprefix("rag_rewards.") for imported, _ in imports_of(path)}
        for name, path in MODULES.items()
    }
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the modules


def test_no_two_folders_import_each_other():
    """A folder and a folder inside of it can, and the modules of the root are no folder."""
    edges = {
        (_folder(name), _folder(imported.removeprefix("rag_rewards.")))
        for name, path in MODULES.items()
        for imported, _ in imports_of(path)
        if imported.removeprefix("rag_rewards.") in MODULES
    }
    both = {(a, b) for a, b in edges if a < b and (b, a) in edges}
    assert {(a, b) for a, b in both if a and not b.startswith(f"{a}.")} == set()


def _folder(name: str) -> str:
    return ".".join(MODULES[name].relative_to(PACKAGE).parent.parts)


def test_text_imports_only_text():
    for name, path in MODULES.items():
        if name.split(".")[0] != "text":
            continue
        for imported, _ in imports_of(path):
            if imported.startswith("rag_rewards"):
                assert imported.split(".")[1] in ("text", "errors", "settings"), (
                    f"{name} imports {imported}"
                )


def test_only_the_learning_adversary_and_trials_import_the_tiny_world():
    importers = {
        (name, at_once)
        for name, path in MODULES.items()
        for imported, at_once in imports_of(path)
        if imported.startswith("rag_rewards.tiny_world") and not name.startswith("tiny_world")
    }
    assert importers == {("cli.audit", False), ("cli.init", False)}


WRITE_OF_THEM = {"cli.doctor", "trainers"}
"""Modules with code for other processes: what a trainer's script says, what a plugin is asked."""
TRAIN = {"tiny_world.train"}
"""The module that trains: it imports the TRL adapter inside a function."""


def test_only_training_imports_the_adapters():
    for name, path in MODULES.items():
        for imported, at_once in imports_of(path):
            if imported.startswith("rag_rewards_adapters"):
                assert (name in TRAIN, at_once) == (True, False), f"{name} imports {imported}"
        if name not in WRITE_OF_THEM | TRAIN:
            assert "rag_rewards_adapters" not in path.read_text("utf-8"), name


def test_no_adapter_imports_the_server_or_an_alias():
    """An alias is a module that only keeps a name which the files of users contain."""
    aliases = {"nemo_gym_server", "openrlhf_agent"}
    for path in (PACKAGE.parent / "adapters").rglob("*.py"):
        for imported, _ in imports_of(path):
            assert not imported.startswith("rag_rewards.server"), path
            assert imported.removeprefix("rag_rewards_adapters.") not in aliases, path


@pytest.mark.parametrize(
    "module", ["rag_rewards", "rag_rewards.scorer", "rag_rewards.scoring.workers"]
)
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    code = code.replace(repr(HEAVY), repr(set(HEAVY)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_command_line_loads_commands_when_they_run():
    code = "import sys, rag_rewards.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "rag_rewards.cli.score" not in loaded
    assert not (set(HEAVY) - {"cyclopts"}) & loaded
    others = {name for name in loaded if name.startswith("rag_rewards.")}
    others = {name for name in others if not name.startswith("rag_rewards.cli")}
    assert others == {"rag_rewards.public_names"}


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


@pytest.mark.parametrize("package", ["rag_rewards", "rag_rewards.rewards", "rag_rewards.metrics"])
def test_the_names_of_a_stub_are_the_public_names(package):
    module = import_module(package)
    assert len(module.__all__) > 30
    assert all(hasattr(module, name) for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        getattr(module, "absent")  # noqa: B009

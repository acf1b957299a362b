"""Change the source in single places, and count how many of these faults the tests find.

    python tests/mutation/mutate.py                      # 200 mutations, by a new seed
    python tests/mutation/mutate.py --seed 7 --count 50 --folder rewards

A mutation replaces one operator, constant or condition. The script works in a copy of the
repository in build/mutation, so that the tree stays clean if it is killed. It appends each result
to build/mutation/SEED.jsonl and continues there when it is started again with the same seed. The
last output is a table by folder, with the place of each mutation that no test finds.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
TREE = WORK / "tree"
PACKAGES = (Path("rag_rewards"), Path("adapters/rag_rewards_adapters"))
TIMEOUT = 900
"""Seconds for the tests of one stage. A mutation whose tests take longer is found."""
SCORES = ("golden", "recipes", "rewards", "attacks", "test_recipe_object.py", "test_docs.py")
"""Tests of scores, which run most of the core."""
ALSO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("text matching rewards recipes turns evidence rows".split(), SCORES),
    "": SCORES,
    "audit": ("attacks",),
    "training": ("credit", "test_training.py", "cli"),
    "datasets": ("data_sets",),
    "preparation": ("data_sets", "cli"),
    "selection": ("cli",),
    "files": ("storage", "scoring", "cli"),
    "scoring": ("determinism", "cli"),
    "adapters": ("test_own_recipes.py", "credit"),
}
"""Test folders and files beside the folder of the same name, by folder of the source."""
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutation(NamedTuple):
    """A replacement of the bytes from `start` to `end` of a file."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def folder(self) -> str:
        """The folder below the package; "" is the root of the package."""
        parts = Path(self.path).parts
        return "adapters" if parts[0] == "adapters" else parts[1] if len(parts) > 2 else ""


def mutations(path: Path) -> Iterator[Mutation]:
    """Yield all mutations of a file, in the order of the source."""
    text = path.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _expressions(ast.parse(text)):
        for mutated in _variants(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            name = path.relative_to(TREE).as_posix()
            new = f"({ast.unparse(mutated)})"
            yield Mutation(name, node.lineno, start, end, text[start:end].decode(), new)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that run, without annotations, string parts and checks for types."""
    if isinstance(node, ast.JoinedStr):
        return  # the positions inside are wrong before Python 3.12
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "type_params"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _expressions(child)


def _variants(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield _with(node, ops=[OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OPERATORS:
        yield _with(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        is_switch = isinstance(node.value, bool)
        yield _with(node, value=not node.value if is_switch else node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _with(node: ast.expr, **changes: object) -> ast.expr:
    mutated = copy.copy(node)
    for name, value in changes.items():
        setattr(mutated, name, value)
    return mutated


def chosen(seed: int, count: int, folder: str | None) -> list[Mutation]:
    """Return random mutations: at least one of each folder, and the others from all places."""
    files = sorted(path for package in PACKAGES for path in (TREE / package).rglob("*.py"))
    places = [each for path in files for each in mutations(path)]
    if folder is not None:
        places = [each for each in places if each.folder == folder]
        if not places:
            raise SystemExit(f"--folder {folder}: this folder has no source: use a name of a table")
    random.Random(seed).shuffle(places)
    first = {each.folder: each for each in reversed(places)}
    rest = [each for each in places if each is not first[each.folder]]
    return [*first.values(), *rest][:count]


# --- tests -------------------------------------------------------------------------------------


def stages(path: str, folder: str) -> list[tuple[str, ...]]:
    """Return the tests of a file: those that name its module, and those of its folder."""
    source = Path(path).relative_to("adapters" if path.startswith("adapters") else "")
    module = ".".join(source.with_suffix("").parts).removesuffix(".__init__")
    named = [name for name, text in _test_files().items() if re.search(rf"{module}\b", text)]
    mirror = [folder, f"test_{source.stem}.py", *ALSO.get(folder, ())]
    rest = [f"tests/{name}" for name in mirror if name and (TREE / "tests" / name).exists()]
    return [each for each in (tuple(named), tuple(dict.fromkeys(rest))) if each]


@cache
def _test_files() -> dict[str, str]:
    others = ("trainers", "on_vllm", "on_ray", "soak")
    paths = [path.relative_to(TREE) for path in sorted((TREE / "tests").rglob("test_*.py"))]
    return {str(p): (TREE / p).read_text("utf-8") for p in paths if p.parts[1] not in others}


def failure(paths: tuple[str, ...], without: set[str]) -> str:
    """Return the first test that fails, "" if all pass, or a message if no test is at fault."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", *paths, *(f"--deselect={each}" for each in without)]
    path = os.pathsep.join([str(TREE), str(TREE / "adapters")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return f"longer than {TIMEOUT} s"
    if ran.returncode in (0, 5):  # 5: no test is left
        return ""
    match = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ran.stdout, re.M)
    output = (ran.stdout + ran.stderr).strip()
    return match[1] if match else f"pytest ended with {ran.returncode}: {output.splitlines()[-1:]}"


@cache
def failure_without_mutation(paths: tuple[str, ...], without: frozenset[str]) -> str:
    """Return the result of tests on the unchanged file."""
    return failure(paths, set(without))


def finder(mutation: Mutation, broken: set[str]) -> str:
    """Return the first test that finds a mutation, or "".

    A test that fails without the mutation as well is added to `broken`. Stops if the tests cannot
    run without the mutation either.
    """
    file = TREE / mutation.path
    text = file.read_bytes()
    mutated = text[: mutation.start] + mutation.new.encode() + text[mutation.end :]
    for paths in stages(mutation.path, mutation.folder):
        while True:
            file.write_bytes(mutated)
            name = failure(paths, broken)
            file.write_bytes(text)
            if not name or name in broken:
                break
            if not name.startswith("tests/"):
                if fault := failure_without_mutation(paths, frozenset(broken)):
                    raise SystemExit(f"without a mutation, {' '.join(paths)}: {fault}")
                return name
            if not failure((name,), set()):
                return name
            broken.add(name)
    return ""


def make_tree() -> None:
    """Copy the files of the repository, as they are now."""
    shutil.rmtree(TREE, ignore_errors=True)
    list_files = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(list_files, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)
    if (ROOT.parent / "shared").exists() and not (WORK / "shared").exists():
        (WORK / "shared").symlink_to(ROOT.parent / "shared")


def table(results: list[dict[str, str | int]]) -> str:
    """Return the table by folder, and the places of the mutations that no test finds."""
    lines = ["| folder | mutations | caught | share |", "| --- | --- | --- | --- |"]
    for folder in [*sorted({str(each["folder"]) for each in results}), None]:
        rows = [each for each in results if folder in (None, each["folder"])]
        caught = sum(bool(each["test"]) for each in rows)
        name = "all" if folder is None else folder or "(root)"
        lines.append(f"| {name} | {len(rows)} | {caught} | {caught / len(rows):.0%} |")
    survivors = [each for each in results if not each["test"]]
    lines += ["", *(f"{s['path']}:{s['line']}: {s['old']} -> {s['new']}" for s in survivors)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--folder", help="a folder of the package, or adapters")
    options = parser.parse_args()
    make_tree()
    log = WORK / f"{options.seed}.jsonl"
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(each["path"], each["start"], each["new"]) for each in results}
    broken: set[str] = set()
    with log.open("a") as file:
        for mutation in chosen(options.seed, options.count, options.folder):
            if (mutation.path, mutation.start, mutation.new) not in done:
                result = mutation._asdict() | {
                    "folder": mutation.folder,
                    "test": finder(mutation, broken),
                }
                results.append(result)
                file.write(json.dumps(result) + "\n")
                file.flush()
                print(
                    f"{mutation.path}:{mutation.line}: {result['test'] or 'SURVIVED'}", flush=True
                )
    print(f"\nseed {options.seed}\n\n{table(results)}")


if __name__ == "__main__":
    main()

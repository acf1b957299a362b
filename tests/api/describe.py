"""Describe the public names: Python, command line, HTTP routes and entry points.

    python tests/api/describe.py

A public name of Python is a name in `__all__` of `rag_rewards` and its packages, or a public method
of such a class. griffe reads the signatures from the source, without an import.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("public-names.json")

PACKAGES = {
    "rag_rewards": ["", "rewards", "metrics", "training", "testing", "turns", "errors"],
    "rag_rewards_adapters": (
        "callables trl verl openrlhf ms_swift skyrl slime verifiers tinker nemo_gym".split()
    ),
}
"""The modules with public names, by package."""


def description() -> dict[str, str]:
    """Return a text for each public name: a signature, a value or a target."""
    return dict(sorted([*_python(), *_options(), *_routes(), *_entry_points()]))


def _python() -> Iterator[tuple[str, str]]:
    for package, modules in PACKAGES.items():
        tree = griffe.load(package, search_paths=[ROOT, ROOT / "adapters"], allow_inspection=False)
        for name in modules:
            module = tree[name] if name else tree
            for member in module.members.values():
                if not member.name.startswith("_"):
                    yield from _member(module, member)


def _member(module: griffe.Object, member: griffe.Object | griffe.Alias) -> Iterator:
    """Yield a name that is defined in this package, with the public methods of a class."""
    try:
        target = member.final_target if member.is_alias else member
    except griffe.AliasResolutionError:
        return
    # A module also contains the names that it imports for itself.
    is_stub = str(module.filepath).endswith("__init__.pyi")
    is_own = f"{target.module.path}.".startswith(f"{module.path}.")
    if not (is_own or is_stub) or target.package.name not in PACKAGES or target.is_module:
        return
    name = f"{module.path}.{member.name}"
    if target.is_function:
        yield f"function {name}", signature(target.parameters)
    elif target.is_class:
        yield (
            f"class {name}",
            signature(target.parameters) if target.parameters else _fields(target),
        )
        for method in target.all_members.values():  # also inherited ones
            if method.is_function and not method.name.startswith("_"):
                yield f"function {name}.{method.name}", signature(method.parameters)
    else:
        yield f"value {name}", ""


def _fields(record: griffe.Class) -> str:
    """Return the fields of a class without a constructor, in the form of a signature."""
    fields = [
        each.name if each.value is None else f"{each.name}={each.value}"
        for each in record.attributes.values()
        if each.annotation is not None
        and not each.name.startswith("_")
        and "property" not in each.labels
    ]
    has_default = ["=" in field for field in fields]
    # Only a record with named fields alone has a required field after an optional one.
    named = ["*"] if has_default != sorted(has_default) else []
    return f"({', '.join([*named, *fields])})"


def signature(parameters: griffe.Parameters) -> str:
    """Return the names, the kinds and the defaults of parameters."""
    texts, keyword_only = [], False
    for each in parameters:
        kind = each.kind.value if each.kind else ""
        if kind == "keyword-only" and not keyword_only:
            keyword_only = True
            texts.append("*")
        keyword_only = keyword_only or kind == "variadic positional"
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        is_required = each.default is None or bool(stars)
        texts.append(stars + each.name + ("" if is_required else f"={each.default}"))
    return f"({', '.join(texts)})"


def _options() -> Iterator[tuple[str, str]]:
    from rag_rewards.cli.app import COMMANDS, make_app

    for command in COMMANDS:
        for argument in make_app()[command].assemble_argument_collection(parse_docstring=True):
            for name in argument.names:
                yield f"option {command} {name}", str(argument.required)


def _routes() -> Iterator[tuple[str, str]]:
    from rag_rewards.server.routes import ROUTES

    yield from ((f"route {route.method} {route.path}", "route") for route in ROUTES)


def _entry_points() -> Iterator[tuple[str, str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name, target in project["scripts"].items():
        yield f"entry-point console_scripts {name}", target
    for group, names in project["entry-points"].items():
        yield from ((f"entry-point {group} {name}", target) for name, target in names.items())


def is_compatible(old: str, new: str | None) -> bool:
    """Return whether every call that the old signature allows has the same meaning in the new one.

    The new one can only have more parameters with a default, after the positional ones.
    """
    if new is None or not old.startswith("("):
        return old == new
    if not new.startswith("("):
        return False
    (old_positional, old_named), (new_positional, new_named) = _parameters(old), _parameters(new)
    added = [*new_positional[len(old_positional) :], *(new_named - old_named)]
    return (
        new_positional[: len(old_positional)] == old_positional
        and old_named <= new_named
        and all("=" in each or each.startswith("*") for each in added)
    )


def _parameters(text: str) -> tuple[list[str], set[str]]:
    """Return the positional parameters of a signature, and those that are only named."""
    function = ast.parse(f"def f{text}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    positional = [_text(each, value) for each, value in zip(plain, defaults, strict=True)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    named = {_text(each, value) for each, value in pairs}
    named |= {f"*{each.arg}" for each in (arguments.vararg, arguments.kwarg) if each}
    return positional, named


def _text(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


if __name__ == "__main__":
    FILE.write_text(json.dumps(description(), indent=0, ensure_ascii=False) + "\n", "utf-8")

"""Public names of a package, each imported from its module when it is first used.

The stub `__init__.pyi` of the package lists the names as imports, which type checkers and editors
read. A process that uses one name, as every worker of a trainer does, does not import the others.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from the imports of its stub."""
    modules = _imports(package)
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(modules[name]), name)
        return value

    return get, lambda: sorted({*namespace, *modules}), sorted(modules)


def _imports(package: str) -> dict[str, str]:
    """Return the module of each name that the stub of a package imports."""
    stub = pkgutil.get_data(package, "__init__.pyi") or b""
    return {
        alias.name: str(node.module)
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

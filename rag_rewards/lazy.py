"""Packages whose public names are imported when they are first used.

A process that uses one name, as every worker of a trainer does, does not import the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    `modules` maps each module to its public names, separated by spaces.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(homes[name]), name)
        return value

    return get, lambda: sorted({*namespace, *homes})

"""Doubles of the modules that OpenRLHF imports and that cannot be installed without a GPU.

The files of OpenRLHF itself are the installed ones. Tests call only those parts of the doubles that
they define.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

ABSENT = {"ray", "vllm", "deepspeed", "flash_attn", "peft", "datasets", "torchdata", "PIL"}


class _Absent(ModuleType):
    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder:
    """Creates modules with any attribute, for packages that are not installed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.names:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def installed(name: str) -> bool:
    """Return whether a package is missing. A folder of its name on the path is not a package."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


@contextmanager
def stand_ins() -> Iterator[None]:
    """Allow imports of OpenRLHF's trainer, and remove its modules afterwards."""
    before = set(sys.modules)
    finder = _Finder({name for name in ABSENT if not installed(name)})
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in finder.names | {"openrlhf"}:
                del sys.modules[name]

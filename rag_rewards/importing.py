"""Import of Python objects by a reference: `module:name` or `path/to/file.py:name`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.settings import did_you_mean


def import_object(reference: str) -> Any:
    """Import the object that `module:name` or `path/to/file.py:name` refers to.

    As with `python -m`, the current folder is searched first. Raises UsageError if the module or
    the name does not exist.
    """
    module = import_module_of(reference)
    place, _, name = reference.rpartition(":")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = [each for each in vars(module) if not each.startswith("_")]
            raise UsageError(f"{place} has no object {name!r}{did_you_mean(name, names)}")
        value = getattr(value, part)
    return value


def import_module_of(reference: str) -> ModuleType:
    """Import the module that `module:name` or `path/to/file.py:name` refers to."""
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise UsageError(f"{reference!r} is not of the form module:name or path/to/file.py:name")
    return _file_module(Path(place)) if place.endswith(".py") else _module(place)


def _module(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except Exception as error:  # a module of the user can raise anything
        raise UsageError(
            f"cannot import {name}: {type(error).__name__}: {error}; put the module in {folder}, "
            "or install it"
        ) from error


def _file_module(path: Path) -> ModuleType:
    """Import a file as a module whose name is its path, so that it replaces no other module.

    Its folder becomes the last one of `sys.path`, so that it can import the files beside it.
    """
    name = str(path.resolve())
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, name)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"cannot import {path}: there is no such file")
    module = sys.modules[name] = module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a file of the user can raise anything
        del sys.modules[name]
        raise UsageError(f"cannot import {path}: {type(error).__name__}: {error}") from error
    return module

"""Interpreters of the Python versions that this package supports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return the path of an interpreter of this version, None if the machine has none."""
    return next((path for path in _candidates(version) if version_of(path) == version), None)


def _candidates(version: str) -> Iterator[str]:
    """Yield possible paths: this interpreter, the search path, and the versions of pyenv."""
    yield sys.executable
    if path := shutil.which(f"python{version}"):
        yield path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))


def version_of(path: str) -> str | None:
    """Return the version of an interpreter, such as 3.12, None if it does not start."""
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None

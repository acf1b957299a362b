"""Versions of installed packages, and Python code in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from typing import Any

PROBE_SECONDS = 180


def installed_version(package: str) -> str | None:
    """Return the version of a package from its metadata, or None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def run_isolated(code: str) -> tuple[dict[str, Any] | None, str]:
    """Run Python code in a new process and return the last JSON object that it prints.

    The code cannot affect this process. Returns (object, ""), or (None, reason) if the process
    fails, prints no object, or runs longer than `PROBE_SECONDS`.
    """
    try:
        process = subprocess.run(  # noqa: S603 (this interpreter, code of this package)
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {PROBE_SECONDS} seconds"
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit code {process.returncode}"
    result = _last_object(process.stdout)
    return result, "" if result is not None else "the process printed no result"


def _last_object(output: str) -> dict[str, Any] | None:
    """Return the last line that is a JSON object, because libraries also print lines."""
    for line in reversed(output.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None

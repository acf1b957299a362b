"""Resolve the requirements of each extra for each version of Python: make release-check.

uv resolves without an installation, for Linux on x86-64. Some extras need a newer Python than the
package does; UNSUPPORTED lists them with the reason.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from interpreters import VERSIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
UNSUPPORTED = {
    ("vllm", "3.10"): "vllm needs Python 3.11",
    ("trl", "3.10"): "trl needs Python 3.11",
}


def resolution_error(extra: str, version: str) -> str:
    """Return why the requirements of an extra have no solution, "" if they have one."""
    options = ("--quiet", "--extra", extra, "--python-version", version)
    platform = ("--python-platform", "x86_64-manylinux_2_28")
    command = [sys.executable, "-m", "uv", "pip", "compile", *options, *platform, "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    failures = []
    for extra in project["optional-dependencies"]:
        for version in VERSIONS:
            error = resolution_error(extra, version)
            expected = UNSUPPORTED.get((extra, version))
            if bool(error) == (expected is None):
                failures.append(f"{extra}, Python {version}: {error or 'now has a solution'}")
            outcome = f"no solution, as expected: {expected}" if expected else "resolved"
            print(f"{extra}, Python {version}: {error or outcome}", flush=True)
    if failures:
        raise SystemExit(
            "\n".join(["the extras have other requirements than expected:", *failures])
        )


if __name__ == "__main__":
    main()

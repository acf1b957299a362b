"""Test the package with the oldest dependencies that pyproject.toml allows.

    python tests/lower_bounds/run.py [FOLDER]      (default: build/lower-bounds)

Each `>=` of the core dependencies, EXTRAS and TABLE_LIBRARIES becomes `==`, so that pyproject.toml
is the only source of the versions. The script installs the package with these versions in a virtual
environment and runs a fast part of the tests. It omits the extras that need torch, because they
need gigabytes, and `ray`, because Ray excludes the oldest versions of some core dependencies.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("parquet", "tables", "html", "http", "judge", "server", "otel")
TABLE_LIBRARIES = ("pandas", "polars")
"""Libraries of the extra dev whose data frames the extra tables reads."""
TOOLS = ("pytest", "pytest-xdist", "hypothesis")
# One process each, because two folders have a module with the same name, conftest.
RUNS = (
    (
        "tests/cli/test_rows.py",
        "tests/cli/test_options.py",
        "tests/cli/test_table.py",
        "tests/cli/test_parquet.py",
        "tests/cli/test_doctor.py",
        "tests/data_sets/test_web_pages.py",
        "tests/tables/test_kinds.py",
    ),
    (
        "tests/server/test_routes.py",
        "tests/models/test_judge.py",
        "tests/models/test_http_policies.py",
        "tests/rewards/test_answer.py",
        "tests/text/test_statements.py",
        "tests/test_recipe_object.py",
        "tests/test_rollout.py",
        "tests/test_settings.py",
    ),
)


def lower_bounds(project: Mapping[str, Any]) -> list[str]:
    """Return the requirements of the core, of EXTRAS and of TABLE_LIBRARIES, pinned to `>=`."""
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in extras[extra])]
    libraries = [each for each in map(Requirement, extras["dev"]) if each.name in TABLE_LIBRARIES]
    return [pin(requirement) for requirement in [*map(Requirement, texts), *libraries]]


def pin(requirement: Requirement) -> str:
    """Return `name==version` for the version of the requirement's `>=`."""
    versions = [clause.version for clause in requirement.specifier if clause.operator == ">="]
    if len(versions) != 1:
        raise SystemExit(f"pyproject.toml: {requirement}: set one lower bound with >=")
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={versions[0]}"


def make_environment(folder: Path, pins: list[str]) -> Path:
    """Return the Python of an environment with these versions. Create it if it is missing."""
    python, stamp = folder / "bin" / "python", folder / ".installed"
    content = "\n".join([*pins, *TOOLS])
    if not stamp.is_file() or stamp.read_text() != content:
        stamp.unlink(missing_ok=True)
        run(sys.executable, "-m", "venv", "--clear", folder)
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, *pins, *TOOLS, "--editable", f"{ROOT}[{','.join(EXTRAS)}]")
        stamp.write_text(content)
    return python


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "lower-bounds").resolve()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = lower_bounds(project)
    print("lower bounds:", *pins)
    python = make_environment(folder, pins)
    for paths in RUNS:
        # Old versions may warn about this Python and about each other.
        run(python, "-m", "pytest", "-n", "auto", "-o", "filterwarnings=default", *paths)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)

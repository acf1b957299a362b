"""Equal inputs give equal bytes, whatever the process, its settings and the engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import WAIT_SECONDS
from results import ROOT, write_results

from rag_rewards import RECIPES

LOCALES = {"tr": ("tr_TR", "ISO-8859-9"), "de": ("de_DE", "ISO-8859-1")}
"""Locales and their encodings. Turkish has other small letters for I, German a decimal comma."""

PROCESSES = {
    "POSIX": {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Kathmandu"},
    "tr": {"PYTHONHASHSEED": "2", "LC_ALL": "tr", "TZ": "America/St_Johns"},
    "de": {"PYTHONHASHSEED": "3", "LC_ALL": "de", "TZ": "Pacific/Kiritimati"},
}
"""Environments of processes. Without UTF-8 mode, `open` without an encoding uses the locale's."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the content of all output files that this process writes."""
    folder = tmp_path_factory.mktemp("expected")
    write_results(folder)
    files = contents(folder)
    assert len(files) > 2 * len(RECIPES)
    return files


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of files by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", PROCESSES)
def test_hash_seeds_locales_and_time_zones(
    name: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    changes = dict(PROCESSES[name])
    if name in LOCALES:
        changes |= {"LOCPATH": str(tmp_path), "LC_ALL": compiled_locale(name, tmp_path)}
    folder = tmp_path / "out"
    folder.mkdir()
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} | changes
    command = [sys.executable, str(ROOT / "tests" / "determinism" / "results.py"), str(folder)]
    done = subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=WAIT_SECONDS
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert contents(folder) == expected


def compiled_locale(name: str, folder: Path) -> str:
    """Compile a locale to a folder and return its name, or skip."""
    if not shutil.which("localedef"):
        pytest.skip("the program localedef is not installed")
    language, encoding = LOCALES[name]
    target = f"{language}.{encoding}"
    command = ["localedef", "-i", language, "-f", encoding, str(folder / target)]
    done = subprocess.run(command, capture_output=True, check=False)
    if not (folder / target / "LC_CTYPE").is_file():
        pytest.skip(f"localedef: {done.stderr.decode(errors='replace')}")
    return target

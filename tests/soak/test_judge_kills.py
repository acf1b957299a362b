"""A short run of the kills of runs with a judge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import WAIT_SECONDS

SCRIPT = Path(__file__).with_name("judge_kills.py")


@pytest.mark.slow
def test_two_kills_of_runs_with_a_faulty_judge(tmp_path: Path) -> None:
    page = tmp_path / "soak.md"
    result = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "2", "--rows", "40", "--output", page],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "`make soak-judge`: 2 kills with SIGKILL" in page.read_text()

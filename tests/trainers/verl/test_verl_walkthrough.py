"""The section about verl of docs/start-training.md, up to the check for a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from walkthrough import PAGE, commands, follow, lay_out

END = "Total available GPUs 0 is less than total desired GPUs 1"


def test_the_commands_of_the_page_reach_the_gpu_check(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("it would train")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("TRANSFER_QUEUE_ENABLE", "1")
    assert END in PAGE.read_text("utf-8")
    prepare, init, start, small = commands("verl")
    assert small.startswith(f"{start} ")
    lay_out(tmp_path, shared)
    for command in (prepare, init):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""  # the installed trainer accepts every setting
    ran = follow(small, tmp_path)
    assert f"ValueError: {END}" in ran.stdout + ran.stderr, (ran.stdout + ran.stderr)[-3000:]

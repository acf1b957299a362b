"""A short run of the long test of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import WAIT_SECONDS

SCRIPT = Path(__file__).with_name("server_soak.py")


@pytest.mark.slow
def test_2000_requests_with_faults_and_200_slow_connections(tmp_path: Path) -> None:
    page = tmp_path / "soak.md"
    options = "--requests 2000 --slow 200 --seconds 1 --rounds 1 --lenient".split()
    result = subprocess.run(
        [sys.executable, SCRIPT, *options, "--output", page],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = [line for line in page.read_text().splitlines() if line.startswith(("| arena", "| tru"))]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    requests, rewards = (sum(int(row[i].replace(",", "")) for row in cells) for i in (1, 2))
    assert requests >= 2000
    assert rewards >= 1500
    assert {(row[4], row[5]) for row in cells} == {("0", "0")}  # none is wrong or lost
    assert "| 200 | " in page.read_text()


def test_a_wrong_reward_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares each reward with the one of the library."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from requests_with_faults import Planned
    from server_soak import Client, Outcome, Server, problems

    outcome = Outcome()
    client = Client(0, None, outcome)  # type: ignore[arg-type]
    planned = Planned("one row", (b"",), rewards=(1.0,))
    failed = {"type": "BackendError", "message": "", "path": ""}
    assert client._check(planned, [{"reward": 1.0, "error": None}])
    assert not client._check(planned, [{"reward": None, "error": failed}])
    assert (outcome.rewards, outcome.unscored, outcome.wrong, outcome.lost) == (1, 1, [], [])
    client._check(planned, [{"reward": 0.0, "error": None}])
    client._check(planned, [])
    assert (len(outcome.wrong), len(outcome.lost)) == (1, 1)
    server = Server.__new__(Server)
    server.name, server.outcome, server.memory = "arena", outcome, [(0, 100_000), (1, 110_000)]
    found = problems([server], (0.1, 0.3), True)
    assert [text.split(": ")[1].split(" ")[0] for text in found] == ["wrong", "lost", "the", "p99"]

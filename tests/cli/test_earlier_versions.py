"""Files that earlier versions have written: `replay`, `report`, and `score` with `--resume`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "earlier_versions"
FILES = sorted(FOLDER.glob("*.jsonl"))
"""Scored rows of the examples, written by the versions in their names."""
RECORD = {
    "settings": {"options": {"signature": "rag-rewards 0.6.0 arena"}, "files": []},
    "totals": {"rows": 3, "errors": 0},
    "rows_size": 7,
    "errors_size": 0,
    "output_size": 7,
}


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_replay_and_report(cli: Any, tmp_path: Path, file: Path) -> None:
    recipe, _, version = file.stem.rpartition("-")
    rows = rows_of(file)
    assert all(row["signature"].startswith(f"rag-rewards {version} {recipe}") for row in rows)
    replayed = cli("replay", file, "--set", "sections.tags=lenient", "--json")
    if version == "0.6.0":
        assert replayed.code == 2
        assert "this version reads 0.7.0 and later: score the rows again" in replayed.err
    else:
        assert json.loads(replayed.out)["rows"] == len(rows) > 2
    page = tmp_path / "report.html"
    cli("report", file, "-o", page, code=0)
    assert f"rag-rewards {version} {recipe}" in page.read_text("utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scored_rows_are_scored_again(cli: Any, tmp_path: Path, file: Path) -> None:
    out = tmp_path / "out.jsonl"
    cli("score", file, "-r", file.stem.rpartition("-")[0], "-o", out, code=0)
    rewards = [[row["reward"] for row in rows_of(each)] for each in (out, file)]
    assert rewards[0] == pytest.approx(rewards[1], abs=1e-12)


@pytest.mark.parametrize("has_record", [False, True])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_resume_leaves_the_output_of_an_earlier_version(
    cli: Any, write: Any, arena: Any, tmp_path: Path, file: Path, has_record: bool
) -> None:
    out = tmp_path / "out.jsonl"
    shutil.copy(file, out)
    if has_record:
        (tmp_path / "out.jsonl.run.json").write_text(json.dumps(RECORD))
    message = cli("score", write([arena()]), "-r", "arena", "-o", out, "--resume", code=2).err
    fault = "signature was 'rag-rewards 0.6.0 arena'" if has_record else "it exists without"
    assert f"cannot resume {out}: {fault}" in message
    assert out.read_bytes() == file.read_bytes()


HOSTILE = (
    *("", "{", "null", "[]", "7", '"text"', "{}", "[" * 100_000, '{"settings":' * 10_000),
    '{"settings":{"options":{},"files":[]},"totals":{"rows":-1},"rows_size":1e400}',
    '{"settings":{"options":{"signature":7},"files":7},"totals":[],"rows_size":0}',
    '{"settings":{"options":{"\\u001b[2J":"\\u001b[2J"},"files":[]},"totals":{},"rows_size":0,'
    '"errors_size":0,"output_size":99999999999999999999999999}',
    '{"settings":{"options":{"\\u001b[2J":"\\u001b[2J"},"files":[]},"totals":{},"rows_size":0,'
    '"errors_size":0}',
    '{"threshold":NaN}',
    "\udcff",
)
"""Contents that no version has written. The last one is a byte that is not UTF-8."""
PLACES = {
    "record": "out.jsonl.run.json",
    "journal": "out.jsonl.run/journal.jsonl",
    "manifest": "out.jsonl/manifest.json",
    "journal of parts": "out.jsonl/_run/journal.jsonl",
}
"""The files beside an output from which a resumed run reads."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_records_of_runs(
    cli: Any, write: Any, arena: Any, tmp_path: Path, place: str, number: int
) -> None:
    """Each ends with a message, or is replaced, and a run without `--resume` works."""
    rows = write([arena()])
    file = tmp_path / PLACES[place]
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(HOSTILE[number], "utf-8", "surrogateescape")
    command = ["score", rows, "-r", "arena", "-o", tmp_path / "out.jsonl"]
    if file.parent.name in ("out.jsonl", "_run"):
        command += ["--output-format", "parts"]
    elif place == "record":
        (tmp_path / "out.jsonl").write_text("earlier")
    result = cli(*command, "--resume")
    assert result.code == 2, result.err
    assert "is not the file of an earlier run" in result.err or "cannot resume" in result.err
    assert "\x1b" not in result.err
    # A manifest can be the file of another program.
    cli(*command, code=2 if place == "manifest" else 0)


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_threshold_files_and_dumps(cli: Any, tmp_path: Path, content: str) -> None:
    """No content ends a command with a traceback, which `cli` refuses."""
    file = tmp_path / "file.jsonl"
    file.write_text(content, "utf-8", "surrogateescape")
    rows = FOLDER / "arena-0.6.0.jsonl"
    commands = (
        ("evaluate", rows, "--config", file, "-m", "em"),
        ("score", rows, "--config", file),
        ("replay", file),
        ("report", file, "-o", tmp_path / "report.html"),
    )
    for command in commands:
        result = cli(*command)
        assert result.code in (0, 2, 3), (command, result)  # 0: no row
        assert "\x1b" not in result.err

"""`rag-rewards report` for several files, and its agreement with labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import rollouts


@pytest.fixture
def write_files(tmp_path: Path) -> Callable[..., list[Path]]:
    """Write files of rows, and return their paths."""

    def write(*files: list[dict[str, Any]]) -> list[Path]:
        paths = [tmp_path / f"{name}.jsonl" for name in "ab"]
        for path, rows in zip(paths, files, strict=True):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return paths

    return write


def test_parquet_files_are_compared(cli: Any, tmp_path: Path) -> None:
    paths = []
    for name, right in (("a", 4), ("b", 8)):
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.Table.from_pylist(rollouts(right)), paths[-1])
    scored = [path.with_name(f"scored-{path.name}") for path in paths]
    for path, out in zip(paths, scored, strict=True):
        cli("score", path, "-o", out, "-r", "arena", code=0)
    message = cli("report", *scored, "-o", tmp_path / "r.html", "-l", "human", code=0).err
    assert "24 rollouts in" in message


def test_invalid_arguments(cli: Any, write_files: Any, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "r.html")
    first, second = write_files(rollouts(1), rollouts(2))
    assert "no file of rows is given" in cli("report", *out, code=2).err
    assert "given twice" in cli("report", "-", "-", *out, code=2).err
    assert "score them first" in cli("report", first, second, *out, code=2).err
    recipe = ("-r", "arena", *out)
    message = cli("report", first, second, "--label-threshold", 1, *recipe, code=2).err
    assert "--label-threshold is an option of labels: set --label" in message
    message = cli("report", first, second, "--label", "people", *recipe, code=2).err
    assert "no row has a label in 'people'" in message
    assert not out[1].exists()


def test_invalid_labels_and_rows_in_error_are_counted(
    cli: Any, write_files: Any, tmp_path: Path
) -> None:
    bad = [*rollouts(4), rollouts(1)[0] | {"id": "z", "human": "perhaps"}, {"id": "broken"}]
    paths = write_files(rollouts(4), bad)
    options = ("-o", tmp_path / "r.html", "-r", "arena", "--label", "human")
    message = cli("report", *paths, *options, code=3).err
    assert "b.jsonl: 1 labels left out, the first: row z: human: expected a label" in message
    assert "b.jsonl: line 14: response: " in message

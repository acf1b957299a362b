"""The scores of a row depend neither on the order of the rows nor on the size of chunks."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from results import EXAMPLES, files_of

from rag_rewards import RECIPES
from rag_rewards.files import sources
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.score_file import score_file


def scored(recipe: str, lines: list[str], folder: Path) -> dict[str, str]:
    """Return the scored line of each row by its id."""
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(lines), "utf-8")
    score_file(recipe, ScoreOptions(str(source), str(out)))
    rows = out.read_text("utf-8").splitlines()
    return {str(json.loads(row)["id"]): row for row in rows}


@pytest.mark.parametrize("chunk_rows", [1, 7])
@pytest.mark.parametrize("recipe", RECIPES)
def test_shuffled_groups(
    recipe: str, chunk_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = defaultdict(list)
    for line in files_of(recipe, EXAMPLES)[0].read_text("utf-8").splitlines(keepends=True):
        row = json.loads(line)
        groups[str(row.get("group", row.get("question")))].append(line)
    expected = scored(recipe, [line for group in groups.values() for line in group], tmp_path)
    assert len(expected) > 3
    rng = random.Random(1)
    shuffled = rng.sample(list(groups.values()), len(groups))
    lines = [line for group in shuffled for line in rng.sample(group, len(group))]
    monkeypatch.setattr(sources, "CHUNK_ROWS", chunk_rows)
    assert scored(recipe, lines, tmp_path) == expected

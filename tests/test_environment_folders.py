"""The folders of examples/environments are what the commands of their README write."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
build = importlib.import_module("build_environments")
code_blocks = importlib.import_module("code_blocks")


def test_the_folders_are_up_to_date() -> None:
    expected = build.files()
    hint = "run: python docs/build_environments.py"
    written = {name: (build.FOLDER / name).read_text("utf-8") for name in expected}
    assert written == expected, hint
    present = {
        path.relative_to(build.FOLDER).as_posix()
        for name in build.GENERATED
        for path in (build.FOLDER / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert present == {name for name in expected if name.startswith(build.GENERATED)}, hint
    assert all(os.access(build.FOLDER / name, os.X_OK) for name in expected if ".sh" in name)


def test_the_commands_of_the_recipe_for_verl_are_valid() -> None:
    path = build.FOLDER / "verl_recipe" / "rag_rewards" / "README.md"
    blocks = code_blocks.blocks(path.read_text("utf-8"))
    assert len(blocks) == 3
    assert not any(code_blocks.block_error(block) for block in blocks)

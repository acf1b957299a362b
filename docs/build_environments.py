"""Write the folders of examples/environments that the commands of their README generate.

tests/test_environment_folders.py checks that the folders are up to date.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from code_blocks import ROOT, blocks

FOLDER = ROOT / "examples" / "environments"
GENERATED = ("verifiers", "nemo_gym")
"""The folders without a file that is written by hand."""
SEARCH_ENGINE = "openenv/server/search.py"
"""The file whose `CORPUS` is written by hand."""


def files() -> dict[str, str]:
    """Return the text of each generated file by its path."""
    [block] = blocks((FOLDER / "README.md").read_text("utf-8"))
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "examples").symlink_to(ROOT / "examples")
        for command in block.commands:
            words = [sys.executable, "-m", "rag_rewards", *shlex.split(command)[1:]]
            subprocess.run(words, cwd=folder, check=True, capture_output=True)  # noqa: S603
        paths = [path for part in folder.glob("*/") for path in part.rglob("*") if path.is_file()]
        return {
            path.relative_to(folder).as_posix(): path.read_text("utf-8")
            for path in sorted(paths)
            if not path.is_relative_to(folder / "examples") and path != folder / SEARCH_ENGINE
        }


if __name__ == "__main__":
    texts = files()
    for name in GENERATED:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    for name, text in texts.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, "utf-8")
        (FOLDER / name).chmod(0o755 if name.endswith(".sh") else 0o644)

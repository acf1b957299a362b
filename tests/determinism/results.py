"""Write the output files of commands, to compare their bytes.

    python tests/determinism/results.py FOLDER [EXAMPLES]

The commands score every example file that a recipe without models can score, with both profiles,
and evaluate and report one of the outputs. EXAMPLES is the folder of the examples.
"""

from __future__ import annotations

import contextlib
import locale
import os
import sys
from pathlib import Path

from rag_rewards import RECIPES
from rag_rewards.cli.entry import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
EXAMPLES_OF = {"ctrl-rag-clr": ["ctrl-rag"], "rag-total": ["ctrl-rag"]}
"""The example files of a recipe, if it has none of its own name."""


def files_of(recipe: str, examples: Path = EXAMPLES) -> list[Path]:
    """Return the example files that a recipe scores."""
    files = [examples / f"{name}.jsonl" for name in EXAMPLES_OF.get(recipe, [recipe])]
    agents = sorted((examples / "search-agents").glob("*.jsonl"))
    return files + (agents if recipe == "search-r1" else [])


def run(*arguments: object) -> int:
    """Run a command in this process, and return its exit code."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("the command line did not exit")


def write_results(folder: Path, examples: Path = EXAMPLES) -> None:
    """Write all files. Raises RuntimeError if a command fails."""
    previous = Path.cwd()
    os.chdir(folder)  # outputs contain the names of their inputs
    try:
        _write_results(examples)
    finally:
        os.chdir(previous)


def _write_results(examples: Path) -> None:
    for recipe in RECIPES:
        for file in files_of(recipe, examples):
            for profile in ("", "--hardened"):
                out = f"{recipe}{profile}-{file.stem}.jsonl"
                execute("score", file, "-r", recipe, *filter(None, [profile]), "-o", out)
    execute("score", examples / "broken.jsonl", "-r", "arena", "-o", "broken.jsonl")
    with (
        open("evaluate.json", "w", encoding="utf-8") as out,
        contextlib.redirect_stdout(out),
    ):
        execute("evaluate", "arena-arena.jsonl", "--metrics", "em,f1,ndcg@5", "-o", "-")
    execute("report", "arena-arena.jsonl", "-o", "report.html")


def execute(*arguments: object) -> None:
    """Run a command. Rows in error are not a failure, because some examples show them."""
    if run(*arguments) not in (0, 3):
        raise RuntimeError(f"failed: {' '.join(map(str, arguments))}")


if __name__ == "__main__":
    # A program that embeds Python may select the locale of its user.
    locale.setlocale(locale.LC_ALL, "")
    write_results(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else EXAMPLES)

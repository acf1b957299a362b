"""Time recipes in this process with the version of rag_rewards that PYTHONPATH selects.

    PYTHONPATH=CHECKOUT python time_recipes.py FOLDER

FOLDER contains one file of rows for each case, NAME.jsonl, and cases.json: the recipe, the settings
and whether the profile is hardened, by the name of the case. The script uses only what version
0.1.0 has as well. It prints the version. For each name of a case that it reads, it scores the rows
once, and prints the processor seconds and the rewards as JSON.
"""

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import rag_rewards as rr

BATCH = 512


def fresh(lines: list[bytes]) -> list[rr.Rollout]:
    """Return new rollouts without cached results. The rollouts of a group share their documents.

    An adapter also builds a group with one tuple of documents and eight responses.
    """
    rollouts = []
    documents: tuple[rr.Document, ...] | None = None
    for line in lines:
        rollout = rr.decode_row(line)
        if rollout.documents:
            documents = rollout.documents
        elif documents:
            rollout = msgspec.structs.replace(rollout, documents=documents)
        rollouts.append(rollout)
    return rollouts


def seconds_of(recipe: Any, lines: list[bytes]) -> tuple[float, list[float | None]]:
    """Return the processor seconds of one pass, without the decoding of rows, and the rewards."""
    seconds, values = 0.0, []
    gc.collect()
    for position in range(0, len(lines), BATCH):
        rollouts = fresh(lines[position : position + BATCH])
        start = time.process_time()
        scores = recipe(rollouts)
        seconds += time.process_time() - start
        values += [score.value for score in scores]
    return seconds, values


def main(folder: Path) -> None:
    cases = json.loads((folder / "cases.json").read_text("utf-8"))
    print(json.dumps(rr.__version__), flush=True)
    for line in sys.stdin:
        recipe, settings, hardened = cases[name := line.rstrip("\n")]
        lines = (folder / f"{name}.jsonl").read_bytes().splitlines()
        seconds, values = seconds_of(rr.recipe(recipe, settings, hardened=hardened), lines)
        print(json.dumps({"seconds": seconds, "values": values}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

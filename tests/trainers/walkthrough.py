"""The commands of docs/start-training.md, run in the environment of a trainer.

A row of HotpotQA replaces the downloaded file, and a tiny model the policy.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from processes import WAIT_SECONDS

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "start-training.md"

sys.path.append(str(TESTS / "models"))


def commands(section: str, mark: str = "(?!gpu|cluster|network)[a-z-]+") -> list[str]:
    """Return the commands of a section, such as that of a trainer, one per line.

    `mark` is the trainer of a block in a section about several trainers.
    """
    section = PAGE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    fence = rf"^```sh {mark}\n(.*?)^```"
    code = re.findall(fence, section, re.DOTALL | re.MULTILINE)
    return "".join(code).splitlines()


def lay_out(folder: Path, shared: Path, rows: int = 4) -> None:
    """Write the files that the page requires: that of HotpotQA (variants of a row), and a model."""
    from tiny_models import save

    write_data_set(folder, shared, rows)
    save(folder / "path" / "to" / "model")


def write_data_set(folder: Path, shared: Path, rows: int) -> None:
    """Write the file of HotpotQA."""
    [row] = json.loads((shared / "data/hotpotqa/distractor_row_trimmed.json").read_text("utf-8"))
    questions = [
        {**row, "_id": f"{row['_id']}-{i}", "question": f"{row['question']} ({i})"}
        for i in range(rows)
    ]
    (folder / "hotpot_train_v1.1.json").write_text(json.dumps(questions), "utf-8")


def follow(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of the page with the programs of this environment."""
    here = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HF_DATASETS_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=here,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

"""Resolve the commands that install the trainers, without installing anything: make install-lines.

For each trainer, uv resolves the requirements of its commands together with this package for
Python 3.12 on Linux with NVIDIA GPUs, and then again with the extra vllm. It needs a package index;
the result is written to resolved.json, which a test compares with the commands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from rag_rewards.trainers import TRAINERS, Trainer

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).with_name("resolved.json")
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_28"
SHOWN = (
    "torch vllm transformers flash-attn deepspeed ray tensordict transferqueue cachetools peft "
    "accelerate datasets numpy trl"
).split()
"""Packages whose versions the result contains."""


def resolve(requirements: list[str]) -> dict[str, str] | None:
    """Return the versions of all packages, None if the requirements contradict each other."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "requirements.in"
        source.write_text("\n".join(requirements) + "\n", "utf-8")
        platform = ["--python-version", PYTHON, "--python-platform", PLATFORM]
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *platform, str(source)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        if "No solution found" in process.stderr:
            return None
        raise SystemExit(process.stderr)
    lines = (line.partition(";")[0].strip() for line in process.stdout.splitlines())
    pins = [Requirement(line) for line in lines if "==" in line and not line.startswith("#")]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


def resolved(trainer: Trainer) -> dict[str, Any]:
    """Return the result for a trainer."""
    own = f"rag-rewards[{','.join(trainer.extras)}] @ {ROOT.as_uri()}"
    versions = resolve([*trainer.requirements, own])
    if versions is None:
        raise SystemExit(f"{trainer.package}: the requirements contradict each other")
    with_engine = resolve([*trainer.requirements, own.replace("[", "[vllm,", 1)])
    return {
        "requirements": list(trainer.requirements),
        "extras": list(trainer.extras),
        "versions": {name: versions[name] for name in SHOWN if name in versions},
        "fits_extra_vllm": with_engine is not None,
    }


if __name__ == "__main__":
    results = {name: resolved(each) for name, each in TRAINERS.items() if each.on_gpus}
    content = {"python": PYTHON, "platform": PLATFORM, "trainers": results}
    RESULT.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    print(RESULT.read_text("utf-8"))

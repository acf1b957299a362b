"""The section about ms-swift of docs/start-training.md, which trains one step on the CPU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from walkthrough import commands, follow, lay_out

TINY = " --model_type qwen2 --template qwen2_5 --use_cpu true --load_from_cache_file false"
"""ms-swift recognizes a released model by its name, and a random one by its type."""


def test_the_commands_of_the_page_train_one_step(tmp_path: Path, shared: Path) -> None:
    prepare, init, start, small = commands("ms-swift")
    assert small.startswith(f"{start} --")
    lay_out(tmp_path, shared)
    for command in (prepare, f"{init} --dump rollouts.jsonl", small + TINY):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert "'global_step/max_steps': '1/1'" in ran.stdout + ran.stderr
    path = tmp_path / "rollouts.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(row["step"], row["error"]) for row in rows] == [(1, None)] * 2
    assert rows[0]["signature"].endswith("arena")
    assert rows[0]["supporting"]


def test_the_trial_trains_a_tiny_model_with_different_rewards(tmp_path: Path) -> None:
    init, train = commands("Trial with a tiny model", "ms-swift")
    for command in (init, f"{train} --use_cpu true --load_from_cache_file false"):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    output = ran.stdout + ran.stderr
    assert "'global_step/max_steps': '2/2'" in output
    assert all(3 < float(mean) < 14 for mean in re.findall(r"'reward': '([\d.]+)'", output))
    assert all(float(std) > 0 for std in re.findall(r"'reward_std': '([\d.]+)'", output))

"""The section about OpenRLHF of docs/start-training.md: the trainer checks its arguments."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import WAIT_SECONDS

sys.path.append(str(Path(__file__).resolve().parents[1]))
from missing_modules import stand_ins
from walkthrough import commands, follow, lay_out


def arguments(script: Path) -> list[str]:
    """Return the arguments with which the script starts the trainer."""
    process = subprocess.run(
        ["bash", "-c", f"python3() {{ printf '%q ' \"$@\"; }}; . {shlex.quote(str(script))}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
        cwd=script.parent,
    )
    words = shlex.split(process.stdout)
    assert words[:2] == ["-m", "openrlhf.cli.train_ppo_ray"]
    return words[2:]


def read_by_the_trainer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the trainer's own parser and checks, without the training."""
    package = importlib.util.find_spec("openrlhf")
    path = Path(package.submodule_search_locations[0]) / "cli" / "train_ppo_ray.py"
    source = path.read_text("utf-8")
    whole, last, rest = source.rpartition("    train(args)")
    assert last
    assert not rest.strip()
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    names: dict[str, Any] = {"__name__": "__main__"}
    with stand_ins():
        exec(compile(whole, str(path), "exec"), names)  # noqa: S102
    return names["args"]


@pytest.mark.parametrize(
    ("recipe", "reward"), [("arena", "rewards.py"), ("ctrl-rag", "agent.py"), ("lear", "agent.py")]
)
def test_the_trainer_accepts_the_commands_of_the_page(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, reward: str
) -> None:
    prepare, init, start = (
        command.replace("-r arena", f"-r {recipe}") for command in commands("OpenRLHF")
    )
    lay_out(tmp_path, shared)
    for command in (prepare, init):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""  # the installed trainer accepts every flag
    args = read_by_the_trainer(arguments(tmp_path / start), monkeypatch)
    assert args.data.prompt_dataset == str(tmp_path / "train.jsonl")
    assert args.actor.model_name_or_path == str(tmp_path / "path" / "to" / "model")
    assert args.vllm.num_engines == args.actor.num_gpus_per_node == 8
    if reward == "rewards.py":
        assert args.reward.remote_url == [str(tmp_path / "run" / reward)]
    else:
        assert args.train.agent_func_path == str(tmp_path / "run" / reward)
        assert args.data.max_len == 4096 + 1024 + 1
    assert args.algo.advantage.estimator == ("dr_grpo" if recipe == "lear" else "group_norm")

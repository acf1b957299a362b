"""docs/start-training.md, OpenRLHF's part: its own arguments are read and found to fit together."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from absent import stood_in_for
from walkthrough import commands, follow, lay_out


def arguments(script: Path) -> list[str]:
    """What the script would start the trainer with."""
    told = subprocess.run(
        ["bash", "-c", f"python3() {{ printf '%q ' \"$@\"; }}; . {shlex.quote(str(script))}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        cwd=script.parent,
    )
    words = shlex.split(told.stdout)
    assert words[:2] == ["-m", "openrlhf.cli.train_ppo_ray"]
    return words[2:]


def read_by_the_trainer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trainer's own parser and checks, without the training behind them."""
    package = importlib.util.find_spec("openrlhf")
    path = Path(package.submodule_search_locations[0]) / "cli" / "train_ppo_ray.py"
    source = path.read_text("utf-8")
    whole, last, rest = source.rpartition("    train(args)")
    assert last
    assert not rest.strip()
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    names: dict[str, Any] = {"__name__": "__main__"}
    with stood_in_for():
        exec(compile(whole, str(path), "exec"), names)  # noqa: S102
    return names["args"]


@pytest.mark.parametrize(
    ("recipe", "reward"), [("arena", "rewards.py"), ("ctrl-rag", "agent.py"), ("lear", "agent.py")]
)
def test_the_page_leads_to_arguments_that_the_trainer_takes(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, reward: str
) -> None:
    prepare, init, start = (
        command.replace("-r arena", f"-r {recipe}") for command in commands("OpenRLHF")
    )
    lay_out(tmp_path, shared)
    for command in (prepare, init):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""  # the installed trainer knows every flag
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

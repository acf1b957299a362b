"""`rag-rewards init --nodes`: scripts that start the nodes of a cluster, run with stand-ins."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import WAIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
RAY = ("verl", "openrlhf")
OWN = "import rag_rewards as rr\n\nown = rr.recipe('arena')\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with data and an own module, in which `init` runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_reward_of_nodes", raising=False)
    (tmp_path / "rows.data").write_text("")
    (tmp_path / "own_reward_of_nodes.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("own_reward_of_nodes", None)


def init(cli: Any, trainer: str, *options: object) -> Path:
    recipe = () if "-r" in options else ("-r", "own_reward_of_nodes:own")
    folder = Path(f"run-{trainer}").resolve()
    arguments = (*recipe, "--data", "rows.data", "--nodes", "2", "-o", folder)
    cli("init", trainer, *arguments, *options, code=0)
    return folder


def run_node(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run node.sh in another folder, with stand-ins for the programs that it starts."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("ray", "accelerate", "swift"):
        text = '#!/bin/sh\necho "$(basename "$0") $* PYTHONPATH=$PYTHONPATH"\n'
        (programs / name).write_text(
            text + 'env | grep -E "^(NNODES|NODE_RANK|NPROC|MASTER)" | sort\n'
        )
        (programs / name).chmod(0o755)
    python = programs / "python3"
    if not python.exists():
        python.symlink_to(sys.executable)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}:{':'.join(p for p in sys.path if p)}",
    }
    return subprocess.run(
        [folder / "node.sh", *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=WAIT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("trainer", [*RAY, "trl", "ms-swift"])
def test_scripts_parse_and_use_all_nodes(cli: Any, place: Path, trainer: str) -> None:
    folder = init(cli, trainer)
    for path in folder.glob("*.sh"):
        subprocess.run(["bash", "-n", path], check=True, timeout=WAIT_SECONDS)
    text = "\n".join(path.read_text("utf-8") for path in folder.iterdir() if path.is_file())
    for setting in {
        "verl": ("trainer.nnodes=2", "trainer.n_gpus_per_node=8", "reward.num_workers=16"),
        "openrlhf": ("--actor.num_nodes 2", "--ref.num_nodes 2", "--vllm.num_engines 16"),
        "trl": ("--num_processes 16", "gradient_accumulation_steps=16"),
        "ms-swift": ("NNODES=2", "--gradient_accumulation_steps 16"),
    }[trainer]:
        assert setting in text, setting
    if trainer in RAY:
        assert 'export RAY_ADDRESS="${RAY_ADDRESS:-auto}"' in (folder / "train.sh").read_text()
    else:
        assert "256 prompts; 16 × 16 GPUs = 256 prompts" in text


@pytest.mark.parametrize("trainer", [*RAY, "trl", "ms-swift"])
def test_one_node_has_the_script_of_before(cli: Any, place: Path, trainer: str) -> None:
    cli("init", trainer, "-r", "arena", "--nodes", "1", "-o", "one", code=0)
    cli("init", trainer, "-r", "arena", "-o", "default", code=0)
    files = {path.name: path.read_text() for path in Path("one").iterdir()}
    assert files == {path.name: path.read_text() for path in Path("default").iterdir()}
    assert "node.sh" not in files


@pytest.mark.parametrize("trainer", RAY)
def test_a_node_of_ray(cli: Any, place: Path, trainer: str) -> None:
    folder = init(cli, trainer)
    head = run_node(folder, "head")
    assert head.returncode == 0, head.stderr
    assert "ray start --head --port=6379" in head.stdout
    assert f"PYTHONPATH={place}:{folder}:" in head.stdout
    assert ": rag-rewards " in head.stdout
    assert "ray start --address=10.0.0.1:6379" in run_node(folder, "worker", "10.0.0.1").stdout
    assert "ray stop" in run_node(folder, "stop").stdout
    assert run_node(folder, "worker").returncode != 0
    usage = run_node(folder)
    assert usage.returncode == 2
    assert "node.sh worker ADDRESS" in usage.stderr


def test_a_node_of_trl(cli: Any, place: Path) -> None:
    ran = run_node(init(cli, "trl"), "1", "10.0.0.1", "--max_steps", "3")
    assert ran.returncode == 0, ran.stderr
    words = shlex.split(ran.stdout.splitlines()[-1])
    assert words[:2] == ["accelerate", "launch"]
    assert words[words.index("--machine_rank") + 1] == "1"
    assert words[words.index("--main_process_ip") + 1] == "10.0.0.1"
    assert words[words.index("train.py") :][:3] == ["train.py", "--max_steps", "3"]


def test_a_node_of_ms_swift(cli: Any, place: Path) -> None:
    ran = run_node(init(cli, "ms-swift"), "1", "10.0.0.1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-5:] == [
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29500",
        "NNODES=2",
        "NODE_RANK=1",
        "NPROC_PER_NODE=8",
    ]


def test_a_node_without_the_data_or_the_module_stops(cli: Any, place: Path) -> None:
    folder = init(cli, "verl")
    (place / "own_reward_of_nodes.py").rename(place / "moved.py")
    ran = run_node(folder, "head")
    assert ran.returncode != 0
    assert "own_reward_of_nodes.py does not exist: put it in a folder" in ran.stderr
    (place / "rows.data").unlink()
    ran = run_node(folder, "head")
    assert ran.returncode == 1
    assert "rows.data does not exist: put it in a folder that all nodes share" in ran.stderr
    assert "ray" not in ran.stdout


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ("verl", ("--nli", "rows.data"), "each reward worker of each node would load --nli"),
        ("openrlhf", ("--similarity", "rows.data"), "would load --similarity"),
        ("verl", ("--nli", "http://127.0.0.1:8100"), "--nli http://127.0.0.1:8100 is another"),
        (
            "trl",
            ("--judge", "http://localhost:8001/v1", "--judge-model", "x"),
            "an address that all nodes reach",
        ),
        ("sft", (), "no script for several nodes of sft"),
        ("verl", ("--nodes", "0"), "--nodes must be at least 1, found 0"),
    ],
)
def test_what_nodes_cannot_share(
    cli: Any, place: Path, trainer: str, options: tuple[str, ...], message: str
) -> None:
    nodes = () if "--nodes" in options else ("--nodes", "2")
    failed = cli("init", trainer, "-r", "truthrl", *nodes, "-o", "run", *options, code=2)
    assert message in " ".join(failed.err.split())
    assert not Path("run").exists()


def test_servers_of_all_nodes_are_accepted(cli: Any, place: Path) -> None:
    url = "http://10.0.0.9:8100"
    folder = init(cli, "verl", "-r", "ground-grpo", "--nli", url, "--similarity", url)
    text = (folder / "train.sh").read_text("utf-8")
    assert "reward_kwargs.nli=" in text
    assert url in text


@pytest.mark.parametrize(
    ("url", "script", "others"),
    [("http://worker:secret@10.0.0.9:8100", 0o700, 0o600), ("http://10.0.0.9:8100", 0o755, 0o644)],
)
def test_only_the_owner_reads_a_script_with_a_password(
    cli: Any, place: Path, url: str, script: int, others: int
) -> None:
    mask = os.umask(0o022)
    try:
        folder = init(cli, "openrlhf", "-r", "ground-grpo", "--nli", url)
    finally:
        os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes.pop("train.sh") == script
    assert modes.pop("node.sh") == script
    assert set(modes.values()) == {others}

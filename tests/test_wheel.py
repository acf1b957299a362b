"""The wheel contains the two packages, with their data, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARENTS = {"rag_rewards": ROOT, "rag_rewards_adapters": ROOT / "adapters"}
"""The packages, each with the folder that contains it."""


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_top_level_names(wheel_names: set[str]) -> None:
    top_level = {name.partition("/")[0] for name in wheel_names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == set(PARENTS)


@pytest.mark.parametrize("package", PARENTS)
def test_every_file_of_a_package_is_in_the_wheel(package: str, wheel_names: set[str]) -> None:
    parent = PARENTS[package]
    files = {
        path.relative_to(parent).as_posix()
        for path in (parent / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == {name for name in wheel_names if name.startswith(f"{package}/")}
    assert f"{package}/py.typed" in files


def test_the_checkpoint_is_in_the_wheel(wheel_names: set[str]) -> None:
    checkpoint = "rag_rewards/tiny_world/checkpoint"
    assert {f"{checkpoint}/model.safetensors", f"{checkpoint}/tokenizer.json"} <= wheel_names

"""The wheel contains the two packages, with their data, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from release.interpreters import VERSIONS

ROOT = Path(__file__).resolve().parents[1]
PARENTS = {"rag_rewards": ROOT, "rag_rewards_adapters": ROOT / "adapters"}
"""The packages, each with the folder that contains it."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """Return what a package index shows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode("utf-8"))


def test_top_level_names(wheel_names: set[str]) -> None:
    top_level = {name.partition("/")[0] for name in wheel_names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == set(PARENTS)


def test_public_names_are_read_from_a_zip_file(wheel: Path) -> None:
    code = (
        "import rag_rewards as rr; print(rr.__file__, rr.UsageError.__name__, rr.Scorer.__name__)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {code}"]
    output = subprocess.run(command, cwd=wheel.parent, check=True, capture_output=True, text=True)
    assert output.stdout.split() == [f"{wheel}/rag_rewards/__init__.py", "UsageError", "Scorer"]


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


def test_the_description_for_an_index_has_no_relative_link(metadata: Message) -> None:
    description = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert not [each for each in targets if not each.startswith("https://")]
    paths = re.findall(r"`((?:docs|benchmarks|examples)/[\w./-]+\.\w+)", description)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).is_file()]
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_metadata_names_the_license_and_all_tested_versions_of_python(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == f">={VERSIONS[0]}"
    prefix = "Programming Language :: Python :: "
    classifiers = metadata.get_all("Classifier") or []
    assert [each.removeprefix(prefix) for each in classifiers if prefix in each] == [*VERSIONS]

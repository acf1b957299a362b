"""These tests run inside the real trainer: `make test-trainers`."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

try:
    version("verl")
    collect_ignore_glob = []
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tokenizer of the tests of reward workers."""
    from reward_batches import saved_tokenizer

    path = tmp_path_factory.mktemp("tokenizer")
    saved_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from reward_batches import saved_tokenizer

    return saved_tokenizer(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model."""
    import v1_trainer

    return v1_trainer.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore verl's registries after a test that reads loops and tools from files."""
    from verl.experimental.agent_loop import agent_loop
    from verl.tools import function_tool

    monkeypatch.setattr(agent_loop, "_agent_loop_registry", dict(agent_loop._agent_loop_registry))
    monkeypatch.setattr(function_tool, "FUNCTION_TOOL_REGISTRY", {})

"""Settings of every test, and fixtures that every test may use."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch is imported: every process of a parallel run has one processor, and sums of floats
# are the same on every machine. The tests need no network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# The environments of trainers have no Hypothesis, and no properties to test.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings
    from properties import forget_imported_constants

    settings.load_profile("fixed")

    @pytest.hookimpl(trylast=True)
    def pytest_configure() -> None:
        """After Hypothesis has read `--hypothesis-profile`."""
        if settings().derandomize:
            forget_imported_constants()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real rows and reference values beside the repository, where there is one."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no folder with real rows beside the repository")
    return path


@pytest.fixture
def unused_address() -> Iterator[str]:
    """The address of a server that is not there. Nobody else can take its port meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"

"""Settings and fixtures of all tests."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Set before torch is imported. Each process of a parallel run uses one thread, so that sums of
# floats are equal on all machines. The tests need no network.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# The environments of trainers do not contain Hypothesis, because they run no property tests.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings
    from properties import forget_imported_constants

    settings.load_profile("fixed")

    @pytest.hookimpl(trylast=True)
    def pytest_configure() -> None:
        """Run after Hypothesis has read `--hypothesis-profile`."""
        if settings().derandomize:
            forget_imported_constants()


IS_COMPLETE = any(Path(sys.prefix).glob(".installed*"))
"""Whether a target of the Makefile made this environment. In others, libraries can be missing."""
MISSING_LIBRARY = "the environment does not contain all libraries of the tests: run `make test`"
OTHER_MODULE = r"(?!rag_rewards|tests\b)"
"""The beginning of the name of a module that is not our own. One of ours is never skipped."""
MISSING_SHARED = "the folder `shared` does not exist next to the repository"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that imports a library which this environment does not have."""
    report = yield
    missing = rf"^E   ModuleNotFoundError: No module named '{OTHER_MODULE}"
    if not IS_COMPLETE and report.failed and re.search(missing, report.longreprtext, re.M):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {MISSING_LIBRARY}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test that needs a library which this environment does not have."""
    try:
        yield
    except Exception as error:
        if not IS_COMPLETE and (_is_of_a_library(error) or _is_of_a_library(error.__cause__)):
            pytest.skip(MISSING_LIBRARY)
        raise


def _is_of_a_library(error: BaseException | None) -> bool:
    """Return whether the cause of an error is a library that this environment does not have."""
    if isinstance(error, ModuleNotFoundError):
        return re.match(OTHER_MODULE, error.name or "") is not None
    return type(error).__name__ == "MissingExtraError"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write how many tests were skipped without `shared` or without a library."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    for message in (MISSING_SHARED, MISSING_LIBRARY):
        if count := sum(message in reason for reason in reasons):
            terminalreporter.write_line(f"{count} tests or files were skipped: {message}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates of logs in reports, which a parallel run sends as UTF-8."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real rows and reference values next to the repository, or skip."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(MISSING_SHARED)
    return path


@pytest.fixture
def unused_address() -> Iterator[str]:
    """Yield an address without a server. The fixture holds the port, so no server can use it."""
    with socket.socket() as held_socket:
        held_socket.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held_socket.getsockname()[1]}"

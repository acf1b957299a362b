"""These tests run inside OpenEnv and TRL, in the environment of TRL: `make trainer-trl`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "trl"))
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "environments" / "openenv"

try:
    version("openenv")
    collect_ignore_glob = []
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Run an application in a thread, and return its address."""
    import uvicorn
    from processes import WAIT_SECONDS

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + WAIT_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve environments of a function `environments`, and return their address."""
    from openenv.core.env_server.http_server import create_app
    from rag_rewards_adapters.openenv import SearchAction, SearchObservation

    with ExitStack() as stack:

        def serve(factory: Any) -> str:
            app = create_app(factory, SearchAction, SearchObservation, max_concurrent_envs=16)
            return stack.enter_context(running(app))

        yield serve


@pytest.fixture(scope="session")
def ready() -> Iterator[str]:
    """The address of the ready environment, as its own `server.app` serves it."""
    sys.path.insert(0, str(FOLDER))
    from server.app import app

    with running(app) as url:
        yield url

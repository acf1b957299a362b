"""A Ray cluster with several nodes on this machine, in a process that ends with its parent.

Each node has its own raylet and its own workers. The head has no processors for workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from processes import WAIT_SECONDS, end

_SCRIPT = """
import json, os, sys
from ray.cluster_utils import Cluster

STORE = 80 << 20
cluster = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False},
)
nodes = []
def raylet(node):
    return node.all_processes["raylet"][0].process.pid
def add():
    nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
    return raylet(nodes[-1])
try:
    for _ in range(int(sys.argv[1])):
        add()
    cluster.wait_for_nodes(timeout=300)
    started = {"address": cluster.address, "raylets": [raylet(n) for n in nodes]}
    print(json.dumps(started), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"raylet": add()}), flush=True)
finally:
    cluster.shutdown()
"""


ATTEMPTS = 4
"""Number of starts of a cluster: Ray gives up when a node starts in more than 30 seconds."""
SLOW_START = {"RAY_gcs_server_port_wait_time_s": str(WAIT_SECONDS)}
"""The limit of Ray for the start of a head, as an environment variable."""


class ClusterEndedError(Exception):
    """A cluster that ended, for example because its nodes started too slowly."""


class RayNodes:
    """A running cluster. `raylets` are the process ids of its nodes, without the head."""

    def __init__(self, process: subprocess.Popen[str], environment: dict[str, str]) -> None:
        self._process, self.environment = process, environment
        started = self._answer()
        self.address: str = started["address"]
        self.raylets: list[int] = started["raylets"]

    def add(self) -> None:
        """Add a node."""
        print(file=self._process.stdin, flush=True)
        self.raylets.append(self._answer()["raylet"])

    def workers(self, name: str) -> list[Any]:
        """Return the processes of an actor class."""
        import psutil

        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # a process that has ended
                if f"ray::{name}" in "".join(process.cmdline()):
                    found.append(process)
        return found

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            with contextlib.suppress(json.JSONDecodeError):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise ClusterEndedError


@contextlib.contextmanager
def ray_nodes(count: int, environment: Mapping[str, str] = {}) -> Iterator[RayNodes]:
    """Start a cluster, and end all its processes after the block."""
    pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install 'rag-rewards[ray]'")
    pytest.importorskip("psutil")
    own = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    env = {**os.environ, **SLOW_START, **own, **environment}
    for attempt in range(ATTEMPTS):
        process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        with _ended(process):
            try:
                nodes = RayNodes(process, env)
            except ClusterEndedError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            yield nodes
            return


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """End a cluster and all its processes after the block."""
    try:
        yield
    finally:
        import psutil

        below = psutil.Process(process.pid).children(recursive=True)
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.communicate(timeout=30)
        for each in below:  # those of a killed raylet, too
            with contextlib.suppress(psutil.Error):
                each.kill()
        end(process)
        psutil.wait_procs(below, timeout=WAIT_SECONDS)


def start_ray(**options: Any) -> None:
    """Start Ray in this process, again if the machine is too slow for the limits of Ray.

    Without an address, Ray would connect to a cluster that another test runs on this machine.
    """
    import ray

    with patch.dict(os.environ, SLOW_START):
        for attempt in range(ATTEMPTS):
            try:
                ray.init(address="local", **options)
                return
            except Exception:  # Ray raises this class itself when a node starts too slowly
                ray.shutdown()
                if attempt == ATTEMPTS - 1:
                    raise

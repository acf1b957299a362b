"""The identifier of a training run, which separates the rollouts of several runs in a folder."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from hashlib import blake2b
from pathlib import Path


def new_run_id() -> str:
    """Return the identifier of the run of this process: 8 hexadecimal digits.

    The processes of one run on a Ray cluster have the same identifier, and so have the ranks that
    one launcher started on a machine. Any other call returns a new one.
    """
    run = _ray_run() or _launcher() or f"{_host()} {os.getpid()} {time.time_ns()}"
    return blake2b(run.encode(), digest_size=4).hexdigest()


def is_ray_process() -> bool:
    """Return whether this process is connected to a Ray cluster."""
    ray = sys.modules.get("ray")
    with contextlib.suppress(Exception):
        return ray is not None and bool(ray.is_initialized())
    return False


def rank() -> int | None:
    """Return the rank of this process among several, as torch sets it; None for one process."""
    with contextlib.suppress(ValueError):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return int(os.environ.get("RANK", ""))
    return None


def _ray_run() -> str | None:
    """Return the cluster and the job of this process on Ray. A job number alone is used again."""
    if not is_ray_process():
        return None
    with contextlib.suppress(Exception):
        context = sys.modules["ray"].get_runtime_context()
        return f"{context.worker.node.session_name} {context.get_job_id()}"
    return None


def _launcher() -> str | None:
    """Return the process that started the ranks, with its start time where the system has it."""
    if rank() is None:
        return None
    parent, start = os.getppid(), ""
    with contextlib.suppress(OSError, IndexError):
        start = Path(f"/proc/{parent}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    return f"{_host()} {parent} {start}"


def _host() -> str:
    return socket.gethostname()

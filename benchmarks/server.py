"""Requests per second and latency of the reward server, against a plain FastAPI server.

    python benchmarks/server.py               # a few minutes; two cores: one serves, one asks
    python benchmarks/server.py --markdown

Every request carries one rollout. Both servers are one process under uvicorn with the same
settings; ours has its validation, metrics and a token on. `ceiling` is the generator against a
server that answers the same bytes always.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from nli import save_model
from rollouts import rollouts

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 32, 256)
TOKEN = "benchmark"  # noqa: S105
UVICORN = ["--no-access-log", "--log-level", "warning"]


@dataclass
class Load:
    """What a run of the generator saw. Latencies in seconds."""

    seconds: float
    latencies: list[float]
    failed: int

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Connection(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, requests: Iterator[bytes], load: Load, done: asyncio.Future[None]) -> None:
        self.requests, self.load, self.done = requests, load, done
        self.buffer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            self.done.set_result(None)
            return
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.load.latencies.append(time.perf_counter() - self.sent)
        self.load.failed += not head.startswith(b"HTTP/1.1 200")
        self.buffer = b""
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.load.failed += 1
            self.done.set_result(None)


def ask(port: int, bodies: Sequence[bytes], count: int, connections: int) -> Load:
    """`count` requests over that many connections."""
    head = (
        f"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    )
    ready = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    requests = iter([ready[i % len(ready)] for i in range(count)])
    load = Load(0.0, [], 0)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ends = [loop.create_future() for _ in range(connections)]
        for done in ends:
            await loop.create_connection(
                lambda done=done: Connection(requests, load, done), "127.0.0.1", port
            )
        await asyncio.gather(*ends)

    started = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    load.seconds = time.perf_counter() - started
    return load


@contextmanager
def serving(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server that answers /health, until the end of the block."""
    process = subprocess.Popen(command, env=os.environ | environment, cwd=HERE)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def commands(
    name: str, port: int, recipe: str, nli: str | None
) -> tuple[list[str], dict[str, str]]:
    """How a server is started, and its environment."""
    if name == "ours":
        model = ["--nli", nli] if nli else []
        command = ["-m", "rag_rewards", "serve", "-r", recipe, "--port", str(port), *model]
        return [sys.executable, *command], {"RAG_REWARDS_TOKEN": TOKEN}
    app = {"plain": "plain_server:app", "ceiling": "constant_server:app"}[name]
    variables = {"RECIPE": recipe} | ({"NLI": nli} if nli else {})
    return [sys.executable, "-m", "uvicorn", app, "--port", str(port), *UVICORN], variables


def measure(
    recipe: str, bodies: Sequence[bytes], counts: dict[int, int], nli: str | None, rounds: int
) -> dict[tuple[str, int], list[Load]]:
    """Every server at every number of connections, in turn, `rounds` times."""
    found: dict[tuple[str, int], list[Load]] = {}
    for _ in range(rounds):
        for name in ("ours", "plain") if nli else ("ours", "plain", "ceiling"):
            port = free_port()
            command, environment = commands(name, port, recipe, nli)
            with serving(command, port, **environment):
                ask(port, bodies, min(counts[32], 200), 8)  # warm up
                for connections in CONNECTIONS:
                    load = ask(port, bodies, counts[connections], connections)
                    found.setdefault((name, connections), []).append(load)
    return found


def rows(style: str, count: int) -> list[bytes]:
    """One rollout a request, each another."""
    return [json.dumps({"rollouts": [row]}).encode() for row in rollouts(style, count)]


def show(title: str, found: dict[tuple[str, int], list[Load]]) -> None:
    print(f"\n{title}\n")
    print("| connections | server | requests/s | p50 ms | p99 ms | failed | × plain |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for connections in CONNECTIONS:
        plain = statistics.median(load.rate for load in found["plain", connections])
        for name in ("ours", "plain", "ceiling"):
            loads = found.get((name, connections))
            if not loads:
                continue
            rate = statistics.median(load.rate for load in loads)
            p50 = statistics.median(load.quantile(0.5) for load in loads)
            p99 = statistics.median(load.quantile(0.99) for load in loads)
            failed = sum(load.failed for load in loads)
            print(
                f"| {connections} | {name} | {rate:,.0f} | {1000 * p50:.2f} | {1000 * p99:.2f} "
                f"| {failed} | {rate / plain:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--long", type=int, default=0, help="then so many requests to ours alone")
    options = parser.parse_args()
    n = options.requests
    counts = {1: n // 4, 32: n, 256: n}
    rules = measure("arena", rows("arena", 2000), counts, None, options.rounds)
    show("Rules: arena", rules)
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        small = {1: n // 80, 32: n // 8, 256: n // 8}
        bodies = rows("ground-grpo", 2000)
        judged = measure("ground-grpo", bodies, small, folder, options.rounds)
    show("Entailment of a small model: ground-grpo", judged)
    if options.long:
        port = free_port()
        command, environment = commands("ours", port, "arena", None)
        with serving(command, port, **environment):
            load = ask(port, rows("arena", 2000), options.long, 64)
        print(f"\n{options.long:,} requests: {load.failed} failed, {load.rate:,.0f} a second")


if __name__ == "__main__":
    main()

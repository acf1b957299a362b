"""Measure requests per second and latencies of the reward server and of a plain FastAPI server.

    python benchmarks/server.py       # a few minutes on two cores: one for the server

Each request contains one rollout. Both servers are one process of uvicorn with the same settings.
The reward server also validates rows, counts metrics and checks a token. `ceiling` is a server that
always returns the same bytes; it shows the limit of the load generator.
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
    """The result of the load generator. Latencies are in seconds."""

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
    """A connection that sends the next request when it receives a response."""

    def __init__(self, requests: Iterator[bytes], load: Load, done: asyncio.Future[None]) -> None:
        self.requests, self.load, self.done = requests, load, done
        self.buffer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            self.done.set_result(None)
            return
        self.start = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.load.latencies.append(time.perf_counter() - self.start)
        self.load.failed += not head.startswith(b"HTTP/1.1 200")
        self.buffer = b""
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.load.failed += 1
            self.done.set_result(None)


def generate_load(port: int, bodies: Sequence[bytes], count: int, connections: int) -> Load:
    """Send `count` requests over this number of connections."""
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

    start = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    load.seconds = time.perf_counter() - start
    return load


@contextmanager
def serving(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """Run a server during the block. The block starts when /health responds."""
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
    """Return the command that starts a server, and its environment."""
    if name == "rag-rewards":
        model = ["--nli", nli] if nli else []
        command = ["-m", "rag_rewards", "serve", "-r", recipe, "--port", str(port), *model]
        return [sys.executable, *command], {"RAG_REWARDS_TOKEN": TOKEN}
    app = {"plain": "plain_server:app", "ceiling": "constant_server:app"}[name]
    variables = {"RECIPE": recipe} | ({"NLI": nli} if nli else {})
    return [sys.executable, "-m", "uvicorn", app, "--port", str(port), *UVICORN], variables


def measure(
    recipe: str, bodies: Sequence[bytes], counts: dict[int, int], nli: str | None, rounds: int
) -> dict[tuple[str, int], list[Load]]:
    """Measure each server with each number of connections, `rounds` times in alternation."""
    results: dict[tuple[str, int], list[Load]] = {}
    for _ in range(rounds):
        for name in ("rag-rewards", "plain") if nli else ("rag-rewards", "plain", "ceiling"):
            port = free_port()
            command, environment = commands(name, port, recipe, nli)
            with serving(command, port, **environment):
                generate_load(port, bodies, min(counts[32], 200), 8)  # warm up
                for connections in CONNECTIONS:
                    load = generate_load(port, bodies, counts[connections], connections)
                    results.setdefault((name, connections), []).append(load)
    return results


def rows(style: str, count: int) -> list[bytes]:
    """Return the bodies of requests with one rollout each."""
    return [json.dumps({"rollouts": [row]}).encode() for row in rollouts(style, count)]


def print_table(title: str, results: dict[tuple[str, int], list[Load]]) -> None:
    print(f"\n{title}\n")
    print("| connections | server | requests/s | p50 ms | p99 ms | failed | rate / plain |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for connections in CONNECTIONS:
        plain = statistics.median(load.rate for load in results["plain", connections])
        for name in ("rag-rewards", "plain", "ceiling"):
            loads = results.get((name, connections))
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
    parser.add_argument(
        "--long", type=int, default=0, help="number of requests of a final long run"
    )
    options = parser.parse_args()
    n = options.requests
    counts = {1: n // 4, 32: n, 256: n}
    rules = measure("arena", rows("arena", 2000), counts, None, options.rounds)
    print_table("## Rules: arena", rules)
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        small = {1: n // 80, 32: n // 8, 256: n // 8}
        bodies = rows("ground-grpo", 2000)
        entailment = measure("ground-grpo", bodies, small, folder, options.rounds)
    print_table("## Entailment with a small model: ground-grpo", entailment)
    if options.long:
        port = free_port()
        command, environment = commands("rag-rewards", port, "arena", None)
        with serving(command, port, **environment):
            load = generate_load(port, rows("arena", 2000), options.long, 64)
        print(f"\n{options.long:,} requests: {load.failed} failed, {load.rate:,.0f} per second")


if __name__ == "__main__":
    main()

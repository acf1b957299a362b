"""Send requests with random faults to real servers, and check every answer.

    python tests/soak/server_soak.py --requests 1000000     # `make soak-server`

Two servers receive the requests: one scores `arena` with rules, the other `truthrl` with a judge
that fails at random and has outages. A request that is valid is repeated until it has all its
rewards; they must equal those that the library computes in this process. Then 32 connections
measure latencies, with and without connections that send a byte every ten seconds.

The command writes a page with its figures, and fails if a reward is wrong, if an answer is lost or
has an unexpected status, if the memory of a server grows by 5% or more after its warm-up, or if the
slow connections more than double the 99th percentile of the latency. The number of slow connections
requires as many open files in three processes (`ulimit -Hn`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from processes import free_port
from requests_with_faults import Plan, Planned, cases, http
from slow_connections import allow_open_files

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "benchmarks" / "results" / "soak_server.md"
HONEST = 32
"""Number of connections whose latency is measured."""
RULES_SHARE = 0.8
"""Share of the requests to the server without a judge."""
MAX_GROWTH, MAX_RATIO = 0.05, 2.0
LEAST_WARM_UP, LEAST_GROWTH_KB = 20_000, 4096
"""Fewer requests do not warm up a server, and less memory is no growth."""
KEPT_SECONDS = 2.0
"""Time after which a connection is not used again."""
LIMIT = 60.0 * 5
"""Seconds to wait for a response."""


@dataclass
class Outcome:
    """The counts of one server."""

    sent: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    rewards: int = 0
    unscored: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.sent.total()


class Client:
    """One connection, which is opened again when the server or the client has closed it."""

    def __init__(self, port: int, plan: Plan, outcome: Outcome) -> None:
        self.port, self.plan, self.outcome = port, plan, outcome
        self._writer: asyncio.StreamWriter | None = None
        self._used = 0.0
        """Time of the last response on this connection."""

    async def run(self, budget: Iterator[int]) -> None:
        """Send requests until the budget is used up."""
        for _ in budget:
            planned = self.plan.next()
            while not await self._send(planned):
                await asyncio.sleep(0.5)
        self._close()

    async def _send(self, planned: Planned) -> bool:
        """Send a request and check its answer. Return False if it must be repeated."""
        if time.monotonic() - self._used > KEPT_SECONDS:
            self._close()  # the server closes unused connections, as documented
        self.outcome.sent[planned.kind] += 1
        try:
            await self._write(planned.parts)
            if not planned.statuses:  # the client does not wait
                self._close()
                return True
            status, body = await asyncio.wait_for(self._read(), LIMIT)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            self._close()
            if not planned.may_close:
                self.outcome.lost.append(f"{planned.kind}: {type(error).__name__} {error}")
            return True
        self.outcome.statuses[status] += 1
        if status not in planned.statuses:
            self.outcome.wrong.append(f"{planned.kind}: status {status}: {body[:300]!r}")
        if planned.may_close:
            self._close()
        if status in (503, 504):
            return False
        return status != 200 or self._check(planned, json.loads(body)["scores"])

    def _check(self, planned: Planned, scores: Sequence[Any]) -> bool:
        """Compare the rewards. Return False if the judge gave no verdict for a row."""
        if len(scores) != len(planned.rewards):
            self.outcome.lost.append(f"{planned.kind}: {len(scores)} scores")
            return True
        is_complete = True
        for score, expected in zip(scores, planned.rewards, strict=True):
            reward, error = score["reward"], score["error"]
            if reward is None and error["type"] == "BackendError" and expected is not None:
                self.outcome.unscored += 1
                is_complete = False
            elif reward != expected or (reward is None) != (error is not None):
                self.outcome.wrong.append(f"{planned.kind}: {score}, expected {expected}")
            else:
                self.outcome.rewards += reward is not None
        return is_complete

    async def _write(self, parts: Sequence[bytes]) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        for i, part in enumerate(parts):
            if i:
                await asyncio.sleep(0.02)
            self._writer.write(part)
            await self._writer.drain()

    async def _read(self) -> tuple[int, bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        self._used = time.monotonic()
        if b"connection: close" in head:
            self._close()
        return int(head.split(b" ", 2)[1]), body

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


class Server:
    """A process of `rag-rewards serve`."""

    def __init__(self, name: str, *options: str) -> None:
        self.name, self.port = name, free_port()
        self.outcome = Outcome()
        self.memory: list[tuple[int, int]] = []
        """(number of requests, resident memory in kB) at several times."""
        command = [sys.executable, "-m", "rag_rewards", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen([*command, *options], env=os.environ)

    def __enter__(self) -> Server:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"the server of {self.name} does not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(300)

    def measure_memory(self) -> None:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = int(status.partition("VmRSS:")[2].split()[0])
        self.memory.append((self.outcome.requests, kilobytes))

    @property
    def growth(self) -> float:
        """Growth of the memory since the warm-up, as a share."""
        (_, first), (_, last) = self.memory[0], self.memory[-1]
        return 0.0 if last - first < LEAST_GROWTH_KB else last / first - 1


@contextmanager
def running(*command: object) -> Iterator[str]:
    """Run a script of this folder, and yield the line that it prints when it is ready."""
    arguments = [sys.executable, *map(str, command)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


async def send_all(
    servers: Sequence[tuple[Server, Plan, int]], connections: int, end: float
) -> None:
    """Send the numbers of requests until a time, and measure memory after the warm-up."""

    async def send(server: Server, plan: Plan, number: int) -> None:
        numbers = itertools.takewhile(lambda _: time.monotonic() < end, range(number))
        clients = [Client(server.port, plan, server.outcome) for _ in range(connections)]
        watching = asyncio.ensure_future(watch_memory(server, number))
        await asyncio.gather(*(client.run(numbers) for client in clients))
        watching.cancel()
        server.measure_memory()

    await asyncio.gather(*(send(*each) for each in servers))


async def watch_memory(server: Server, number: int) -> None:
    """Measure the memory after the warm-up, and then nine times."""
    start = min(LEAST_WARM_UP, number // 2)
    for target in [start + (number - start) * k // 10 for k in range(10)]:
        while server.outcome.requests < target:
            await asyncio.sleep(0.5)
        server.measure_memory()
        print(f"{server.name}: {server.outcome.requests:,} requests", file=sys.stderr, flush=True)


async def latencies(port: int, body: bytes, seconds: float) -> list[float]:
    """Return the latencies of `HONEST` connections during this time, in seconds."""
    request, end = http(body), time.monotonic() + seconds
    measured: list[float] = []

    async def repeat() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < end:
            start = time.perf_counter()
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            measured.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(repeat() for _ in range(HONEST)))
    return measured


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def measure_slow(server: Server, body: bytes, slow: int, seconds: float, rounds: int) -> Any:
    """Return the 99th percentiles without and with slow connections, alternately measured."""
    without, with_slow = [], []
    asyncio.run(latencies(server.port, body, seconds / 2))  # warm-up
    for _ in range(rounds):
        without.append(p99(asyncio.run(latencies(server.port, body, seconds))))
        with running(HERE / "slow_connections.py", server.port, slow):
            with_slow.append(p99(asyncio.run(latencies(server.port, body, seconds))))
        time.sleep(1.0)  # the server notices that the slow connections are closed
    return statistics.median(without), statistics.median(with_slow)


def problems(
    servers: Sequence[Server], slow: tuple[float, float] | None, strict: bool
) -> list[str]:
    """Return what did not meet the targets."""
    failures = []
    for server in servers:
        failures += [f"{server.name}: wrong: {each}" for each in server.outcome.wrong[:5]]
        failures += [f"{server.name}: lost: {each}" for each in server.outcome.lost[:5]]
        if strict and server.growth >= MAX_GROWTH:
            failures.append(f"{server.name}: the memory grew by {server.growth:.1%}")
    if strict and slow is not None and slow[1] > MAX_RATIO * slow[0]:
        failures.append(f"slow connections: p99 grew from {slow[0]:.4f} s to {slow[1]:.4f} s")
    return failures


def page(
    servers: Sequence[Server], seconds: float, slow: tuple[float, float] | None, number: int
) -> str:
    """Return the page with the figures."""
    total = sum(server.outcome.requests for server in servers)
    lines = [
        "# Long test of the reward server",
        "",
        f"`make soak-server` wrote this page: {platform.system()} {platform.machine()} with "
        f"{os.cpu_count()} cores, Python {platform.python_version()}. Other processes used the "
        "machine at the same time.",
        "",
        "## Requests with faults",
        "",
        f"{total:,} requests in {seconds:,.0f} seconds. The judge of `truthrl` failed for 4% of "
        "its requests, and for all of them during 9 of every 90 seconds. Requests without all "
        "rewards were repeated until they had them.",
        "",
        "| server | requests | rewards compared | unscored rows | wrong | lost "
        "| memory after warm-up | at the end | growth |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for server in servers:
        outcome, (_, first), (_, last) = server.outcome, server.memory[0], server.memory[-1]
        lines.append(
            f"| {server.name} | {outcome.requests:,} | {outcome.rewards:,} | {outcome.unscored:,} "
            f"| {len(outcome.wrong)} | {len(outcome.lost)} | {first / 1024:.1f} MB "
            f"| {last / 1024:.1f} MB | {last / first - 1:+.1%} |"
        )
    kinds = sum((server.outcome.sent for server in servers), Counter[str]())
    statuses = sum((server.outcome.statuses for server in servers), Counter[int]())
    lines += ["", "| request | number |", "| --- | --- |"]
    lines += [f"| {kind} | {count:,} |" for kind, count in kinds.most_common()]
    lines += ["", "| status | number |", "| --- | --- |"]
    lines += [f"| {status} | {count:,} |" for status, count in sorted(statuses.items())]
    if slow is not None:
        without, with_slow = slow
        lines += [
            "",
            "## Slow connections",
            "",
            f"Latency of {HONEST} connections to `arena`, without and with {number:,} connections "
            "that send a byte every ten seconds, half of them in the head of a request and half in "
            "its body.",
            "",
            "| slow connections | p99 |",
            "| --- | --- |",
            f"| 0 | {1000 * without:.1f} ms |",
            f"| {number:,} | {1000 * with_slow:.1f} ms ({with_slow / without:.2f} ×) |",
        ]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=1e9, help="send no requests after this")
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--slow", type=int, default=10_000, help="number of slow connections")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument(
        "--lenient", action="store_true", help="do not check memory and latency (for short runs)"
    )
    options = parser.parse_args()
    if options.slow:
        allow_open_files(options.slow)
    seed, started, slow = options.seed, time.monotonic(), None
    with ExitStack() as stack:
        judge = stack.enter_context(running(HERE / "faulty_judge.py", seed))
        judged = ("--judge", judge, "--judge-model", "m", "--set", "models.judge_retries=3")
        rules = stack.enter_context(Server("arena", "-r", "arena"))
        truthrl = stack.enter_context(Server("truthrl", "-r", "truthrl", *judged))
        rules_cases = cases("arena", seed)
        number = int(RULES_SHARE * options.requests)
        judged_plan = Plan(cases("truthrl", seed), is_judged=True, seed=seed)
        work = [
            (rules, Plan(rules_cases, is_judged=False, seed=seed), number),
            (truthrl, judged_plan, options.requests - number),
        ]
        asyncio.run(send_all(work, options.connections // 2, started + 60 * options.minutes))
        seconds = time.monotonic() - started
        servers = [rules, truthrl]
        if options.slow:
            body = json.dumps({"rollouts": [rules_cases[0].row]}).encode()
            slow = measure_slow(rules, body, options.slow, options.seconds, options.rounds)
    options.output.write_text(page(servers, seconds, slow, options.slow), "utf-8")
    found = problems(servers, slow, not options.lenient)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

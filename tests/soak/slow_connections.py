"""Many connections that send a byte now and then, as a process of its own.

    python tests/soak/slow_connections.py PORT NUMBER

It prints a line when all connections are open. A connection that the server closes is opened again.
"""

from __future__ import annotations

import asyncio
import resource
import sys

PAUSE = 10.0
"""Seconds between two bytes of a connection."""
HEAD = b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Slow: "
BODY = (
    b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000000\r\n\r\n"
)


class SlowConnections:
    """`number` connections: every second one is slow in its head, the others in their body."""

    def __init__(self, port: int, number: int) -> None:
        self.port, self.number = port, number
        self.open = 0
        self.all_open = asyncio.Event()

    async def run(self) -> None:
        slots = asyncio.Semaphore(200)
        await asyncio.gather(*(self._repeat(i, slots) for i in range(self.number)))

    async def _repeat(self, i: int, slots: asyncio.Semaphore) -> None:
        while True:
            try:
                async with slots:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                await self._send(HEAD if i % 2 else BODY, i, reader, writer)
            except OSError:
                await asyncio.sleep(1.0)

    async def _send(
        self, start: bytes, i: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.open += 1
        if self.open == self.number:
            self.all_open.set()
        try:
            writer.write(start)
            await asyncio.sleep(PAUSE * (i % 100) / 100)  # spread over the pause
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(PAUSE)
        finally:
            self.open -= 1
            writer.close()


def allow_open_files(number: int) -> None:
    """Raise the limit of open files of this process and of those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + 1000
    if wanted > hard != resource.RLIM_INFINITY:
        raise SystemExit(f"{wanted:,} open files are needed, the limit is {hard:,}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


async def main(port: int, number: int) -> None:
    connections = SlowConnections(port, number)
    running = asyncio.ensure_future(connections.run())
    await connections.all_open.wait()
    print("open", flush=True)
    await running


if __name__ == "__main__":
    allow_open_files(int(sys.argv[2]))
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))

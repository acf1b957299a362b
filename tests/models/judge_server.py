"""An HTTP server in the role of a judge: in a thread for tests, as a process for benchmarks.

A function from a request to a `Reply` determines its answers. It stores all requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

WAIT_SECONDS = 300
"""Limit for the start and the end of the server."""


@dataclass(frozen=True)
class Request:
    """`number` counts from 0; `at` is the monotonic clock when the request was complete."""

    number: int
    path: str
    headers: dict[str, str]
    raw: bytes
    at: float

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    @property
    def material(self) -> str:
        """The text of the user message."""
        return self.body["messages"][-1]["content"]


@dataclass(frozen=True)
class Reply:
    """`text` is the output of the judge; `raw` replaces the whole body of the answer.

    `cut` closes the connection without an answer, `hang` keeps it open without one, and `closes`
    closes it after the answer. An answer waits until `condition` is true.
    """

    text: str = '{"explanation": "as asked", "score": 1}'
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    delay: float = 0.0
    cut: bool = False
    hang: bool = False
    closes: bool = False
    condition: Callable[[], bool] = lambda: True
    finish: str = "stop"
    tokens: tuple[int, int] | None = (100, 10)

    def payload(self) -> bytes:
        if self.raw is not None:
            return self.raw
        message = {"role": "assistant", "content": self.text}
        answer: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
        }
        if self.tokens:
            prompt, completion = self.tokens
            answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        return json.dumps(answer).encode()


Behaviour = Callable[[Request], Reply]


class JudgeServer:
    """A server that runs within `with JudgeServer(behaviour) as server:` at `server.url`."""

    def __init__(self, behaviour: Behaviour = lambda _: Reply(), port: int = 0) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.connections = 0
        self.most_at_once = 0
        self._at_once = 0
        self._port = port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)

    def __enter__(self) -> JudgeServer:
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_SECONDS)

    async def serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._talks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._read(reader)) is not None:
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                try:
                    if not await self._answer(self.behaviour(request), writer):
                        break
                finally:
                    self._at_once -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return None
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        path = head[0].split(" ")[1]
        request = Request(len(self.requests), path, headers, raw, time.monotonic())
        self.requests.append(request)
        return request

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if reply.hang:
            await asyncio.Event().wait()
        if reply.delay:
            await asyncio.sleep(reply.delay)
        while not reply.condition():
            await asyncio.sleep(0.002)
        if reply.cut:
            return False
        payload = reply.payload()
        headers = {"content-type": "application/json", "content-length": str(len(payload))}
        lines = [f"{name}: {value}" for name, value in (headers | reply.headers).items()]
        head = "\r\n".join([f"HTTP/1.1 {reply.status} X", *lines, "", ""])
        writer.write(head.encode("latin-1") + payload)
        await writer.drain()
        if reply.closes:
            writer.close()  # after the answer; the end of `_talk` would discard it
            await writer.wait_closed()
        return not reply.closes


async def _main(delay: float) -> None:
    server = JudgeServer(lambda _: Reply(delay=delay))
    serving = asyncio.ensure_future(server.serve())
    while not server._ready.is_set():
        await asyncio.sleep(0.01)
    print(server.url, flush=True)
    await serving


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="serve verdicts, each after a delay")
    parser.add_argument("--delay", type=float, default=0.05)
    asyncio.run(_main(parser.parse_args().delay))

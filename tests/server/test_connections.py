"""Limits of connections, before a request has any headers that could be checked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from processes import WAIT_SECONDS
from uvicorn import Config
from uvicorn.server import ServerState

from rag_rewards.server import connections

REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


async def answer_length(scope: Any, receive: Any, send: Any) -> None:
    """Answer each request with the size of its body."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = Config(answer_length, log_level="critical")
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: connections.LimitedProtocol(config=config, server_state=state, app_state={}),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield reader, writer
    writer.close()
    server.close()


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    await reader.readuntil(b"\r\n\r\n")
    return await reader.read(1000)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), WAIT_SECONDS)
    return True


async def request(address: tuple[str, int]) -> tuple[bytes, asyncio.StreamWriter]:
    """Return the head of an answer, and its connection, which stays open."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(REQUEST % 2 + b"ab")
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_SECONDS), writer


async def test_connections_above_the_limit_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)

    async with connected() as (reader, writer):
        address = writer.get_extra_info("peername")
        heads = [await request(address) for _ in range(4)]
        assert [head.split(b" ")[1] for head, _ in heads] == [b"200"] * 2 + [b"503"] * 2
        assert b"retry-after: 1" in heads[-1][0]
        writer.write(REQUEST % 2 + b"ab")  # open connections are not affected
        assert await answer_of(reader) == b"2"
        heads[0][1].close()  # so that another one is accepted
        for _ in range(100):
            head, other = await request(address)
            other.close()
            if head.split(b" ")[1] == b"200":
                break
            await asyncio.sleep(0.01)
        assert head.split(b" ")[1] == b"200"
        for _, each in heads:
            each.close()


async def test_connections_far_above_the_limit_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 0)
    monkeypatch.setattr(connections, "_REFUSED", 0)

    async with connected() as (reader, _):
        assert await is_closed(reader)


def test_the_limit_of_connections_leaves_files_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert 512 < connections.max_connections() < 1024 - 128
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert connections.max_connections() == connections.MAX_CONNECTIONS


async def test_an_endless_head_closes_the_connection() -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                writer.write(b"x" * 10_000)
                await asyncio.wait_for(writer.drain(), WAIT_SECONDS)
                sent += 10_000
        assert sent < 64 << 20
        assert await is_closed(reader)


@pytest.mark.parametrize("cut", [10, 2_000, 70_000 + 44, 70_000 + 45])
@pytest.mark.parametrize(("size", "is_refused"), [(70_000, True), (60_000, False)])
async def test_the_limit_applies_to_a_head_that_arrives_at_once(
    size: int, is_refused: bool, cut: int
) -> None:
    """The body that arrives with a head does not count, wherever the data is cut."""
    head = REQUEST.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * size + b"\r\n\r\n") % 100_000

    async with connected() as (reader, writer):
        data = head + b"x" * 100_000
        at = len(head) - 2 if cut == 10 else cut
        writer.write(data[:at])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(data[at:])
        if is_refused:
            assert await is_closed(reader)
        else:
            assert await answer_of(reader) == b"100000"


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost:"])
async def test_a_connection_without_a_complete_head_is_closed(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)

    async with connected() as (reader, writer):
        writer.write(start)
        assert await is_closed(reader)


async def test_the_head_of_a_further_request_has_the_same_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 2.0)

    async with connected() as (reader, writer):
        writer.write(REQUEST % 2 + b"ab")
        assert await answer_of(reader) == b"2"
        writer.write(b"GET")  # the timeout of unused connections of uvicorn ends here
        assert await is_closed(reader)


async def test_a_large_slow_body_and_several_requests_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)

    async with connected() as (reader, writer):
        for _ in range(3):
            writer.write(REQUEST % 400_000)
            for _ in range(4):
                writer.write(b"x" * 100_000)
                await writer.drain()
                await asyncio.sleep(0.1)
            assert await answer_of(reader) == b"400000"

"""The client of servers of models, against a real server on this machine."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judge_server import JudgeServer, Reply, Request

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models import client as client_module
from rag_rewards.models.addresses import servers_of
from rag_rewards.models.client import Client, Sender
from rag_rewards.models.health import BackendUnavailable
from rag_rewards.models.limits import Limits
from rag_rewards.models.responses import HttpError
from rag_rewards.models.text_servers import SimilarityServer
from rag_rewards.models.text_servers.server import Api
from rag_rewards.models.vllm import VllmServer

ROOT = Path(__file__).parents[2]
OK = Reply(raw=b'{"number": 7}')
Numbers = dict[str, int]


def client_of(*servers: JudgeServer, **options: Any) -> Client:
    limits = Limits(**{"backoff": 0.01, "timeout": 60.0, "deadline": 60.0, **options})
    return Client("model", servers_of([server.url for server in servers]), limits)


async def number(_: Any, sender: Sender) -> int:
    return (await sender.post("/numbers", {"b": 1, "a": 2}, Numbers))["number"]


def numbers(client: Client, count: int = 1) -> list[int | Exception]:
    return asyncio.run(client.map(range(count), number))


def first_then(*replies: Reply) -> Callable[[Request], Reply]:
    """Return a behaviour: these replies to the first requests, and then a number."""
    return lambda request: (*replies, OK)[min(request.number, len(replies))]


def imports_httpx(path: Path) -> bool:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return any(name.partition(".")[0] in ("httpx", "requests", "aiohttp") for name in names)


def test_no_other_module_uses_the_http_library() -> None:
    folders = (ROOT / "rag_rewards", ROOT / "adapters")
    users = [path for folder in folders for path in folder.rglob("*.py") if imports_httpx(path)]
    assert users == [Path(client_module.__file__)]


# --- Retry-After ---------------------------------------------------------------------------------


def test_the_next_call_succeeds_after_a_retry_after_of_an_hour() -> None:
    """The wait ends with the call that received it."""
    with JudgeServer(first_then(Reply(status=503, headers={"retry-after": "3600"}))) as server:
        client = client_of(server, deadline=20.0)
        (error,) = numbers(client)
        assert "status 503" in str(error)
        assert "the next attempt would be after the deadline of 20 s" in str(error)
        start = time.monotonic()
        assert numbers(client) == [7]
        assert time.monotonic() - start < 20.0
    assert len(server.requests) == 2


def test_a_retry_after_beyond_the_deadline_ends_its_call_at_once() -> None:
    with JudgeServer(lambda _: Reply(status=503, headers={"retry-after": "3600"})) as server:
        errors = numbers(client_of(server, deadline=30.0, concurrency=2), 20)
    assert all("after the deadline of 30 s" in str(error) for error in errors)
    assert len(server.requests) <= 2


def test_a_retry_after_beyond_the_deadline_ends_no_simultaneous_call() -> None:
    async def overlapping(client: Client) -> list[int | Exception]:
        under_way = asyncio.ensure_future(client.map([0], number))
        while not server.requests:
            await asyncio.sleep(0.002)
        (refused,) = await client.map([1], number)
        assert "deadline" in str(refused)
        return [*await client.map([2], number), *await under_way]

    replies = {
        0: Reply(raw=OK.raw, condition=lambda: len(server.requests) == 3),
        1: Reply(status=503, headers={"retry-after": "3600"}),
    }
    with JudgeServer(lambda request: replies.get(request.number, OK)) as server:
        assert asyncio.run(overlapping(client_of(server))) == [7, 7]


def test_simultaneous_calls_share_a_wait() -> None:
    async def overlapping(client: Client) -> None:
        under_way = asyncio.ensure_future(client.map([0], number))
        await asyncio.sleep(0)
        ((shared, _),) = client._shared._objects.values()
        while not any(shared.paused.values()):
            await asyncio.sleep(0.002)
        assert await client.map([1], number) == [7]
        assert await under_way == [7]

    with JudgeServer(first_then(Reply(status=429, headers={"retry-after": "0.3"}))) as server:
        asyncio.run(overlapping(client_of(server)))
    first, *others = server.requests
    assert len(others) == 2
    assert all(request.at - first.at >= 0.3 for request in others)


def test_without_a_deadline_a_wait_is_at_most_the_timeout() -> None:
    with JudgeServer(first_then(Reply(status=503, headers={"retry-after": "3600"}))) as server:
        assert numbers(client_of(server, deadline=None, timeout=0.5)) == [7]
    first, second = server.requests
    assert second.at - first.at >= 0.5


def test_a_postponed_request_is_no_attempt_while_others_are_answered() -> None:
    """Another item is answered between two attempts of item 0."""
    items: list[int] = []

    async def send(item: int, sender: Sender) -> int:
        return (await sender.post("/numbers", {"item": item}, Numbers))["number"]

    def behave(request: Request) -> Reply:
        items.append(request.body["item"])
        if items[-1] or items.count(0) > 4:
            return OK
        before = len(items)  # the first of two further requests is then answered
        return Reply(status=429, condition=lambda: len(items) >= before + 2)

    with JudgeServer(behave) as server:
        client = client_of(server, retries=1, backoff=0.001, concurrency=2)
        assert asyncio.run(client.map(range(500), send)) == [7] * 500
    assert items.count(0) == 5


# --- several servers -----------------------------------------------------------------------------


def test_a_paused_server_receives_nothing_while_another_works() -> None:
    pause = Reply(status=503, headers={"retry-after": "3600"})
    with JudgeServer(lambda _: pause) as bad, JudgeServer(lambda _: OK) as good:
        client = client_of(bad, good, concurrency=2)
        assert numbers(client, 40) == [7] * 40
        assert [server.tokens for server in client.servers] == [0, 0]
    assert len(bad.requests) <= 4  # those that were sent at once


# --- failures of all requests --------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 402, 404, 405, 301])
def test_a_refusal_of_all_requests_ends_the_call(status: int) -> None:
    behave = first_then(*[Reply(status=status, raw=b"no")] * 4)
    with JudgeServer(behave) as server:
        client = client_of(server, concurrency=4)
        errors = numbers(client, 50)
        sent = len(server.requests)
        assert sent <= 4
        server.behaviour = lambda _: OK
        assert numbers(client, 3) == [7] * 3  # a later call asks the server
    assert isinstance(errors[0], HttpError)
    assert errors[0].status == status
    assert isinstance(errors[-1], BackendUnavailable)
    assert f"model: not sent: {server.url.removesuffix('/v1')} answered" in str(errors[-1])


def test_a_call_after_a_refusal_repeats_its_requests() -> None:
    replies = Reply(status=404), *[Reply(status=503)] * 3
    with JudgeServer(first_then(*replies)) as server:
        client = client_of(server, concurrency=3)
        assert "status 404" in str(numbers(client)[0])
        assert numbers(client, 20) == [7] * 20


def test_the_health_ends_requests_that_are_being_repeated() -> None:
    with JudgeServer(lambda _: Reply(status=500)) as server:
        client = client_of(server, retries=1000)
        client.health.failures, client.health.seconds = 5, 0.01
        errors = numbers(client, 4)
    assert {type(error) for error in errors} == {BackendUnavailable}
    assert len(server.requests) < 50


# --- requests ------------------------------------------------------------------------------------


def test_equal_bodies_have_equal_bytes() -> None:
    with JudgeServer(lambda _: OK) as server:
        assert numbers(client_of(server)) == [7]
    assert server.requests[0].raw == b'{"a":2,"b":1}'
    assert server.requests[0].path == "/numbers"


def test_an_unknown_path_can_be_a_page() -> None:
    async def describe(sender: Sender) -> Numbers:
        return await sender.get(("/info", "/models"), Numbers)

    def behave(request: Request) -> Reply:
        return OK if request.path == "/models" else Reply(raw=b"<html>")

    with JudgeServer(behave) as server:
        client = client_of(server)
        assert asyncio.run(client.one(describe)) == client.one_sync(describe) == {"number": 7}


def test_a_server_without_a_response_fails_at_once_without_an_event_loop(
    unused_address: str,
) -> None:
    client = Client("model", servers_of(unused_address), Limits(retries=8, backoff=60.0))
    with pytest.raises(BackendError, match="tried once"):
        client.one_sync(lambda sender: sender.get(("/models",), Numbers))


def test_a_description_that_requires_another_key_names_the_places_of_the_key() -> None:
    with JudgeServer(lambda _: Reply(status=401, raw=b"who?")) as server:
        client = client_of(server)
        client.keys = "api_key or KEY_OF_MODEL"
        with pytest.raises(HttpError, match=r"401: who\? \(check the key: api_key or KEY_OF_MODEL"):
            client.one_sync(lambda sender: sender.get(("/info", "/models"), Numbers))


def test_a_server_that_responds_describes_the_model_although_others_fail() -> None:
    describe: Any = lambda sender: sender.get(("/info", "/models"), Numbers)  # noqa: E731
    hang = Reply(condition=lambda: False)
    with (
        JudgeServer(lambda _: hang) as first,
        JudgeServer(lambda _: hang) as second,
        JudgeServer(lambda _: Reply(status=404)) as third,
        JudgeServer(lambda _: OK) as last,
    ):
        client = client_of(first, second, third, last, timeout=0.2)
        assert client.one_sync(describe) == {"number": 7}
        with pytest.raises(HttpError, match="status 404"):
            client_of(first, third, timeout=0.2).one_sync(describe)


def test_keys_are_in_no_message() -> None:
    with JudgeServer(lambda r: Reply(status=400, raw=repr(r.headers).encode())) as server:
        url = server.url.replace("//", "//me:s3cret@")
        key = {"authorization": "Bearer k3y"}
        client = Client("model", servers_of(url), Limits(retries=0), key)
        (error,) = numbers(client)
        assert server.requests[0].headers["authorization"].startswith("Basic ")
        server.requests.clear()
        plain = Client("model", servers_of(server.url), Limits(retries=0), key)
        (other,) = numbers(plain)
        assert server.requests[0].headers["authorization"] == "Bearer k3y"
    for text in (str(error), str(other), repr(client), repr(plain)):
        assert "s3cret" not in text
        assert "k3y" not in text
        assert "bWU6" not in text


def test_errors_keep_no_response_in_memory() -> None:
    large = b'["' + b"x" * 1_000_000 + b'"]'
    with JudgeServer(lambda _: Reply(raw=large)) as server:
        for max_bytes in (1 << 30, 500_000):
            client = client_of(server)
            client.max_bytes = max_bytes
            similarity = SimilarityServer(server.url, limits=client.limits)
            similarity._client = client
            similarity._description = Api("m", 1, lambda texts, sender: number(texts, sender))
            policy = VllmServer(server.url, limits=client.limits)
            tracemalloc.start()
            errors = numbers(client, 9)
            errors += asyncio.run(similarity.similarity([(str(i), "x") for i in range(9)]))
            errors += asyncio.run(policy.score([ScoreRequest((tuple(range(300_000)),), ((1,),))]))
            server.requests.clear()
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert {type(error) for error in errors} == {HttpError}
            assert size < 3_000_000


def test_a_query_is_in_no_message() -> None:
    with JudgeServer(lambda r: Reply(status=400, raw=f"no {r.path}".encode())) as server:
        urls = servers_of(f"{server.url}?key=s3cret", is_base=True)
        (error,) = numbers(Client("model", urls, Limits(retries=0)))
    assert str(error).endswith("status 400: no /v1/numbers***")


def test_a_deadline_ends_a_call_whatever_its_requests_wait_for() -> None:
    async def endless(_: Any, sender: Sender) -> int:
        await asyncio.Event().wait()
        return 0

    with JudgeServer(lambda _: OK) as server:
        client = client_of(server, deadline=0.05)
        results = asyncio.run(client.map(range(3), endless, name=lambda i: f"question {i}"))
    assert [str(result) for result in results] == [
        f"question {i}: the deadline of 0.05 s is over" for i in range(3)
    ]


def test_an_exception_that_is_no_backend_error_is_raised() -> None:
    async def fail(item: int, sender: Sender) -> int:
        raise UsageError("no folder")

    with JudgeServer(lambda _: OK) as server, pytest.raises(UsageError, match="no folder"):
        asyncio.run(client_of(server).map(range(3), fail))


def test_threads_share_a_client() -> None:
    results: list[list[int | Exception]] = []
    with JudgeServer(lambda _: OK) as server:
        client = client_of(server)
        work = [
            threading.Thread(target=lambda: results.append(numbers(client, 20))) for _ in range(4)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert client._shared._objects == {}
    assert results == [[7] * 20] * 4
    assert client.health.successes == 80

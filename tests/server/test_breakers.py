"""Servers of models that fail: refusals, /health, metrics and recovery."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes import WAIT_SECONDS
from running_server import connect

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.models import health
from rag_rewards.models.limits import Limits
from rag_rewards.models.openai import OpenAIJudge
from rag_rewards.models.text_servers import EntailmentServer

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from judge_server import JudgeServer, Reply, Request

PLAN = RecipeSpec(recipe="truthrl")
OPTIONS = {"breaker_failures": 2, "breaker_seconds": 0.2}
TICK = 0.05
"""Seconds between the requests of a test."""


class Clock:
    """The clock of the breakers. Only the test advances it, whatever the speed of the machine."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(health, "time", clock)
    return clock


def row(i: int) -> dict[str, Any]:
    """Return a row that requires the judge, and whose verdict is 1."""
    return {"question": f"q{i}", "response": r"\boxed{the sixties}", "answers": "2061"}


WITHOUT_JUDGE = {"question": "q", "response": r"\boxed{2061}", "answers": "2061"}


class Faulty:
    """A judge whose reply can be replaced."""

    def __init__(self) -> None:
        self.fault: Reply | None = None
        self.count = 0

    def __call__(self, _: Request) -> Reply:
        self.count += 1
        return self.fault or Reply()


def judge_at(server: JudgeServer, **options: Any) -> OpenAIJudge:
    limits = {"retries": 0, "timeout": WAIT_SECONDS} | options
    return OpenAIJudge("m", base_url=server.url, **limits)


async def score(client: httpx.AsyncClient, i: int) -> httpx.Response:
    return await client.post("/score", json={"rollouts": [row(i)]})


async def fail_until_open(client: httpx.AsyncClient, clock: Clock) -> httpx.Response:
    """Send requests until one is refused, and return its response."""
    for i in range(10):
        answer = await score(client, i)
        if answer.status_code == 503:
            return answer
        assert answer.json()["scores"][0]["reward"] is None
        assert answer.json()["scores"][0]["error"]["type"] == "BackendError"
        clock.now += TICK
    raise AssertionError("the breaker does not open")


async def metric(client: httpx.AsyncClient, name: str) -> float:
    shown = (await client.get("/metrics")).text
    return float(next(line for line in shown.splitlines() if line.startswith(name)).split()[-1])


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=500),
        Reply(status=429),
        Reply(raw=b"<html>"),
        Reply(cut=True),
        Reply(raw=b'{"choices": []}'),
    ],
    ids=["500", "429", "garbage", "closed", "no choice"],
)
def test_a_judge_that_fails_is_refused_and_recovers(fault: Reply, clock: Clock) -> None:
    behaviour = Faulty()

    async def test(server: JudgeServer) -> None:
        async with connect(PLAN, Models(judge=judge_at(server)), **OPTIONS) as (client, _):
            assert (await score(client, 0)).json()["scores"][0]["reward"] == 1.0
            assert (await client.get("/health")).json()["backends"] == {"judge": "closed"}
            behaviour.fault = fault
            refusal = await fail_until_open(client, clock)
            error = refusal.json()["error"]
            assert error["type"] == "BackendUnavailable"
            assert error["message"].startswith("judge m: not sent: ")
            assert server.url in error["message"]
            assert "failures in a row; the last one: " in error["message"]
            assert refusal.headers["retry-after"] == "1"
            count = behaviour.count
            assert (await score(client, 1)).status_code == 503
            assert behaviour.count == count  # no request is sent while it is open
            health = await client.get("/health")
            assert health.status_code == 503
            assert health.json()["backends"] == {"judge": "open"}
            assert health.json()["reason"].startswith("judge: judge m: not sent: ")
            assert await metric(client, 'rag_rewards_backend_state{backend="judge"}') == 2
            other = await client.post("/score", json={"rollouts": [WITHOUT_JUDGE]})
            assert other.json()["scores"][0]["reward"] == 1.0

            behaviour.fault = None
            clock.now += OPTIONS["breaker_seconds"]
            assert (await client.get("/health")).json()["backends"] == {"judge": "half-open"}
            assert (await score(client, 2)).json()["scores"][0]["reward"] == 1.0
            assert (await client.get("/health")).status_code == 200
            assert await metric(client, 'rag_rewards_backend_state{backend="judge"}') == 0
            assert await metric(client, "rag_rewards_backend_seconds_count") == behaviour.count

    with JudgeServer(behaviour) as server:
        asyncio.run(test(server))


def test_a_refused_question_is_no_failure(clock: Clock) -> None:
    """Status 400 shows that the judge works, and a response without a verdict as well."""

    async def test(server: JudgeServer) -> None:
        async with connect(PLAN, Models(judge=judge_at(server)), **OPTIONS) as (client, _):
            for i in range(10):
                assert (await score(client, i)).status_code == 200
                clock.now += TICK
            assert (await client.get("/health")).json()["backends"] == {"judge": "closed"}

    for reply in (Reply(status=400), Reply(text="I cannot tell.")):
        with JudgeServer(lambda _, reply=reply: reply) as server:
            asyncio.run(test(server))


def test_requests_that_are_being_repeated_end_when_the_breaker_opens() -> None:
    async def test(server: JudgeServer) -> None:
        judge = judge_at(server, retries=1000, backoff=0.01)
        async with connect(PLAN, Models(judge=judge), deadline=WAIT_SECONDS, **OPTIONS) as (
            client,
            _,
        ):
            answers = await asyncio.gather(*[score(client, i) for i in range(20)])
            assert {answer.status_code for answer in answers} == {503}

    with JudgeServer(lambda _: Reply(status=500)) as server:
        asyncio.run(test(server))


@pytest.mark.parametrize("error_value", [None, -1.0])
def test_openrlhf(error_value: float | None, clock: Clock) -> None:
    """No value replaces the failure of a model: other rollouts of the prompt keep theirs."""
    label = json.dumps({"question": "q", "answers": "2061"})
    sample = {"query": [r"q\boxed{the sixties}"], "prompts": ["q"], "labels": [label]}

    async def test(server: JudgeServer) -> None:
        models, options = Models(judge=judge_at(server)), OPTIONS | {"error_value": error_value}
        async with connect(PLAN, models, **options) as (client, _):
            await fail_until_open(client, clock)
            answer = await client.post("/openrlhf", json=sample)
            assert answer.status_code == 503
            assert answer.json()["error"]["type"] == "BackendUnavailable"
            assert int(answer.headers["retry-after"]) >= 1

    with JudgeServer(lambda _: Reply(status=500)) as server:
        asyncio.run(test(server))


class UnreachableServer(EntailmentServer):
    """An entailment server that ended after its model was described."""

    fingerprint = "nli"  # type: ignore[assignment]


async def test_pairs_that_are_sent_on(clock: Clock) -> None:
    """A server of texts behind this server has a breaker as well."""

    limits = Limits(retries=0, backoff=0.001)
    models = Models(entailment=UnreachableServer("http://127.0.0.1:1", limits=limits))
    async with connect(PLAN, models, **OPTIONS) as (client, _):
        for _ in range(10):
            answer = await client.post("/entailment", json={"pairs": [["a", "b"]]})
            if answer.status_code == 503:
                break
            assert answer.status_code == 424
            clock.now += TICK
        assert answer.json()["error"]["type"] == "BackendUnavailable"
        assert "http://127.0.0.1:1 lost the connection" in answer.json()["error"]["message"]


def test_a_breaker_can_be_turned_off(clock: Clock) -> None:
    async def test(server: JudgeServer) -> None:
        options = OPTIONS | {"breaker_failures": 0}
        async with connect(PLAN, Models(judge=judge_at(server)), **options) as (client, _):
            for i in range(10):
                assert (await score(client, i)).status_code == 200
                clock.now += TICK

    with JudgeServer(lambda _: Reply(status=500)) as server:
        asyncio.run(test(server))

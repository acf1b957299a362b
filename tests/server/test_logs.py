"""The log of the server as text and as JSON, with the ids of requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running_server import ARENA, Running, connect

from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.server.logs import JsonFormatter, TextFormatter

PLAN = RecipeSpec(recipe="arena")


class Recorder(logging.Handler):
    """Keeps the formatted lines of the log."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def record() -> Iterator[Callable[[logging.Formatter], Recorder]]:
    logger, handlers = logging.getLogger("rag_rewards.server"), []
    level = logger.level

    def start(formatter: logging.Formatter) -> Recorder:
        handlers.append(recorder := Recorder(formatter))
        logger.addHandler(recorder)
        logger.setLevel(logging.INFO)
        return recorder

    yield start
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(level)


async def test_requests_are_logged_as_json(record: Any) -> None:
    log = record(JsonFormatter())

    async with connect(PLAN, logs_requests=True) as (client, _):
        headers = {"X-Request-Id": "seven"}
        await client.post("/score", json={"rollouts": [ARENA]}, headers=headers)
        await client.request("BREW", "/a%0apath", headers=headers)
    scored, refused, unknown = map(json.loads, log.lines)
    assert {name: scored[name] for name in ("level", "method", "route", "status")} == {
        "level": "info",
        "method": "POST",
        "route": "/score",
        "status": 200,
    }
    assert scored["request_id"] == "seven"
    assert scored["message"].startswith("POST /score: status 200 in 0.")
    assert 0 < scored["seconds"] < 60
    assert scored["time"].endswith("+00:00")
    assert (refused["status"], refused["type"]) == (404, "NotFound")
    assert "apath" not in refused["message"]  # a path is untrusted
    assert (unknown["method"], unknown["route"], unknown["status"]) == ("OTHER", "other", 404)


async def test_requests_are_not_logged_by_default(record: Any) -> None:
    log = record(JsonFormatter())

    async with connect(PLAN) as (client, _):
        await client.post("/score", json={"rollouts": [ARENA]})
    assert log.lines == []


async def test_refused_requests_are_logged_with_their_reason(record: Any) -> None:
    log, text = record(JsonFormatter()), record(TextFormatter())

    async with connect(PLAN, token="s3cret", max_rows=1) as (client, _):
        headers = {"X-Request-Id": "nine"}
        await client.post("/score", json={"rollouts": [ARENA]}, headers=headers)
        headers["Authorization"] = "Bearer s3cret"
        for rows in ([{"response": 1}], [ARENA] * 2):
            await client.post("/score", json={"rollouts": rows}, headers=headers)
        await client.post("/score", content="\n{", headers=headers)
    lines = [json.loads(line) for line in log.lines]
    assert [line["status"] for line in lines] == [401, 422, 413, 400]
    assert all(line["level"] == "warning" and line["request_id"] == "nine" for line in lines)
    assert lines[0]["message"] == (
        "request refused with status 401, Unauthorized: missing or wrong token"
    )
    assert lines[1]["message"].startswith(
        "request refused with status 422, RowError: rollouts[0].response: "
    )
    assert lines[1]["path"] == "rollouts[0].response"
    assert not any("s3cret" in line for line in text.lines)
    assert text.lines[2].endswith("a request has at most 1 rows, found 2 [request nine]")


async def test_an_unexpected_error_has_the_id_of_its_request(record: Any) -> None:
    log = record(JsonFormatter())

    async with connect(PLAN) as (client, server):
        server._decode = None  # type: ignore[method-assign,assignment]
        headers = {"X-Request-Id": "eight"}
        answer = await client.post("/score", json={"rollouts": []}, headers=headers)
        assert answer.status_code == 500
    entry = json.loads(log.lines[-1])
    assert (entry["level"], entry["request_id"]) == ("error", "eight")
    assert "TypeError" in entry["exception"]


def test_a_message_of_several_lines_is_one_line_of_text(record: Any) -> None:
    log = record(TextFormatter())
    logging.getLogger("rag_rewards.server").warning("not ready: %s", "a\nb\r\x1b[2Jc\u2028d")
    (line,) = log.lines
    assert line.endswith("WARNING not ready: a\\nb\\r\\x1b[2Jc\\u2028d")


class BrokenJudge:
    """A judge with a bug."""

    fingerprint = "broken"

    async def judge(self, questions: list[JudgeQuestion]) -> list[int | Exception]:
        logging.getLogger("rag_rewards.server").error("a bug\nin two lines \ud800")
        raise KeyError("bug")

    async def close(self) -> None:
        return None


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()], ids=["json", "text"])
async def test_a_batch_has_the_ids_of_its_requests(
    record: Any, formatter: logging.Formatter
) -> None:
    log = record(formatter)
    row = {"question": "q", "response": r"\boxed{x}", "answers": "a"}

    models = Models(judge=BrokenJudge())  # type: ignore[arg-type]
    async with connect(RecipeSpec(recipe="truthrl"), models, batch_ms=60_000, batch_rows=2) as (
        client,
        _,
    ):
        await asyncio.gather(
            *[
                client.post("/score", json={"rollouts": [row]}, headers={"X-Request-Id": each})
                for each in ("a1", "a2")
            ]
        )
    (line,) = log.lines
    if isinstance(formatter, JsonFormatter):
        assert "\n" not in line
        assert json.loads(line)["request_id"] == "a1,a2"
        assert json.loads(line)["message"] == "a bug\nin two lines \ud800"
    else:
        assert line.endswith("[request a1,a2]")


def test_all_lines_of_a_process_are_json(serving: Callable[..., Running]) -> None:
    running = serving("-r", "arena", "--log-format", "json", "--log-requests")
    headers = {"X-Request-Id": "nine"}
    running.post("/score", json={"rollouts": [ARENA]}, headers=headers)
    _, log = running.stop()
    entries = [json.loads(line) for line in log.splitlines()]
    assert f"arena on {running.url}" in entries[0]["message"]
    (scored,) = [entry for entry in entries if entry.get("route") == "/score"]
    assert (scored["request_id"], scored["status"]) == ("nine", 200)

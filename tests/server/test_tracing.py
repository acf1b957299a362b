"""Spans of OpenTelemetry, read with the exporter of its SDK that keeps them in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from running_server import ARENA, Running, connect
from trace_collector import trace_collector

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.openai import OpenAIJudge
from rag_rewards.server.logs import JsonFormatter
from rag_rewards.server.tracing import Tracing

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from judge_server import JudgeServer, Reply

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PLAN = RecipeSpec(recipe="arena")
ROW = {"question": "q", "response": r"\boxed{the sixties}", "answers": "2061"}


class Spans:
    """A tracing, and the spans that it records."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    def named(self, name: str) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


async def test_a_request_continues_the_trace_of_its_client() -> None:
    spans = Spans()

    async with connect(PLAN) as (client, server):
        server.telemetry.tracing = spans.tracing
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "seven"}
        await client.post("/score", json={"rollouts": [ARENA]}, headers=headers)
    (span,) = spans.named("POST /score")
    assert span.kind is SpanKind.SERVER
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert dict(span.attributes) == {
        "http.request.method": "POST",
        "http.route": "/score",
        "http.response.status_code": 200,
        "rag_rewards.request_id": "seven",
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("header", ["", "00-0-0-01", "nonsense", "00-" + "0" * 32 + "-" + PARENT])
async def test_an_invalid_header_starts_a_new_trace(header: str) -> None:
    spans = Spans()

    async with connect(PLAN) as (client, server):
        server.telemetry.tracing = spans.tracing
        await client.get("/nowhere", headers={"traceparent": header})
    (span,) = spans.named("GET other")
    assert span.parent is None
    assert span.attributes["http.response.status_code"] == 404


def scored_with_judge(spans: Spans, reply: Reply, requests: int) -> None:
    async def test(url: str) -> None:
        judge = OpenAIJudge("m", base_url=url, retries=0)
        plan = RecipeSpec(recipe="truthrl")
        async with connect(plan, Models(judge=judge), batch_ms=60_000, batch_rows=requests) as (
            client,
            server,
        ):
            server.telemetry.tracing = spans.tracing
            rows = [ROW | {"question": f"q{i}"} for i in range(requests)]
            await asyncio.gather(*[client.post("/score", json={"rollouts": [r]}) for r in rows])

    with JudgeServer(lambda _: reply) as judge:
        asyncio.run(test(judge.url))


@pytest.mark.parametrize(
    ("reply", "status"), [(Reply(), StatusCode.UNSET), (Reply(status=500), StatusCode.ERROR)]
)
def test_a_batch_and_its_calls_belong_to_the_trace_of_their_request(
    reply: Reply, status: StatusCode
) -> None:
    spans = Spans()
    scored_with_judge(spans, reply, 1)
    (request,), (batch,), (call,) = map(spans.named, ("POST /score", "score batch", "call judge"))
    assert batch.parent.span_id == request.context.span_id
    assert call.parent.span_id == batch.context.span_id
    assert {each.context.trace_id for each in (batch, call)} == {request.context.trace_id}
    assert dict(batch.attributes) == {"rag_rewards.requests": 1, "rag_rewards.rollouts": 1}
    assert call.attributes["rag_rewards.backend"] == "judge"
    assert call.kind is SpanKind.CLIENT
    assert call.status.status_code is status
    assert batch.start_time <= call.start_time <= call.end_time <= batch.end_time


def test_a_batch_of_several_requests_has_links_to_them() -> None:
    spans = Spans()
    scored_with_judge(spans, Reply(), 3)
    requests, (batch,) = spans.named("POST /score"), spans.named("score batch")
    assert batch.parent is None
    assert {link.context.span_id for link in batch.links} == {r.context.span_id for r in requests}
    assert len(spans.named("call judge")) == 3


async def test_messages_of_a_request_have_the_ids_of_its_span() -> None:
    spans, lines = Spans(), []

    with spans.tracing.request("GET", "/health", {}, "seven"):
        record = logging.LogRecord("a", logging.INFO, "", 0, "message", (), None)
        lines.append(JsonFormatter().format(record))
    (span,) = spans.named("GET /health")
    entry = json.loads(lines[0])
    assert entry["trace_id"] == f"{span.context.trace_id:032x}"
    assert entry["span_id"] == f"{span.context.span_id:016x}"


def test_a_process_sends_its_spans_to_a_collector(
    serving: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "rewards-of-step-7")
    with trace_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        running = serving("-r", "arena", "--traces")
        running.post("/score", json={"rollouts": [ARENA]})
        _, log = running.stop()  # sends the remaining spans
    assert "Traceback" not in log
    assert collector.paths == {"/v1/traces"}
    assert b"POST /score" in collector.body
    assert b"rewards-of-step-7" in collector.body

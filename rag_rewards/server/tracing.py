"""Traces of a server with OpenTelemetry: spans of requests, batches and calls of models on servers.

Without a provider, nothing is recorded, and the packages of OpenTelemetry are not needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rag_rewards import __version__
from rag_rewards.errors import needs_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_SECOND = 1_000_000_000
"""Nanoseconds, the unit of OpenTelemetry."""


class Tracing:
    """Records spans with a provider of the OpenTelemetry SDK; without one, it records nothing.

    A span of a request continues the trace of the header `traceparent` (W3C Trace Context). A batch
    of one request is a child of its span; a batch of several requests is a trace of its own with
    links to their spans. A call of a model on a server is a child of its batch.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer: Any = provider and provider.get_tracer("rag_rewards", __version__)

    @classmethod
    def to_collector(cls) -> Tracing:
        """Return a tracing that sends spans by OTLP over HTTP.

        The environment variables of OpenTelemetry configure it, such as OTEL_SERVICE_NAME and
        OTEL_EXPORTER_OTLP_ENDPOINT. Raises MissingExtraError if its packages are not installed.
        """
        with needs_extra("otel", "opentelemetry-sdk"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        name = os.environ.get("OTEL_SERVICE_NAME", "rag-rewards")
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def request(
        self, method: str, route: str, headers: Mapping[bytes, bytes], request_id: str
    ) -> AbstractContextManager[Any]:
        """Record a request during a block. `end_request` adds its status to the span."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {
            name: headers.get(name.encode(), b"").decode("latin-1")
            for name in ("traceparent", "tracestate")
        }
        span: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            f"{method} {route}",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "rag_rewards.request_id": request_id,
            },
        )
        return span

    @staticmethod
    def end_request(span: Any, status: int) -> None:
        """Add the status of the response to the span of a request."""
        if span is not None:
            from opentelemetry.trace import StatusCode

            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(StatusCode.ERROR)

    def current(self) -> Any:
        """Return the context of the current span, for `batch`; None without a provider."""
        if self._tracer is None:
            return None
        from opentelemetry.trace import get_current_span

        return get_current_span().get_span_context()

    def batch(self, requests: Sequence[Any], rows: int) -> AbstractContextManager[Any]:
        """Record a batch during a block. `requests` has the contexts of its requests."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, NonRecordingSpan, set_span_in_context

        context, links = Context(), [Link(each) for each in requests]
        if len(requests) == 1:
            context, links = set_span_in_context(NonRecordingSpan(requests[0]), context), []
        span: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            "score batch",
            context=context,
            links=links,
            attributes={"rag_rewards.requests": len(requests), "rag_rewards.rollouts": rows},
        )
        return span

    def record_call(self, backend: str, is_success: bool, seconds: float) -> None:
        """Record a call of a model on a server, which ends now."""
        if self._tracer is None:
            return
        from opentelemetry.trace import SpanKind, StatusCode

        end = time.time_ns()
        span = self._tracer.start_span(
            f"call {backend}",
            kind=SpanKind.CLIENT,
            start_time=end - int(seconds * _SECOND),
            attributes={"rag_rewards.backend": backend},
        )
        if not is_success:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Send the remaining spans."""
        if self._provider is not None:
            self._provider.shutdown()

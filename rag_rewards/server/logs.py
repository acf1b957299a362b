"""The log of a server: one line of text or one JSON object for each message.

The id of a request connects its response, its error and its lines in the log.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

log = logging.getLogger("rag_rewards.server")

MAX_MESSAGE = 300
"""Characters of an error message that are shown."""
_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of clients that are safe in a header, in a log line and in JSON."""
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

LogFormat = Literal["text", "json"]


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The log and the traces of the server."""

    log_format: LogFormat = "text"
    """Write the log as lines of text or as JSON objects."""
    log_requests: bool = False
    """Log each request with its route, status and duration."""
    traces: bool = False
    """Send traces to an OpenTelemetry collector, which the variables OTEL_* configure."""


def configure_logs(log_format: LogFormat) -> None:
    """Write the messages of all libraries to the standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it logs every judge request


def request_id_of(header: bytes | None) -> str:
    """Return the id in an `X-Request-Id` header, or a random one if there is no safe id.

    >>> request_id_of(b"step-17/rank-3"), len(request_id_of(b"a\\nb"))
    ('step-17/rank-3', 32)
    """
    if header is not None and _ID.fullmatch(header):
        return header.decode("ascii")
    return os.urandom(16).hex()


def current_request_id() -> str:
    """Return the id of the request that the caller handles; "" outside of a request.

    A batch of several requests has all of their ids, separated by commas.
    """
    return _REQUEST_ID.get()


def set_request_id(value: str) -> None:
    """Set the id for the current task and the tasks that it starts."""
    _REQUEST_ID.set(value)


def short_message(error: BaseException) -> str:
    """Return the message of an error, cut, and without characters that UTF-8 cannot encode."""
    return str(error)[:MAX_MESSAGE].encode("utf-8", "replace").decode()


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Line breaks and further characters that control a terminal."""


class TextFormatter(logging.Formatter):
    """Time, level and message, with the id of the request if there is one.

    Control characters are escaped, because a message can contain the text of a judge or a request,
    which could otherwise imitate further lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        request_id = current_request_id()
        line = super().formatMessage(record).rstrip()
        line = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)
        return line + (f" [request {request_id}]" if request_id else "")


class JsonFormatter(logging.Formatter):
    """A JSON object on one line: time, level, logger, message, and what is known of the request.

    `request_id`, `trace_id` and `span_id` exist during a request, `exception` for an exception. The
    attribute `fields` of a record adds further keys.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_request_id():
            entry["request_id"] = request_id
        entry |= _trace_ids()
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)  # escapes line breaks, and halves of surrogate pairs


def _trace_ids() -> dict[str, str]:
    """Return the ids of the current span, if traces are recorded."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return {}
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

"""Ids of requests: they connect a response, its error and the lines of the log."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar

_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of clients that are safe in a header, in a log line and in JSON."""
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


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

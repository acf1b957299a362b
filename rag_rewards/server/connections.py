"""Connections of the server: limits of a request's head, which uvicorn reads before any check."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from contextlib import suppress
from typing import Any

from rag_rewards.errors import needs_extra

with needs_extra("server", "uvicorn"):
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_HEAD_BYTES = 1 << 16
"""Maximum size of the request line and the headers."""
HEAD_SECONDS = 30.0
"""Maximum time from the opening of a connection, or from the first byte of a further request, to
the end of the headers."""
MAX_CONNECTIONS = 2048
"""Maximum number of open connections. Further ones get 503 after their first bytes."""
_SPARE_FILES = 128
"""Number of files that a process may open besides connections."""
_REFUSED = 64
"""Number of connections above the limit that can be open for their 503."""

_HEAD_END = b"\r\n\r\n"
_BUSY_BODY = b'{"error":{"type":"Busy","message":"too many connections","path":""}}'
_BUSY = b"\r\n".join(
    [
        b"HTTP/1.1 503 Service Unavailable",
        b"content-type: application/json",
        b"content-length: %d" % len(_BUSY_BODY),
        b"retry-after: 1",
        b"connection: close",
        b"",
        _BUSY_BODY,
    ]
)

_Protocol: Any = AutoHTTPProtocol


def max_connections() -> int:
    """Return the maximum number of open connections, for which the process needs open files."""
    with suppress(ImportError):  # on Windows
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return min(MAX_CONNECTIONS, max(files - _SPARE_FILES - _REFUSED, 16))
    return MAX_CONNECTIONS


class LimitedProtocol(_Protocol):  # type: ignore[misc]
    """The protocol of uvicorn with a limit of connections.

    It also closes a connection whose head is too long or too slow.
    """

    _is_refused = False
    _head_bytes = 0
    _head_end = b""
    """The last bytes of an incomplete head, which can contain a part of its end."""
    _head_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self._start_timer()
        excess = len(self.connections) - max_connections()
        self._is_refused = excess > 0
        if excess > _REFUSED:
            self._close()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self.transport.write(_BUSY)
            self._close()
            return
        if self._awaits_head and self._is_too_long(data):
            self._close()
            return
        super().data_received(data)
        if not self._awaits_head:
            self._head_bytes, self._head_end = 0, b""
            self._stop_timer()
            return
        self._start_timer()
        self._head_bytes += len(data)
        self._head_end = (self._head_end + data)[-len(_HEAD_END) + 1 :]

    def _is_too_long(self, data: bytes) -> bool:
        """Return whether the head does not end within the limit. `data` can contain a body."""
        left = MAX_HEAD_BYTES - self._head_bytes
        return len(data) > left and _HEAD_END not in self._head_end + data[: max(left, 0)]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _awaits_head(self) -> bool:
        """Whether the next byte belongs to a head, and not to the body of a request."""
        cycle = self.cycle
        return cycle is None or (cycle.response_complete and not cycle.more_body)

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.close()

"""A collector of traces, which receives OTLP over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Collector:
    """A collector with the paths and the bodies of its requests."""

    url: str
    paths: set[str] = field(default_factory=set)
    body: bytes = b""


@contextlib.contextmanager
def trace_collector() -> Iterator[Collector]:
    """Run a collector for the time of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.paths.add(self.path)
            collector.body += self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()

"""The page of the routes: a static page without scripts, generated from the OpenAPI schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif }
h2 { margin-top: 2.5rem; border-top: 1px solid #8888; padding-top: 1rem }
pre { overflow-x: auto; padding: .7rem; background: #8882; border-radius: .3rem }
table { border-collapse: collapse }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def documentation_page(schema: Mapping[str, Any]) -> bytes:
    """Return an HTML page with the description, an example and the responses of each route."""
    info = schema["info"]
    body = "".join(
        _route(method, path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    )
    title = escape(f"{info['title']} {info['version']}")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{escape(info['description'])} The schemas of all requests and responses are in "
        f'<a href="openapi.json">openapi.json</a>.</p>{body}</body></html>'
    )
    return page.encode()


def _route(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>",
        f"<p>{escape(operation.get('description', ''))}</p>",
        *_example("Request", operation.get("requestBody", {})),
    ]
    responses = operation.get("responses", {})
    for status, response in responses.items():
        parts += _example(f"Response {status}", response)
    rows = (
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in responses.items()
    )
    return "".join([*parts, "<table>", *rows, "</table>"])


def _example(title: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the example of a request or a response, if there is one."""
    example = content.get("content", {}).get("application/json", {}).get("example")
    if example is not None:
        shown = json.dumps(example, indent=2, ensure_ascii=False)
        yield f"<p>{escape(title)}</p><pre>{escape(shown)}</pre>"

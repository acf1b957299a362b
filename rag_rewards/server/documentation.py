"""The documentation of the routes: the OpenAPI schema, and a page that is generated from it.

The schemas derive from the types of the bodies, and the examples of scores are computed, so that
both are those of this version.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.loading import load_recipe
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.server.access import OPEN_ROUTES
from rag_rewards.server.app import score_data
from rag_rewards.server.request_errors import ErrorResponse
from rag_rewards.training import openrlhf


@dataclass(frozen=True)
class Route:
    """A route, whose handler has its description. A route with a `request` reads such a body.

    errors  statuses of errors that other routes do not have
    """

    method: str
    path: str
    handler: Callable[..., Coroutine[Any, Any, Any]]
    request: type | None = None
    response: type | None = None
    errors: tuple[int, ...] = ()


ERRORS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    404: "The server has no such model.",
    409: "The recipe compares the rollouts of a group.",
    413: "The body or the number of rows exceeds the limit.",
    422: "A row is invalid; `path` is the field.",
    424: "The model returned no result.",
    503: "A model is loading, a backend does not respond, or the server is busy.",
    504: "The scores were not available within the deadline.",
}
_OF_BODIES = (400, 413, 422, 503, 504)
_ROW = {
    "question": "Which river runs through Paris?",
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
    "supporting": [1],
    "answers": ["Seine", "the Seine"],
    "response": "<relevance>[1]</relevance><analysis>[1] says so.</analysis><answer>Seine</answer>",
}
_PROMPT = "Which river runs through Paris? "
_SAMPLES = openrlhf.SampleRequest(
    query=[f"{_PROMPT}{_ROW['response']}</s>"],
    prompts=[_PROMPT],
    labels=['{"answers": ["Seine"], "supporting": [1], "documents": ["Paris lies on the Seine."]}'],
)


def _examples() -> dict[str, tuple[Any, Any]]:
    """Return an example of the request and, as this version computes it, of the response."""
    recipe = load_recipe("arena")
    rollout, samples = decode_row(_ROW), openrlhf.rollouts_of(_SAMPLES)
    score, *results = Scorer(recipe).score_each([rollout, *samples])
    scored = {"scores": [score_data(rollout, score)], "signature": recipe.signature}
    return {
        "/score": ({"rollouts": [_ROW]}, scored),
        "/openrlhf": (_SAMPLES, openrlhf.response_of(results, recipe.component_names, None)),
        "/entailment": ({"pairs": [["Paris lies on the Seine.", "Paris has a river."]]}, None),
        "/similarity": ({"pairs": [["I cannot tell.", "I do not know."]]}, None),
    }


@cache
def schema(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI schema of the routes."""
    types = [kind for route in routes for kind in (route.request, route.response) if kind]
    _, components = msgspec.json.schema_components(
        [*types, ErrorResponse], ref_template="#/components/schemas/{name}"
    )
    examples = _examples()
    paths = {
        route.path: {route.method.lower(): _operation(route, *examples.get(route.path, ()))}
        for route in routes
        if route.path not in ("/", "/docs", "/openapi.json")
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rag-rewards",
            "version": __version__,
            "description": "Rewards for retrieval-augmented generators.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, request: Any = None, response: Any = None) -> dict[str, Any]:
    """Return the description of a route, with an example of its request and its response."""
    errors = {*route.errors, *(_OF_BODIES if route.request else ()), 401}
    failure: type | None = ErrorResponse
    if route.path in OPEN_ROUTES:
        errors, failure = errors - {401}, route.response
    operation: dict[str, Any] = {
        "description": inspect.getdoc(route.handler),
        "responses": {
            "200": {"description": "The request succeeded.", **_content(route.response, response)},
            **{
                str(code): {"description": ERRORS[code], **_content(failure)}
                for code in sorted(errors)
            },
        },
    }
    if route.request:
        operation["requestBody"] = {"required": True, **_content(route.request, request)}
    return operation


def _content(kind: type | None, example: Any = None) -> dict[str, Any]:
    if kind is None:
        return {}
    media = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    if example is not None:
        media["example"] = msgspec.to_builtins(example)
    return {"content": {"application/json": media}}


_STYLE = """
:root { color-scheme: light dark }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif }
h2 { margin-top: 2.5rem; border-top: 1px solid #8888; padding-top: 1rem }
pre { overflow-x: auto; padding: .7rem; background: #8882; border-radius: .3rem }
table { border-collapse: collapse }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def page(schema: Mapping[str, Any]) -> bytes:
    """Return an HTML page with the description, an example and the responses of each route."""
    info = schema["info"]
    body = "".join(
        _section(method, path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    )
    title = escape(f"{info['title']} {info['version']}")
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{escape(info['description'])} The schemas of all requests and responses are in "
        f'<a href="openapi.json">openapi.json</a>.</p>{body}</body></html>'
    )
    return text.encode()


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    responses = operation["responses"]
    rows = (
        f"<tr><td>{status}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in responses.items()
    )
    return "".join(
        [
            f"<h2><code>{method.upper()} {path}</code></h2>",
            f"<p>{escape(operation['description'])}</p>",
            *_example("Request", operation.get("requestBody", {})),
            *_example("Response", responses["200"]),
            f"<table>{''.join(rows)}</table>",
        ]
    )


def _example(title: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the example of a request or a response, if there is one."""
    example = content.get("content", {}).get("application/json", {}).get("example")
    if example is not None:
        text = json.dumps(example, indent=2, ensure_ascii=False)
        yield f"<p>{escape(title)}</p><pre>{escape(text)}</pre>"

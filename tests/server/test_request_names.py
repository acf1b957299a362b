"""No field of a request names a file, an address, a template or code that the server uses.

Every text field of every route gets texts of these forms. An audit hook of Python shows whether the
server opens, imports, connects to or runs something that they name.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import load_recipe
from rag_rewards.rollout import Rollout
from rag_rewards.scorer import Scorer
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.routes import NAMED_ROUTES, Application
from rag_rewards.testing import TableEntailment, TableJudge, TableSimilarity

MARKER = "rr_marker"
HEADERS = ("Referer", "X-Request-Id", "User-Agent", "X-Forwarded-Host", "Accept-Language", "Cookie")
_seen: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import":
        arguments = arguments[:2]  # the module and its file; the rest is the search path
    if _seen is not None and MARKER in repr(arguments):
        _seen.append(event)


sys.addaudithook(_hook)  # for the whole process: Python cannot remove it


@contextmanager
def events_with_the_marker() -> Iterator[list[str]]:
    """Collect the audited events whose arguments contain the marker."""
    global _seen
    _seen = events = []
    try:
        yield events
    finally:
        _seen = None


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield texts that name a file, a module, an address or an expression, all of which exist."""
    folder = tmp_path_factory.mktemp(MARKER)
    (folder / f"{MARKER}_code.py").write_text(f"raise SystemExit('{MARKER}')")
    (folder / "rows.jsonl").write_text("{}")
    sys.path.append(str(folder))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        yield [
            f"{folder}/rows.jsonl",
            f"file://{folder}/rows.jsonl",
            f"../../../..{folder}/rows.jsonl",
            f"{MARKER}_code:recipe",
            f"{folder}/{MARKER}_code.py:recipe",
            f"http://127.0.0.1:{port}/{MARKER}",
            f"{MARKER}{{0.__class__.__mro__}}{{{{7919*7927}}}}${{7919*7927}}<%= 7919*7927 %>",
            f"!!python/object/apply:os.system ['echo {MARKER}']",
            f"@{folder}/rows.jsonl",
        ]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # nothing has connected
    sys.path.remove(str(folder))


def rollout(name: str) -> dict[str, Any]:
    """Return a row with a text in each field that takes one."""
    return {
        **dict.fromkeys(("id", "group", "question", "query_time", "split", "prompt"), name),
        **dict.fromkeys(("response_prefix", "finish_reason", "weight_version"), name),
        "response": f"{name}\n<answer>{name}</answer> \\boxed{{{name}}} [{name}]({name})",
        "documents": [{"id": name, "title": name, "text": name}],
        "supporting": [name],
        "answers": [name],
        "rubrics": [f"<E0> is {name}."],
        "rubric": [{"criterion": name, "name": name, "contains": name, "cites": [name]}],
        "search_keys": [[name]],
        "gold_documents": [name],
        "nli": [{"premise": name, "hypothesis": name, "entailment": 0.5}],
        "similarity": [{"text": name, "reference": name, "similarity": 0.5}],
        "entities": {"E0": name},
        "verdicts": {name: {name: 1, "group": name}},
        "generated_answers": {name: name},
    }


def requests(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return requests (method, path, options) that contain a text wherever a client can put one."""
    rows = [rollout(name), {"response": name, "answers": name, "question": name}]
    rows += [{"turns": [{"text": name, "results": [{"text": name, "url": name}]}], "answers": name}]
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/score", {"json": {"rollouts": rows}}),
        ("POST", "/score", {"json": {"rollouts": rows, "recipe": name, "config": name}}),
        ("POST", "/score", {"content": name, "headers": {"content-type": "application/json"}}),
        ("POST", "/openrlhf", {"json": {"query": [name], "prompts": [name], "labels": [name]}}),
        ("POST", "/entailment", {"json": {"pairs": [[name, name]]}}),
        ("POST", "/similarity", {"json": {"pairs": [[name, name]]}}),
    ]
    headers = {each: quote(name, safe=":/") for each in HEADERS}
    for path in sorted(NAMED_ROUTES):
        query = dict.fromkeys(("path", "url", "file", "recipe", "template", "config"), name)
        found.append(("GET", path, {"params": query, "headers": headers}))
        found.append(("GET", f"{path.rstrip('/')}/{quote(name, safe='')}", {}))
        found.append(("POST", path, {"files": {"file": (name, b"x")}, "data": {"path": name}}))
    return found


Call = tuple[str, str, dict[str, Any]]
"""Method, path and options of a request."""


async def answers(recipe: str, calls: list[Call]) -> list[httpx.Response]:
    models = Models(
        entailment=TableEntailment(lambda *_: 0.5),
        similarity=TableSimilarity(lambda *_: 0.5),
        judge=TableJudge(lambda _: 1, entities=lambda _: {"E0": "x"}),
    )
    scorer = Scorer.load(load_recipe(recipe), models=models)
    server = RewardServer(lambda: scorer, scorer.reward.component_names, ServerOptions())
    await server.start()
    transport = httpx.ASGITransport(Application(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return [await client.request(how, path, **more) for how, path, more in calls]


@pytest.mark.parametrize("recipe", ["arena", "truthrl", "carr", "rubric"])
def test_no_text_of_a_request_is_opened_imported_or_connected_to(
    names: list[str], recipe: str
) -> None:
    calls = [call for name in names for call in requests(name)]
    asyncio.run(answers(recipe, requests("plain")))  # imports modules, and opens their files
    with events_with_the_marker() as events:
        replies = asyncio.run(answers(recipe, calls))
    assert events == []
    assert {200} < {reply.status_code for reply in replies}
    assert {500, 502}.isdisjoint(reply.status_code for reply in replies)
    assert not [reply.text for reply in replies if str(7919 * 7927) in reply.text]


def test_the_rows_have_every_text_field() -> None:
    numbers = {"answer_kind", "answerable", "out_of_knowledge", "step", "turns"}
    numbers |= {"prompt_token_ids", "response_token_ids"}
    numbers |= {"logprobs", "masked_answers", "masked_logprobs", "turn_logprobs"}
    fields = {field.encode_name for field in msgspec.structs.fields(Rollout)}
    assert set(rollout("x")) == fields - numbers


@pytest.mark.parametrize("use", ["open", "import", "connect", "run"])
def test_such_a_use_would_be_seen(use: str, tmp_path: Path) -> None:
    with events_with_the_marker() as events:
        if use == "open":
            (tmp_path / MARKER).write_text("x")
        elif use == "import":
            with pytest.raises(ImportError):
                __import__(MARKER)
        elif use == "connect":
            with pytest.raises(socket.gaierror):
                socket.getaddrinfo(f"{MARKER}.invalid", 9)
        else:
            compile(f"{MARKER} = 1", MARKER, "exec")
    assert events

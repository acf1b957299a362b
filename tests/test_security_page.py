"""SECURITY.md: the tests that it names exist, and guarantees that no other test shows."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import httpx
import pytest

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import load_recipe
from rag_rewards.scorer import Scorer
from rag_rewards.server.access import OPEN_ROUTES
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.routes import NAMED_ROUTES, Application

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
GUARANTEES = re.search(r"## Guarantees\n(.*?)\n## ", PAGE, re.DOTALL)[1]  # type: ignore[index]
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+\.py::[\w:]+)`", GUARANTEES)))
SOURCES = [
    path for name in ("rag_rewards", "adapters") for path in sorted((ROOT / name).rglob("*.py"))
]
RUNS_CODE = re.compile(
    r"(builtins\.)?(eval|exec)|(pickle|marshal|dill|cloudpickle|joblib|shelve)\.\w+|torch\.load"
    r"|yaml\.(unsafe|full)_load(_all)?|os\.(system|popen)"
)
"""The names of functions that run code from their input."""
TOKEN = {"authorization": "Bearer secret"}


def test_the_named_tests_exist() -> None:
    assert [reference for reference in TESTS if not exists(reference)] == []


def exists(reference: str) -> bool:
    path, *names = reference.split("::")
    scope: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
    for name in names:
        nodes = [each for each in scope if getattr(each, "name", None) == name]
        if not nodes:
            return False
        scope = getattr(nodes[0], "body", [])
    return True


def test_every_guarantee_names_a_test() -> None:
    rows = [line for line in GUARANTEES.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    assert not [row for row in rows if not re.search(r"`tests/[^`]+::test_|::Test\w+::test_", row)]


def dangerous_calls(tree: ast.AST) -> list[str]:
    """Return the calls that run code from their input, or a shell."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    unsafe = [call for call in calls if RUNS_CODE.fullmatch(ast.unparse(call.func))]
    for call in calls:
        values = {each.arg: ast.unparse(each.value) for each in call.keywords}
        if values.get("shell", "False") != "False" or values.get("allow_pickle") == "True":
            unsafe.append(call)
        if ast.unparse(call.func) == "yaml.load" and "Loader" not in ast.unparse(call):
            unsafe.append(call)
    return [ast.unparse(call) for call in unsafe]


def test_no_call_runs_code_from_data() -> None:
    found = {path: dangerous_calls(ast.parse(path.read_text("utf-8"))) for path in SOURCES}
    assert len(found) > 100
    assert not {str(path): calls for path, calls in found.items() if calls}


@pytest.mark.parametrize(
    "code",
    ["eval(x)", "pickle.load(f)", "torch.load(f)", "yaml.load(t)", "run(x, shell=True)"],
)
def test_such_a_call_would_be_seen(code: str) -> None:
    assert dangerous_calls(ast.parse(code)) == [code]


async def statuses(requests: list[tuple[str, str, dict[str, object]]]) -> list[int]:
    """Return the statuses of requests (method, path, options) to a server with a token."""
    scorer = Scorer.load(load_recipe("arena"), models=Models())
    options = ServerOptions(token="secret")
    server = RewardServer(lambda: scorer, scorer.reward.component_names, options)
    await server.start()
    transport = httpx.ASGITransport(Application(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = [await client.request(how, path, **more) for how, path, more in requests]  # type: ignore[arg-type]
    return [answer.status_code for answer in answers]


def test_every_route_requires_the_token() -> None:
    assert {"/health"} == OPEN_ROUTES
    paths = [*sorted(NAMED_ROUTES - OPEN_ROUTES), "/redoc", "/none", "//health", "/health/"]
    requests = [(how, path, {}) for path in paths for how in ("GET", "POST")]
    assert set(asyncio.run(statuses(requests))) == {401}
    assert asyncio.run(statuses([("GET", "/health", {}), ("GET", "/", {})])) == [200, 401]


def test_forwarded_headers_do_not_replace_the_token() -> None:
    forged = {
        "X-Forwarded-For": "127.0.0.1",
        "X-Real-IP": "127.0.0.1",
        "Forwarded": "for=127.0.0.1",
    }
    forged |= {"X-Forwarded-Host": "localhost", "X-Original-URL": "/health", "Host": "localhost"}
    assert asyncio.run(statuses([("GET", "/status", {"headers": forged})])) == [401]
    assert asyncio.run(statuses([("GET", "/status", {"headers": forged | TOKEN})])) == [200]


@pytest.mark.parametrize(
    "name", ["config", "set", "model", "judge", "path", "url", "dump", "module"]
)
def test_a_request_has_no_other_fields(name: str) -> None:
    body = {"rollouts": [], name: "http://127.0.0.1/x"}
    requests = [
        ("POST", "/score", {"json": each, "headers": TOKEN}) for each in (body, {"rollouts": []})
    ]
    assert asyncio.run(statuses(requests)) == [422, 200]

"""Random bodies, paths and headers for every route of the server."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache

import pytest
from fuzz_checks import check_finite
from fuzz_rows import ROWS_OF_RECIPES, changed, encoded, lines, values
from fuzz_texts import texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import load_recipe
from rag_rewards.scorer import Scorer
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.routes import Application
from rag_rewards.testing import TableContradiction, TableSimilarity

MODELS = Models(
    entailment=TableContradiction(lambda premise, _: 0.25 if "Paris" in premise else 0.75),
    similarity=TableSimilarity(lambda text, _: 0.5 if "Paris" in text else -0.5),
)
ANSWERED = {200, 400, 404, 405, 409, 413, 422, 424}
"""The statuses of answered requests. 500 is a fault of the server, and 503 of its models."""
recipes = st.sampled_from(["arena", "truthrl", "search-r1"])


@cache
def application(name):
    """Return the application of a recipe and of two models, which is loaded."""
    server = RewardServer(
        lambda: Scorer.load(name, models=MODELS),
        load_recipe(name).component_names,
        ServerOptions(error_value=0.0, batch_ms=0.0),
    )
    asyncio.run(server.start())
    return Application(server)


def send(name, method, path, body, headers=()):
    """Return the status and the body of an answer, from the application without a socket."""
    app, sent = application(name), []

    async def request():
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return waiting.pop() if waiting else await asyncio.Event().wait()

        async def reply(message):
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await app(scope, receive, reply)

    asyncio.run(request())
    start = next(message for message in sent if message["type"] == "http.response.start")
    return start["status"], b"".join(message.get("body", b"") for message in sent)


def check(status, body, *, has_nan=False):
    """Check that an answer is JSON, with a reason if it is an error.

    Return it without the id of the request, which is random.
    """
    assert status in ANSWERED, (status, body[:500])
    answer = json.loads(body, parse_constant=None if has_nan else pytest.fail)
    if status >= 400:
        error = answer["error"]
        assert error if isinstance(error, str) else error["message"], answer
        if isinstance(error, dict):
            assert error.pop("request_id"), answer
    return answer


@st.composite
def score_bodies(draw):
    name = draw(recipes)
    rows = [
        draw(changed(row))
        for row in draw(st.lists(st.sampled_from(ROWS_OF_RECIPES[name]), max_size=3))
    ]
    request = {"rollouts": rows}
    if draw(st.integers(0, 4)) == 0:
        request[draw(st.one_of(st.sampled_from(["recipe", "rollouts", "x"]), texts))] = draw(values)
    return name, encoded(request)


@given(st.one_of(score_bodies(), st.tuples(recipes, lines())))
@budget(50)
def test_rows(given):
    name, body = given
    status, answer = send(name, "POST", "/score", body)
    answer = check(status, answer)
    assert (status, answer) == check_twice(name, "/score", body)
    if status == 200:
        assert len(answer["scores"]) == len(json.loads(body)["rollouts"])
        for score in answer["scores"]:
            check_finite([score["reward"], score["components"], score["correct"]])
            assert (score["error"] is None) or score["reward"] is None
            assert (score["error"] or {}).get("type") != "ScoringError", score


def check_twice(name, path, body):
    status, answer = send(name, "POST", path, body)
    return status, check(status, answer)


labels = st.one_of(
    st.none(),
    texts,
    values.map(json.dumps),
    st.sampled_from([row for rows in ROWS_OF_RECIPES.values() for row in rows]).map(json.dumps),
)
samples = st.lists(st.tuples(texts, texts, labels), min_size=1, max_size=3)


@given(recipes, st.one_of(samples, values), st.booleans())
@budget(50)
def test_samples_of_openrlhf(name, given, is_exact):
    if isinstance(given, list) and given and isinstance(given[0], tuple):
        request = {
            "query": [(prompt if is_exact else prompt[1:]) + text for prompt, text, _ in given],
            "prompts": [prompt for prompt, _, _ in given],
            "labels": [label for _, _, label in given],
        }
    else:
        request = given
    status, body = send(name, "POST", "/openrlhf", encoded(request))
    answer = check(status, body, has_nan=True)
    if status == 200:
        check_finite(answer["rewards"])
        check_finite(answer["scores"])


pairs = st.one_of(
    st.fixed_dictionaries(
        {"pairs": st.lists(st.lists(texts, min_size=2, max_size=2), max_size=3)},
        optional={"contradiction": st.booleans()},
    ),
    values,
)


@given(st.sampled_from(["/entailment", "/similarity"]), pairs)
@budget(40)
def test_pairs_of_texts(path, request):
    status, body = send("arena", "POST", path, encoded(request))
    answer = check(status, body)
    if status == 200:
        assert all(len(numbers) == len(request["pairs"]) for numbers in answer.values())


PATHS = "/score /openrlhf /entailment /similarity /models /health /metrics /status / /docs".split()


@given(
    st.one_of(st.sampled_from(PATHS), texts.map(lambda text: "/" + text)),
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "X"]),
    lines(),
    st.lists(
        st.tuples(
            st.sampled_from([b"authorization", b"origin", b"host", b"sec-fetch-site", b"accept"]),
            st.one_of(st.binary(max_size=20), st.just(b"Basic ="), st.just(b"http://[")),
        ),
        max_size=2,
    ),
)
@budget(40)
def test_any_request(path, method, body, headers):
    status, answer = send("arena", method, path, body, headers)
    assert status < 500, (status, answer[:500])
    assert b"Traceback" not in answer


@pytest.fixture(autouse=True)
def no_unexpected_errors(caplog):
    """Fail if the server logs an error that it did not expect."""
    with caplog.at_level(logging.ERROR, logger="rag_rewards"):
        yield
    assert not [record for record in caplog.records if record.exc_info]

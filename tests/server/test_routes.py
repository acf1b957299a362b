"""The responses of each route to valid and invalid requests."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from growth import assert_linear
from running_server import ARENA, connect, run

import rag_rewards as rr
from rag_rewards.errors import DataError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.rows import decode_row
from rag_rewards.server.options import MIB, ServerOptions
from rag_rewards.server.request_bodies import HealthResponse
from rag_rewards.server.routes import NAMED_ROUTES, Application
from rag_rewards.training import openrlhf

PLAN = RecipeSpec(recipe="arena")
TORN = b'{"rollouts": [{"response": "b", "turns": [{"text": "a"}]'
"""The beginning of a request whose row has a contradiction. The rows are read before the rest."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def examples(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()]


class TestScore:
    async def test_scores_equal_those_of_the_library(self) -> None:
        rows = examples("arena")

        async with connect(PLAN) as (client, _):
            answer = (await client.post("/score", json={"rollouts": rows})).json()
        expected = rr.recipe("arena")([decode_row(row) for row in rows])
        assert [score["reward"] for score in answer["scores"]] == [s.value for s in expected]
        assert answer["scores"][0]["components"] == expected[0].components
        assert answer["scores"][0]["correct"] == expected[0].correct
        assert answer["signature"] == rr.recipe("arena").signature

    async def test_an_unscored_row_has_an_error(self) -> None:
        async with connect(PLAN) as (client, server):
            body = {"rollouts": [ARENA, {"response": "x", "supporting": []}, ARENA]}
            scores = (await client.post("/score", json=body)).json()["scores"]
        assert [score["reward"] for score in scores] == [13.0, None, 13.0]
        assert scores[1]["error"] == {
            "type": "DataError",
            "message": "missing",
            "path": "answers",
        }
        assert server.telemetry.status()["rollouts_failed"] == {"DataError": 1}

    async def test_rows_with_turns(self) -> None:
        turns = [{"text": "<search>a</search>", "results": []}, {"text": ARENA["response"]}]
        row = {name: value for name, value in ARENA.items() if name != "response"}
        torn = row | {"turns": [{"text": "", "token_span": [2, 1]}]}

        async with connect(PLAN) as (client, _):
            body = {"rollouts": [row | {"turns": turns}, ARENA]}
            scores = (await client.post("/score", json=body)).json()["scores"]
            answer = await client.post("/score", json={"rollouts": [ARENA, torn]})
        assert scores[0]["turn_rewards"] == [None, 13.0]
        assert "turn_rewards" not in scores[1]
        assert answer.status_code == 422
        assert answer.json()["error"]["path"] == "rollouts[1].turns[0].token_span"

    async def test_groups_of_a_request_are_scored_together(self) -> None:
        rows = examples("ctrl-rag")
        expected = rr.recipe("ctrl-rag")([decode_row(row) for row in rows])

        async with connect(RecipeSpec(recipe="ctrl-rag")) as (client, _):
            answer = (await client.post("/score", json={"rollouts": rows})).json()
        assert [score["reward"] for score in answer["scores"]] == [s.value for s in expected]

    @pytest.mark.parametrize(
        ("body", "status", "kind", "path"),
        [
            (b"{", 400, "RowError", ""),
            (b'\xff{"rollouts": []}', 400, "RowError", ""),
            (b'{"rollouts": ' + b"[" * 100_000, 422, "RowError", "rollouts[0]"),
            (b"", 400, "RowError", ""),
            (b"[]", 422, "RowError", ""),
            (TORN + b"}], 1", 422, "RowError", "turns[0].text"),
            (TORN + b'}], "rollouts": 3}', 422, "RowError", "turns[0].text"),
            (b"{}", 422, "RowError", "rollouts"),
            (b'{"rollouts": [{"response": 3}]}', 422, "RowError", "rollouts[0].response"),
            (
                b'{"rollouts": [{"response": "", "documents": [{"text": 1}]}]}',
                422,
                "RowError",
                "rollouts[0].documents[0].text",
            ),
            (b'{"rollouts": [], "module": "os"}', 422, "RowError", ""),
            (b'{"rollouts": [], "recipe": "truthrl"}', 404, "UnknownRecipeError", "recipe"),
        ],
    )
    async def test_invalid_requests(self, body: bytes, status: int, kind: str, path: str) -> None:
        async with connect(PLAN) as (client, _):
            answer = await client.post("/score", content=body)
        assert answer.status_code == status, answer.text
        assert (answer.json()["error"]["type"], answer.json()["error"]["path"]) == (kind, path)

    async def test_an_empty_request_has_no_scores(self) -> None:
        async with connect(PLAN) as (client, _):
            answer = await client.post("/score", json={"rollouts": [], "recipe": "arena"})
        assert answer.json()["scores"] == []

    async def test_a_client_that_disconnects_within_the_body(self) -> None:
        messages = [{"type": "http.request", "body": b"{", "more_body": True}]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with connect(PLAN) as (_, server):
            scope = {"type": "http", "method": "POST", "path": "/score"}
            headers = [(b"content-type", b"application/json")]
            await Application(server)(scope | {"headers": headers}, receive, send)
        assert sent[0]["status"] == 499
        metrics = server.telemetry.exposition().decode()
        assert "rag_rewards_clients_gone_total 1.0" in metrics
        assert 'type="RowError"' not in metrics

    async def test_size_limits_of_a_request(self) -> None:
        async def parts() -> Any:
            for _ in range(4):
                yield b" " * 600

        async with connect(PLAN, max_body=2000 / MIB, max_rows=2) as (client, _):
            large = await client.post("/score", content=b" " * 2001)
            chunked = await client.post("/score", content=parts())
            many = await client.post("/score", json={"rollouts": [{"response": ""}] * 3})
        assert [a.status_code for a in (large, chunked, many)] == [413, 413, 413]
        assert many.json()["error"]["path"] == "rollouts"

    async def test_a_long_response_is_scored(self) -> None:
        async with connect(PLAN) as (client, _):
            row = ARENA | {"response": "<answer>" * 20_000}
            answer = await client.post("/score", json={"rollouts": [row]})
        assert answer.json()["scores"][0]["reward"] == 0.0


class TestOpenRLHF:
    label = json.dumps({"answers": ["Seine"], "supporting": []})
    response = "<relevance>[]</relevance><analysis>none</analysis><answer>Seine</answer>"

    def request(self, prompt: str, query: str, label: str | None = None) -> dict[str, Any]:
        return {"query": [query], "prompts": [prompt], "labels": [label or self.label]}

    def answer(
        self, body: dict[str, Any], plan: RecipeSpec = PLAN, **options: Any
    ) -> tuple[int, Any]:
        result: list[Any] = []

        async def test() -> None:
            async with connect(plan, **options) as (client, _):
                answer = await client.post("/openrlhf", json=body)
                result.extend((answer.status_code, json.loads(answer.text)))

        run(test)
        return result[0], result[1]

    def test_one_query_returns_numbers(self) -> None:
        status, answer = self.answer(self.request("Q?\n", "Q?\n" + self.response + "<|im_end|>"))
        assert status == 200
        assert (answer["rewards"], answer["scores"]) == (13.0, 1.0)
        assert answer["extra_logs"] == {
            "format": 1.0,
            "accuracy": 1.0,
            "relevance": 1.0,
            "bonus": 10.0,
            "acc": 1.0,
            "rag_rewards_error": 0.0,
        }

    def test_several_queries_return_lists(self) -> None:
        body = {
            "query": ["Q?x", "Q?" + self.response],
            "prompts": ["Q?"] * 2,
            "labels": [self.label] * 2,
        }
        _, answer = self.answer(body)
        assert answer["rewards"] == [0.0, 13.0]
        assert answer["extra_logs"]["accuracy"] == [0.0, 1.0]

    def test_the_response_begins_after_the_last_turn_of_the_prompt(self) -> None:
        turn = "<|im_start|>assistant\n<think>\n"
        prompt = f"one{turn}</think><answer>Rhône</answer>two{turn}"
        query = "<s>" + prompt.replace("one", "1") + "</think><answer>Seine</answer>"
        _, answer = self.answer(self.request(prompt, query), RecipeSpec(recipe="naive-grpo"))
        assert answer["rewards"] == 2.0

    def test_a_curriculum_is_refused(self) -> None:
        plan = RecipeSpec(stages=[{"recipe": "arena", "until_step": 3}, {"recipe": "naive-grpo"}])
        status, answer = self.answer(self.request("a", "aa"), plan)
        assert (status, "step" in answer["error"]["message"]) == (409, True)

    @pytest.mark.parametrize(
        ("prompt", "query"),
        [
            ("a long question, cut on the left", "cut on the left"),
            ("<answer>Seine</answer> is an example. Q: which river?", " example. Q: which river?"),
            ("<s>Which river  runs through Paris?", "<s> Which river  runs through Paris?"),
        ],
    )
    def test_a_cut_prompt_is_removed_from_the_query(self, prompt: str, query: str) -> None:
        _, answer = self.answer(self.request(prompt, query + self.response + "</s>"))
        assert answer["rewards"] == 13.0

    def test_a_section_that_the_prompt_opens_belongs_to_the_response(self) -> None:
        prompt = "<|im_start|>assistant\n<think>\n"
        plan = RecipeSpec(recipe="naive-grpo")
        _, answer = self.answer(
            self.request(prompt, prompt + "hm</think><answer>Seine</answer>"), plan
        )
        assert answer["rewards"] == 2.0

    @pytest.mark.parametrize(
        ("body", "status", "message"),
        [
            (
                {"query": ["ab"], "prompts": ["xy"], "labels": ["l"]},
                422,
                "does not begin with",
            ),
            ({"query": ["a"], "prompts": [], "labels": ["l"]}, 422, "1, 0 and 1"),
            ({"query": [], "prompts": [], "labels": []}, 422, "0, 0 and 0"),
            ({"query": ["aa"], "prompts": ["a"], "labels": ['{"gold": 1}']}, 422, "label"),
            ({"query": ["aa"], "prompts": ["a"], "labels": ["Seine"]}, 422, "supporting"),
            ({"query": "a", "prompts": ["a"], "labels": ["l"]}, 422, "array"),
            ({"query": ["aa"], "prompts": ["a"], "labels": ["{'answers': 1}"]}, 422, "not JSON"),
            ({"query": ["aa"], "prompts": ["a"], "labels": ['{"id":"\\ud800"}']}, 422, "label"),
            ({"query": ["aa"], "prompts": ["a"], "labels": ['{"a":' * 20_000]}, 422, ""),
        ],
    )
    def test_invalid_requests(self, body: dict[str, Any], status: int, message: str) -> None:
        code, answer = self.answer(body)
        assert code == status
        assert message in json.dumps(answer)

    async def test_unscored_rollouts_with_an_error_value_are_counted(self) -> None:
        async with connect(PLAN, error_value=-1.0) as (client, server):
            body = self.request("a", "aa", '{"answers": "a"}')
            answer = json.loads((await client.post("/openrlhf", json=body)).text)
            shown = (await client.get("/metrics")).text
        assert (answer["rewards"], answer["scores"]) == (-1.0, -1.0)
        assert answer["extra_logs"]["rag_rewards_error"] == 1.0
        assert math.isnan(answer["extra_logs"]["accuracy"])
        assert "rag_rewards_substituted_total 1.0" in shown
        assert server.telemetry.status()["last_errors"][0]["message"].startswith("supporting")

    def test_a_group_recipe_is_refused_with_an_alternative(self) -> None:
        status, answer = self.answer(self.request("a", "aa"), RecipeSpec(recipe="ctrl-rag"))
        assert status == 409
        assert "agent executor" in answer["error"]["message"]


def longest_overlap(prompt: str, query: str) -> int:
    sizes = range(min(len(prompt), len(query)), openrlhf.MIN_OVERLAP - 1, -1)
    return next((size for size in sizes if prompt.endswith(query[:size])), 0)


def test_the_overlap_of_texts_with_periods_is_the_longest() -> None:
    draw, found = random.Random(1), 0

    def text(period: str) -> str:
        """Return a text that begins or ends with repetitions, some of them cut."""
        parts = [(period * 12)[: draw.randrange(30)], "".join(draw.choices("ab", k=2))]
        return "".join(draw.sample(parts, 2)) + period * draw.randrange(8)

    for _ in range(5000):
        period = "".join(draw.choices("ab", k=draw.randrange(1, 5)))
        prompt = text(period) + text(period)
        query = prompt[draw.randrange(len(prompt)) :] * draw.randrange(2) + text(period)
        overlap = openrlhf._overlap(prompt, query)
        assert overlap == longest_overlap(prompt, query), (prompt, query)
        found += overlap > 0
    assert 1000 < found < 5000


@pytest.mark.parametrize("unit", ["a", "ab", "<|im_start|>", "\n" * 31 + "x"])
def test_the_start_of_a_response_is_found_without_a_loop_over_characters(unit: str) -> None:
    prompt = unit * (200_000 // len(unit)) + "?"
    lines = 0

    def count(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename == openrlhf.__file__
        return count

    previous = sys.gettrace()
    sys.settrace(count)
    try:
        assert openrlhf.response_start(prompt[9:] + "Seine", prompt) == len(prompt) - 9
        with pytest.raises(DataError, match="does not begin with its prompt"):
            openrlhf.response_start(prompt[9:-1] + "!" * 99, prompt)
    finally:
        sys.settrace(previous)
    assert 0 < lines < 500


class TestToken:
    @pytest.mark.parametrize(
        ("header", "status"),
        [
            (None, 401),
            ("Bearer secret", 200),
            ("bearer  secret", 200),
            ("Bearer Secret", 401),
            ("Bearer", 401),
            ("Basic " + base64.b64encode(b"user:secret").decode(), 200),
            ("Basic " + base64.b64encode(b"user:other").decode(), 401),
            ("Basic not-base64", 401),
            ("Digest secret", 401),
        ],
    )
    async def test_bearer_token_or_password(self, header: str | None, status: int) -> None:
        headers = {} if header is None else {"Authorization": header}

        async with connect(PLAN, token="secret") as (client, _):
            for method, route in (("POST", "/score"), ("GET", "/metrics"), ("GET", "/")):
                answer = await client.request(method, route, headers=headers, json={"rollouts": []})
                assert answer.status_code == status
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/nowhere")).status_code == 401


class TestHealth:
    async def test_the_reason_without_a_token_is_only_the_type_of_the_error(self) -> None:
        async with connect(PLAN, token="secret") as (client, server):
            headers = {"Authorization": "Bearer secret"}
            rows = [{"response": "", "answers": "a", "supporting": ["s3cret" * 99]}] * 30
            body = {"rollouts": [row | {"documents": [{"text": "d"}]} for row in rows]}
            await client.post("/score", json=body, headers=headers)
            status = (await client.get("/status", headers=headers)).json()
            server.ready, server.fault = None, "BackendError: no response from s3cret"
            health = await client.get("/health")
        assert health.json() == {"ready": False, "reason": "BackendError"}
        assert len(status["last_errors"][0]["message"]) == 300


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://example.com", "content-type": "text/plain"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://test"}, 403),
        ({"host": "example.com:8000", "origin": "http://example.com:8000"}, 403),
        ({"host": "example.com."}, 403),
        ({"host": "[", "origin": "http://["}, 403),
        ({"origin": "http://test"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "https://proxy"}, 200),
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "localhost:8000", "content-type": "application/json; charset=utf-8"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
        ({"host": "rewards"}, 200),
    ],
)
async def test_web_pages_of_other_sites_cannot_use_a_server_without_a_token(
    headers: dict[str, str], status: int
) -> None:
    async with connect(PLAN) as (client, server):
        body = json.dumps({"rollouts": [ARENA]})
        answer = await client.post("/score", content=body, headers=headers)
        assert answer.status_code == status
        assert server.telemetry.scored == (status == 200)
        if status == 403:
            assert answer.json()["error"]["type"] == "Forbidden"


async def test_a_server_with_a_token_has_any_name_but_refuses_other_sites() -> None:
    async with connect(PLAN, token="s3cret") as (client, _):
        headers = {"authorization": "Bearer s3cret", "host": "example.com"}
        body = {"rollouts": [ARENA]}
        assert (await client.post("/score", json=body, headers=headers)).status_code == 200
        headers["origin"] = "https://evil.example"
        assert (await client.post("/score", json=body, headers=headers)).status_code == 403


@pytest.mark.parametrize("value", [math.inf, math.nan, 0.0])
def test_a_deadline_is_finite(value: float) -> None:
    with pytest.raises(UsageError, match="must be above 0 and finite"):
        ServerOptions(deadline=value)


def test_many_documents_with_one_label_take_linear_time() -> None:
    def score(count: int) -> None:
        documents = [{"text": "", "id": i} for i in range(count)] + [{"text": "", "id": count - 1}]

        async def test() -> None:
            async with connect(PLAN) as (client, _):
                body = {"rollouts": [ARENA | {"documents": documents}]}
                answer = await client.post("/score", json=body)
            assert "two documents have the label" in answer.json()["scores"][0]["error"]["message"]

        run(test)

    assert_linear(score, 20_000)


@pytest.mark.parametrize(
    "options",
    [
        {"max_body": 0},
        {"max_rows": -1},
        {"deadline": 0.0},
        {"batch_ms": -1.0},
        {"error_value": math.nan},
        {"token": "schlüssel"},
    ],
)
def test_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ServerOptions(**options)


class TestPages:
    async def test_health_during_loading_and_after_an_error(self) -> None:
        from rag_rewards.server.app import RewardServer

        def fails() -> Any:
            raise UsageError("no such model")

        server = RewardServer(fails, (), ServerOptions())
        assert server.health() == (503, HealthResponse(False, reason="loading"))

        with pytest.raises(UsageError):
            await server.start()
        assert server.health() == (503, HealthResponse(False, reason="UsageError: no such model"))

    async def test_metrics(self) -> None:
        async with connect(PLAN) as (client, _):
            await client.post("/score", json={"rollouts": [ARENA, {"response": ""}]})
            await client.get("/a/route/of/nobody")
            shown = (await client.get("/metrics")).text
        for line in (
            'rag_rewards_requests_total{route="/score",status="200"} 1.0',
            'rag_rewards_requests_total{route="other",status="404"} 1.0',
            'rag_rewards_request_seconds_count{route="/score"} 1.0',
            "rag_rewards_reward_sum 13.0",
            'rag_rewards_component_sum{component="bonus"} 10.0',
            'rag_rewards_errors_total{type="DataError"} 1.0',
            "rag_rewards_queue_rollouts 0.0",
        ):
            assert line in shown

    async def test_answers_are_counted_by_decision(self) -> None:
        plan = RecipeSpec(recipe="arena", hardened=True)
        texts = ("Seine", "Seine or Rhine", "Rhine", "")
        rows = [ARENA | {"response": ARENA["response"].replace("Seine", text)} for text in texts]
        async with connect(plan) as (client, _):
            await client.post("/score", json={"rollouts": rows})
            shown = (await client.get("/metrics")).text
        for decision in ("right", "undecided", "nothing in common", "wrong"):
            assert f'rag_rewards_answers_total{{decision="{decision}"}} 1.0' in shown

    @pytest.mark.parametrize("path", ["/score", "/openrlhf"])
    async def test_the_examples_of_the_documentation_are_those_of_this_version(
        self, path: str
    ) -> None:
        async with connect(PLAN) as (client, _):
            described = (await client.get("/openapi.json")).json()
            assert (await client.get("/docs")).status_code == 200
            route = described["paths"][path]["post"]
            request, response = (
                each["content"]["application/json"]["example"]
                for each in (route["requestBody"], route["responses"]["200"])
            )
            answer = (await client.post(path, json=request)).json()
        assert "documents" in described["components"]["schemas"]["Rollout"]["properties"]
        assert answer == response
        assert described["info"]["version"] == rr.__version__

    async def test_the_documentation_shows_no_other_version(self) -> None:
        async with connect(PLAN) as (client, _):
            page = (await client.get("/docs")).text
        assert set(re.findall(r"\b\d+\.\d+\.\d+\b", page)) == {rr.__version__}

    @pytest.mark.parametrize("path", ["/", "/docs"])
    async def test_pages_load_no_external_resources(self, path: str) -> None:
        async with connect(PLAN) as (client, _):
            page = await client.get(path)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "http://" not in page.text
        assert "https://" not in page.text

    async def test_the_page_of_the_routes_shows_the_examples(self) -> None:
        async with connect(PLAN) as (client, _):
            page = (await client.get("/docs")).text
            assert (await client.get("/redoc")).status_code == 404
        for route in ("POST /score", "POST /openrlhf", "GET /models", "GET /health"):
            assert f"<code>{route}</code>" in page
        assert "&lt;relevance&gt;[1]&lt;/relevance&gt;" in page
        assert "<script" not in page


async def test_a_url_without_a_route_names_the_routes() -> None:
    async with connect(PLAN) as (client, _):
        answer = await client.post("/", json={"query": []})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert answer.json()["error"].endswith("/openrlhf for OpenRLHF")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/score/", 200),
        ("GET", "/score", 405),
        ("POST", "/health", 405),
        ("POST", "/nowhere", 404),
    ],
)
async def test_paths_and_methods(method: str, path: str, status: int) -> None:
    async with connect(PLAN) as (client, _):
        answer = await client.request(method, path, json={"rollouts": []})
    assert answer.status_code == status
    if status == 404:
        assert answer.json()["error"]["type"] == "NotFound"
    if status == 405:
        assert answer.json()["error"]["type"] == "MethodNotAllowed"
        assert answer.headers["allow"] in ("GET", "POST")


async def test_the_schemas_are_those_of_the_types() -> None:
    async with connect(PLAN) as (client, _):
        described = (await client.get("/openapi.json")).json()
        schemas = described["components"]["schemas"]
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
        assert references <= set(schemas)
        assert {"ScoreRequest", "SampleResponse", "ErrorResponse", "Rollout"} <= references
        request = schemas["EntailmentRequest"]
        assert (request["required"], request["additionalProperties"]) == (["pairs"], False)
        health = (await client.get("/health")).json()
        assert health.keys() <= schemas["HealthResponse"]["properties"].keys()
    assert described["paths"].keys() == NAMED_ROUTES - {"/", "/docs", "/openapi.json"}

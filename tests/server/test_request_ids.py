"""Ids of requests in responses, in errors and in metrics."""

from __future__ import annotations

import pytest
from running_server import ARENA, connect

from rag_rewards.loading import RecipeSpec

PLAN = RecipeSpec(recipe="arena")


@pytest.mark.parametrize("value", ["step-17", "a:b/c=d+e@f.g_h~"[:-1], "x" * 128])
async def test_a_safe_id_of_a_client_is_returned(value: str) -> None:
    async with connect(PLAN) as (client, _):
        headers = {"X-Request-Id": value}
        body = {"rollouts": [ARENA]}
        for answer in (
            await client.post("/score", json=body, headers=headers),
            await client.get("/health", headers=headers),
            await client.get("/nowhere", headers=headers),
        ):
            assert answer.headers.get_list("x-request-id") == [value]


@pytest.mark.parametrize("value", ["", "x" * 129, "a b", "a\tb", "<b>", "\u00e9", 'a"b', "a,b"])
async def test_an_unsafe_id_is_replaced(value: str) -> None:
    async with connect(PLAN) as (client, _):
        headers = {"X-Request-Id": value.encode()}
        ids = [
            (await client.get("/health", headers=headers)).headers["x-request-id"] for _ in range(2)
        ]
        assert len(set(ids)) == 2
        assert all(len(each) == 32 and int(each, 16) for each in ids)


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/score", b"{", 400, "RowError"),
        ("/score", b'{"rollouts": 1}', 422, "RowError"),
        ("/entailment", b'{"pairs": []}', 404, "UnknownModelError"),
    ],
)
async def test_errors_contain_the_id_and_are_counted(
    path: str, body: bytes, status: int, kind: str
) -> None:
    async with connect(PLAN) as (client, _):
        answer = await client.post(path, content=body, headers={"X-Request-Id": "seven"})
        assert answer.status_code == status
        assert answer.json()["error"]["request_id"] == "seven"
        shown = (await client.get("/metrics")).text
        assert f'rag_rewards_request_errors_total{{type="{kind}"}} 1.0' in shown
        assert "rag_rewards_requests_in_flight 1.0" in shown  # that of the metrics


async def test_refusals_contain_the_id() -> None:
    async with connect(PLAN, token="secret") as (client, _):
        answer = await client.get("/metrics", headers={"X-Request-Id": "seven"})
        assert answer.status_code == 401
        assert answer.json()["error"]["request_id"] == "seven"
        assert answer.headers["x-request-id"] == "seven"

"""Groups in the real NeMo Gym: its servers over HTTP, its agent, and its collection of rollouts.

NeMo RL cannot be installed without a GPU. What it reads of a result is written here as at 7ea279a.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from nemo_gym import server_utils
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient
from omegaconf import OmegaConf
from pydantic import ValidationError
from rag_rewards_adapters import nemo_gym
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from test_resources_server import (
    GROUPS,
    MODELS,
    RECIPES,
    SERVER,
    EvidenceGatherer,
    Group,
    bare,
    cell,
    golden_request,
    message,
    new_server,
    request,
    response,
)

from rag_rewards import recipe
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableJudge

COLUMN = [name for name in RECIPES if recipe(name).scope == "group"]
AGENT = "rag_rewards_simple_agent"


@contextlib.asynccontextmanager
async def serving(**apps: FastAPI) -> AsyncIterator[dict[str, int]]:
    """Serve applications over HTTP in this event loop, and yield their ports."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in apps}
    ports = {name: each.getsockname()[1] for name, each in sockets.items()}
    servers = [
        uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        for app in apps.values()
    ]
    tasks = [
        asyncio.create_task(server.serve(sockets=[each]))
        for server, each in zip(servers, sockets.values(), strict=True)
    ]
    try:
        while not all(server.started for server in servers):
            await asyncio.sleep(0.01)
        yield ports
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)


def verify_all(server: Any, requests: list[dict[str, Any]]) -> list[httpx.Response]:
    """Send requests to the server at the same time, and return their responses."""

    async def send() -> list[httpx.Response]:
        async with (
            serving(resources=server.setup_webserver()) as ports,
            httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client,
        ):
            url = f"http://127.0.0.1:{ports['resources']}/verify"
            return await asyncio.gather(*(client.post(url, json=each) for each in requests))

    return asyncio.run(send())


# --- what NeMo RL reads --------------------------------------------------------------------------


def is_masked(result: dict[str, Any]) -> bool:
    """Whether the rollout has no loss (`nemo_rl/experience/rollouts.py`, line 266)."""
    return bool((result.get("instance_config") or {}).get("mask_sample", False))


def check_components(result: dict[str, Any]) -> None:
    """The sum of components is the reward (`nemo_rl/environments/nemo_gym.py`, line 1080)."""
    if components := result.get("reward_components"):
        assert math.isclose(
            result["reward"], sum(components.values()), rel_tol=1e-5, abs_tol=1e-6
        ), components


def as_batch(groups: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Number the rows of a batch (`_prepare_nemo_gym_rows`), whose groups are neighbours."""
    rows = [row for group in groups for row in group]
    return [row | {"_rowidx": i} for i, row in enumerate(rows)]


COMPARED = [
    group
    for group in GROUPS
    if group.whole
    and (group.scope == "group" or group.case == "whole group")
    and group.id != "carr: tool turns"  # its tool is no search, but that of the requests is
]


@pytest.mark.parametrize("group", COMPARED, ids=lambda group: group.id)
def test_golden_groups_of_a_batch_of_nemo_rl(group: Group) -> None:
    size = len(group.rows)
    reward = {"recipe": group.recipe, "settings": dict(group.settings)}
    server = new_server(reward, group_size=size, group_deadline=20.0)
    scorer = server._verifier.scorer
    scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS
    copies = [[golden_request(row | {"id": "7"}) for row in group.rows] for _ in range(2)]
    replies = verify_all(server, as_batch(copies))
    for reply, expected in zip(replies, group.rewards * 2, strict=True):
        body = reply.json()
        assert reply.status_code == 200, body
        assert body["reward"] == pytest.approx(expected)
        assert not is_masked(body)
        check_components(body)


def searched(index: int, answer: str, prompt: int = 0) -> dict[str, Any]:
    row = {"id": str(prompt), "answers": ["Seine"]}
    text = message(f"<think>{index}</think><answer>{answer}</answer>")
    return request(text, row=row) | {"_ng_task_index": prompt, "_ng_rollout_index": index}


def test_requests_of_ten_prompts_in_any_order() -> None:
    """The advantage of LEAR in 10 prompts of 8 rollouts; prompt p has p mod 9 right answers."""
    server = new_server({"recipe": "search-r1"}, group_size=8, std_floor=0.1)
    plan = [(prompt, index) for prompt in range(10) for index in range(8)]
    random.Random(1).shuffle(plan)
    rows = [searched(i, "Seine" if i < p % 9 else "Rhone", p) for p, i in plan]
    replies = verify_all(server, rows)
    for (prompt, index), reply in zip(plan, replies, strict=True):
        share = prompt % 9 / 8
        value = (index < prompt % 9) - share
        expected = value / max(math.sqrt(share * (1 - share)), 0.1)
        assert reply.json()["reward"] == pytest.approx(expected, abs=1e-9)
        assert reply.json()["search-r1/reward"] == float(index < prompt % 9)
    assert (server._verifier.groups.active, server._verifier.groups.waiting) == ({}, 0)
    assert server._verifier._requests == {}


def test_a_partial_group_is_masked_at_its_deadline() -> None:
    server = new_server({"recipe": "search-r1"}, group_size=3, group_deadline=0.5)
    whole = [searched(index, "Seine", prompt=1) for index in range(3)]
    replies = verify_all(server, [searched(0, "Seine"), searched(1, "Seine"), *whole])
    early, other, *scored = [reply.json() for reply in replies]
    for failed in (early, other):
        assert failed["_ng_failure_class"] == "group_incomplete"
        assert is_masked(failed)
        assert failed["response"]["output"][-1]["type"] == "message"
    assert [each["reward"] for each in scored] == [1.0] * 3
    assert server._verifier.groups.active == {}


@pytest.mark.parametrize("name", COLUMN)
def test_the_column_of_recipes_of_groups(name: str) -> None:
    """They need the models of the cell, and give no reward without them."""
    entry = cell(name, "nemo-gym")
    assert (entry.state, "`group_size=N`" in entry.text) == ("setting", True)
    rows = [golden_request(row | {"id": "7"}) for row in bare(name)]
    server = new_server({"recipe": name}, group_size=len(rows), group_deadline=5.0)
    for reply in verify_all(server, as_batch([rows])):
        assert reply.status_code == 422, reply.text


def test_several_processes_share_no_groups() -> None:
    with pytest.raises(UsageError, match=r"num_workers=4.*set num_workers to 1"):
        new_server({"recipe": "search-r1"}, group_size=2, num_workers=4)
    new_server({"recipe": "search-r1"}, num_workers=4)


@pytest.mark.parametrize(
    "changes", [{"group_size": 0}, {"group_size": 2, "group_deadline": 0}, {"std_floor": -1.0}]
)
def test_an_invalid_field_of_the_configuration(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(reversed(changes)))):
        new_server({"recipe": "search-r1"}, **changes)


# --- the collection of rollouts ------------------------------------------------------------------


class FlakyJudge(TableJudge):
    """A judge that does not reply about the responses of one prompt."""

    def __init__(self) -> None:
        super().__init__(self._verdict)
        self.is_up = False

    def _verdict(self, question: Any) -> Any:
        if "Loire" in question.response and not self.is_up:
            return BackendError("no reply")
        return int(any(gold in question.response for gold in question.gold))


def model_app() -> FastAPI:
    """A model that gives a right answer to every second request of a prompt."""
    app, counts = FastAPI(), {}

    @app.post("/v1/responses")
    async def responses(body: dict[str, Any]) -> dict[str, Any]:
        name = body["input"][0]["content"].split()[-1]
        counts[name] = counts.get(name, 0) + 1
        answer = f"the {name} river" if counts[name] % 2 else f"the other river, not {name.lower()}"
        return response(message(rf"<think>x</think>\boxed{{{answer}}}"))

    return app


def collect(server: Any, folder: Path, names: list[str], monkeypatch: Any) -> Path:
    """Collect four rollouts of each prompt through the servers of NeMo Gym. Return the file."""
    rows = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": f"Name {name}"}]},
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
            "verifier_metadata": {"id": name, "answers": [name]},
        }
        for name in names
    ]
    source, output = folder / "rows.jsonl", folder / "rollouts.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RolloutCollectionConfig(
        input_jsonl_fpath=str(source), output_jsonl_fpath=str(output), num_repeats=4
    )
    agent_config = SimpleAgentConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name=AGENT,
        resources_server={"type": "resources_servers", "name": SERVER},
        model_server={"type": "responses_api_models", "name": "policy_model"},
    )
    agent = SimpleAgent(config=agent_config, server_client=ServerClient.model_construct())

    async def run() -> None:
        apps = {
            SERVER: server.setup_webserver(),
            AGENT: agent.setup_webserver(),
            "policy_model": model_app(),
        }
        async with serving(**apps) as ports:
            kinds = {SERVER: "resources_servers", AGENT: "responses_api_agents"}
            dictionary = {
                name: {
                    kinds.get(name, "responses_api_models"): {
                        name: {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}
                    }
                }
                for name, port in ports.items()
            }
            client = ServerClient(
                head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
                global_config_dict=OmegaConf.create(dictionary),
            )
            agent.server_client = client
            monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", json.dumps(dictionary))
            monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT", None)
            session = server_utils.set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
            monkeypatch.setattr(RolloutCollectionHelper, "setup_server_client", lambda *_: client)
            async with session:
                await RolloutCollectionHelper().run_from_config(config)

    asyncio.run(run())
    return output


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_collection_with_a_failing_judge(tmp_path: Path, monkeypatch: Any) -> None:
    """The failed group is in a file of its own, and can be verified again from its responses."""
    monkeypatch.setattr(nemo_gym, "REPEAT", 0.0)  # as if `gym eval reverify` started later
    judge = FlakyJudge()
    reward = {"recipe": "truthrl", "judge": "http://127.0.0.1:9/v1", "judge_model": "any"}
    server = new_server(reward, group_size=4, keep_evidence=True)
    server._verifier.scorer.models = Models(judge=judge)
    output = collect(server, tmp_path, ["Seine", "Loire", "Rhone"], monkeypatch)

    scored, failed = lines(output), lines(tmp_path / "rollouts_failures.jsonl")
    assert sorted(each["verifier_metadata"]["id"] for each in scored) == (
        ["Rhone"] * 4 + ["Seine"] * 4
    )
    assert sorted(each["reward"] for each in scored) == [-1.0] * 4 + [1.0] * 4
    assert {each["verifier_metadata"]["id"] for each in failed} == {"Loire"}
    assert [each["_ng_failure_class"] for each in failed] == ["judge_failed"] * 4
    assert all("no reply" in each["rag_rewards_error"] for each in failed)
    [metrics] = json.loads((tmp_path / "rollouts_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/reward"] == 0.0  # not −1/3 · …: without the failures

    inputs = {
        (row["_ng_task_index"], row["_ng_rollout_index"]): row
        for row in lines(tmp_path / "rollouts_materialized_inputs.jsonl")
    }
    payloads = [
        inputs[each["_ng_task_index"], each["_ng_rollout_index"]] | {"response": each["response"]}
        for each in (*failed, *scored)
    ]
    judge.is_up = True
    judge.requests.clear()
    again = [reply.json() for reply in verify_all(server, payloads)]
    assert sorted(each["reward"] for each in again[:4]) == [-1.0, -1.0, 1.0, 1.0]
    assert [each["reward"] for each in again[4:]] == [each["reward"] for each in scored]
    assert all("Loire" in each.gold for each in judge.requests)  # the others have their evidence


def test_the_mode_of_verification_again() -> None:
    """NeMo Gym asks for it since 0.5."""
    app = new_server({"recipe": "arena"}).setup_webserver()
    routes = {getattr(route, "path", None) for route in app.routes}
    mode = new_server({"recipe": "arena"}).config.REVERIFY_MODE
    assert (getattr(mode, "value", None) == "stateless") == ("/reverify_mode" in routes)

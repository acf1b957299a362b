"""The resources server in the real NeMo Gym: its routes, its agent, its metrics and its data."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from fastapi import HTTPException
from fastapi.testclient import TestClient
from nemo_gym.config_types import AggregateMetricsRequest, DatasetConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient
from rag_rewards_adapters.nemo_gym import FAILURE_CLASS
from rag_rewards_adapters.nemo_gym_server import RagRewardsConfig, RagRewardsServer
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

import rag_rewards as rr
from rag_rewards.cli.init import check
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableJudge

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import cell
from code_blocks import blocks
from golden import GOLD, GROUPS, MODELS, RECIPES, EvidenceGatherer, Group, bare
from walkthrough import follow, write_data_set

TESTS = Path(__file__).resolve().parents[2]
PAGE = TESTS.parent / "docs" / "nemo-gym.md"
SERVER = "rag_rewards"


def new_server(reward: dict[str, Any], **changes: Any) -> RagRewardsServer:
    config = RagRewardsConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name=SERVER, reward=reward, **changes
    )
    return RagRewardsServer(config=config, server_client=ServerClient.model_construct())


def message(text: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": parts,
    }


def response(*output: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "created_at": 0.0,
        "model": "policy",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **changes,
    }


def request(*output: dict[str, Any], row: Any = None, **changes: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": GOLD["question"]}]},
        "verifier_metadata": row if row is not None else {"id": "7", "answers": ["Seine"]},
        "response": response(*output, **changes),
    }


def golden_request(row: dict[str, Any]) -> dict[str, Any]:
    """Return a golden row as the request of an agent."""
    fields = {name: row[name] for name in ("id", *GOLD) if name in row}
    text, output = row["response"], []
    if not isinstance(text, str):
        first, tool, last = text
        call = {"type": "function_call", "call_id": "c", "name": "search"}
        answer = {"type": "function_call_output", "call_id": "c", "output": tool["content"]}
        output += [message(first["content"]), {**call, "arguments": '{"query": "q"}'}, answer]
        text = last["content"]
    changes: dict[str, Any] = {}
    if row.get("finish_reason") == "length":
        changes = {"incomplete_details": {"reason": "max_output_tokens"}}
    return request(*output, message(row.get("response_prefix", "") + text), row=fields, **changes)


@pytest.mark.parametrize(
    "group", [g for g in GROUPS if g.scope == "rollout"], ids=lambda group: group.id
)
def test_golden_rewards(group: Group) -> None:
    server = new_server({"recipe": group.recipe, "settings": dict(group.settings)})
    scorer = server._verifier.scorer
    scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS
    client = TestClient(server.setup_webserver())
    for row, reward in zip(group.rows, group.rewards, strict=True):
        reply = client.post("/verify", json=golden_request(row))
        if reward is None:
            assert reply.status_code == 422, reply.text
            assert f"row {row['id']}" in reply.json()["detail"]
            continue
        assert reply.status_code == 200, reply.text
        body = reply.json()
        assert body["reward"] == pytest.approx(reward)
        assert body["verifier_metadata"]["id"] == row["id"]
        assert body["response"]["output"][-1]["type"] == "message"
        for name, value in body["reward_components"].items():
            assert body[f"{group.recipe}/{name}"] == value


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_nemo_gym(recipe: str) -> None:
    entry = cell(recipe, "nemo-gym")
    if rr.recipe(recipe).scope == "group":  # see test_groups.py
        with pytest.raises(UsageError, match="set group_size"):
            new_server({"recipe": recipe})
        return
    client = TestClient(new_server({"recipe": recipe}).setup_webserver())
    replies = [client.post("/verify", json=golden_request(row)) for row in bare(recipe)]
    works = [reply.status_code == 200 and FAILURE_CLASS not in reply.json() for reply in replies]
    assert all(works) == (entry.state == "works")


# --- errors ------------------------------------------------------------------------------------


def test_an_invalid_row_is_an_http_error_and_no_reward() -> None:
    client = TestClient(new_server({"recipe": "arena"}).setup_webserver())
    reply = client.post("/verify", json=request(message("x"), row={"id": "7"}))
    assert reply.status_code == 422
    assert reply.json()["detail"].startswith("row 7: answers: missing")
    without = request(message("x"))
    del without["verifier_metadata"]
    reply = client.post("/verify", json=without)
    assert (reply.status_code, "rag-rewards prepare -t nemo-gym" in reply.text) == (422, True)


def test_a_judge_without_a_reply_is_a_failure_and_then_an_error() -> None:
    judge = {"judge": "http://127.0.0.1:9/v1", "judge_model": "any"}
    server = new_server({"recipe": "truthrl", **judge})
    down = TableJudge(lambda question: BackendError("no reply"))
    server._verifier.scorer.models = Models(judge=down)
    client = TestClient(server.setup_webserver())
    reply = client.post("/verify", json=request(message("\\boxed{x}")))
    assert reply.status_code == 200
    assert reply.json()[FAILURE_CLASS] == "judge_failed"
    assert reply.json()["reward"] == 0.0
    assert "row 7" in reply.json()["rag_rewards_error"]
    server._verifier._failures = 15
    reply = client.post("/verify", json=request(message("\\boxed{x}")))
    assert reply.status_code == 503
    assert "16 consecutive rollouts have failed" in reply.json()["detail"]


def test_malformed_output_gets_a_reward() -> None:
    client = TestClient(new_server({"recipe": "arena"}).setup_webserver())
    row = {"id": "7", "answers": ["Seine"], "supporting": [1], "documents": [{"text": "Seine."}]}
    for output in ([], [message("<relevance>[")], [message("😀" * 1000)]):
        reply = client.post("/verify", json=request(*output, row=row))
        assert (reply.status_code, reply.json()["reward"]) == (200, 0.0)


# --- the agent ---------------------------------------------------------------------------------


class Servers:
    """Passes the requests of an agent to the model of a test and to the resources server."""

    def __init__(self, replies: list[dict[str, Any]], resources: TestClient) -> None:
        self.replies, self.resources = list(replies), resources
        self.agent: Any = None

    async def post(self, server_name: str, url_path: str, json: Any, **_: Any) -> Any:
        body = json if isinstance(json, dict) else json.model_dump(mode="json")
        if server_name == "policy_model":
            return Reply(200, self.replies.pop(0))
        if server_name == SERVER:
            answer = await asyncio.to_thread(self.resources.post, url_path, json=body)
            return Reply(answer.status_code, answer.json())
        from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming as Parameters

        cookies = SimpleNamespace(cookies={})
        outer = SimpleNamespace(set_cookie=lambda key, value: None)
        result = await self.agent.responses(cookies, outer, Parameters.model_validate(body))
        return Reply(200, result.model_dump(mode="json"))


class Reply:
    """The parts of a response of aiohttp that the agent reads."""

    def __init__(self, status: int, value: Any) -> None:
        self.status, self.ok, self.value, self.cookies = status, status < 400, value, {}
        self.content = self

    async def read(self) -> bytes:
        return json.dumps(self.value).encode()

    def raise_for_status(self) -> None:
        if not self.ok:
            raise RuntimeError(f"status {self.status}: {self.value}")


def run_agent(server: RagRewardsServer, replies: list[dict[str, Any]], row: dict[str, Any]) -> Any:
    servers = Servers(replies, TestClient(server.setup_webserver()))
    config = SimpleAgentConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="agent",
        resources_server={"type": "resources_servers", "name": SERVER},
        model_server={"type": "responses_api_models", "name": "policy_model"},
    )
    agent = SimpleAgent.model_construct(config=config, server_client=servers)
    servers.agent = agent
    from responses_api_agents.simple_agent.app import SimpleAgentRunRequest

    body = SimpleAgentRunRequest.model_validate(row)
    return asyncio.run(agent.run(SimpleNamespace(cookies={}), body))


def row_of(**fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Which river?"}]},
        "verifier_metadata": {"id": "7", **fields},
    }


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "nemo_corpus.py").write_text(
        "def search(query):\n"
        "    if query == 'down':\n"
        "        raise TimeoutError('no reply')\n"
        "    return [{'title': 'Paris', 'text': f'About {query}: the Seine.'}]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "nemo_corpus:search"


def call(query: str) -> dict[str, Any]:
    arguments = json.dumps({"query": query})
    return {"type": "function_call", "call_id": "c", "name": "search", "arguments": arguments}


def test_an_agent_searches_and_gets_its_reward(corpus: str) -> None:
    settings = {"scheme": "searched", "dialect": "tools"}
    server = new_server({"recipe": "search-r1", "settings": settings}, retriever=corpus)
    replies = [response(call("river")), response(message("Seine"))]
    result = run_agent(server, replies, row_of(answers=["Seine"])).model_dump()
    assert result["reward"] == 1.0
    assert result["search-r1/searched"] == 1.0
    assert result["search-r1/retrieval"] == 1.0


def test_the_failure_of_the_retriever_reaches_the_caller(corpus: str) -> None:
    server = new_server({"recipe": "search-r1"}, retriever=corpus)
    replies = [response(call("down")), response(message("Seine"))]
    result = run_agent(server, replies, row_of(answers=["Seine"])).model_dump()
    assert result[FAILURE_CLASS] == "retriever_failed"
    assert "the retriever failed: TimeoutError: no reply" in result["rag_rewards_error"]


def test_the_metrics_contain_the_components() -> None:
    server = new_server({"recipe": "naive-grpo"})
    client = TestClient(server.setup_webserver())
    replies = []
    for i, answer in enumerate(("Seine", "Loire")):
        text = f"<think>x</think><answer>{answer}</answer>"
        reply = client.post("/verify", json=request(message(text))).json()
        replies.append(reply | {"_ng_task_index": 0, "_ng_rollout_index": i})
    given = AggregateMetricsRequest(verify_responses=replies)
    metrics = asyncio.run(server.aggregate_metrics(given)).agent_metrics
    assert metrics["mean/reward"] == 1.5
    assert metrics["mean/naive-grpo/accuracy"] == 0.5


# --- files -------------------------------------------------------------------------------------


def test_the_page(tmp_path: Path, shared: Path) -> None:
    """The commands of the page, and then the data and the server that they write."""
    write_data_set(tmp_path, shared, rows=2)
    page = blocks(PAGE.read_text("utf-8"))
    [commands] = [block.commands for block in page if block.marks == ("nemo-gym",)]
    for command in commands:
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
    folder = tmp_path / "run" / "resources_servers" / "rag_rewards"
    written = yaml.safe_load((folder / "configs" / "rag_rewards.yaml").read_text())
    agent = written["rag_rewards_simple_agent"]["responses_api_agents"]["simple_agent"]
    rows = tmp_path / "run" / "train.jsonl"
    [data] = [DatasetConfig.model_validate(data) for data in agent["datasets"]]
    assert data.jsonl_fpath == "train.jsonl"  # in the folder `run`
    config = RolloutCollectionConfig(input_jsonl_fpath=str(rows), output_jsonl_fpath="o.jsonl")
    row, _ = RolloutCollectionHelper()._preprocess_rows_from_config(config)
    server = new_server(written[SERVER]["resources_servers"][SERVER]["reward"])
    labels = ", ".join(row["verifier_metadata"]["supporting"])
    [[answer, *_]] = row["verifier_metadata"]["answers"]
    text = f"<relevance>[{labels}]</relevance><analysis>x</analysis><answer>{answer}</answer>"
    assert run_agent(server, [response(message(text))], row).reward == 13.0


def test_the_data_and_the_configuration_of_the_page() -> None:
    page = blocks(PAGE.read_text("utf-8"))
    [configuration] = [block.code for block in page if block.language == "yaml"]
    given = yaml.safe_load(configuration)[SERVER]["resources_servers"][SERVER]
    assert new_server(given["reward"])._verifier.scorer.reward.name == "truthrl"
    row, error = [json.loads(block.code) for block in page if block.language == "json"]
    text = "<relevance>[1]</relevance><analysis>x</analysis><answer>Seine</answer>"
    server = new_server({"recipe": "arena"})
    assert run_agent(server, [response(message(text))], row).reward == 13.0
    del row["verifier_metadata"]["answers"]
    with pytest.raises(RuntimeError) as raised:
        run_agent(server, [response(message(text))], row)
    assert error["detail"] in str(raised.value)


def test_an_invalid_setting_is_named(tmp_path: Path) -> None:
    follow("rag-rewards init nemo-gym -r arena -o .", tmp_path)
    path = tmp_path / "resources_servers/rag_rewards/configs/rag_rewards.yaml"
    path.write_text(path.read_text().replace("recipe: arena", "recipe: arenas"))
    assert "arenas" in check("nemo-gym", tmp_path)
    assert HTTPException is not None

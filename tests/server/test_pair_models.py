"""The models that a server shares with other processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import ARENA, Running, connect
from virtual_time import run_in_virtual_time

from rag_rewards import BackendError
from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.limits import Limits
from rag_rewards.server.app import RewardServer
from rag_rewards.server.options import MIB, ServerOptions
from rag_rewards.server.routes import Application
from rag_rewards.testing import TableContradiction, TableEntailment, TableSimilarity

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))

PLAN = RecipeSpec(recipe="arena")
PAIRS = [["Paris is in France.", "Paris is French."], ["Rome is in Italy.", "Rome is French."]]
MODELS = Models(
    entailment=TableContradiction(lambda premise, _: 0.25 if "Paris" in premise else 0.75),
    similarity=TableSimilarity(lambda text, _: 0.5 if "Paris" in text else -0.5),
)


class SlowEntailment:
    """A model that stores the sizes of its batches."""

    fingerprint = "slow"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def entail(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        self.sizes.append(len(pairs))
        await asyncio.sleep(0.05)
        if any(premise == "error" for premise, _ in pairs):
            raise BackendError("out of memory")
        return [float(len(premise)) / 100 for premise, _ in pairs]

    async def close(self) -> None:
        """Do nothing."""


async def client_of(models: Models, **options: Any) -> httpx.AsyncClient:
    """Return a client of a server without a recipe."""
    server = RewardServer(lambda: models, (), ServerOptions(**options))
    await server.start()
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(Application(server)), base_url="http://test"
    )


@pytest.mark.parametrize("has_recipe", [True, False])
async def test_numbers_of_pairs(has_recipe: bool) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        shown = (await client.get("/models")).json()
        assert shown["entailment"] == shown["similarity"] == {"fingerprint": "table"}
        answer = await client.post("/entailment", json={"pairs": PAIRS})
        assert answer.json() == {"entailment": [0.75, 0.25]}
        answer = await client.post("/entailment", json={"pairs": PAIRS, "contradiction": True})
        assert answer.json() == {"entailment": [0.75, 0.25], "contradiction": [0.25, 0.75]}
        answer = await client.post("/similarity", json={"pairs": PAIRS})
        assert answer.json() == {"similarity": [0.5, -0.5]}
        assert (await client.post("/similarity", json={"pairs": []})).json() == {"similarity": []}

    if has_recipe:
        async with connect(PLAN, MODELS) as (client, _):
            await check(client)
    else:
        async with await client_of(MODELS) as client:
            await check(client)
            health = (await client.get("/health")).json()
            assert health == {"ready": True, "recipe": None}
            refusal = await client.post("/score", json={"rollouts": [ARENA]})
            assert refusal.status_code == 404
            assert "start it with --recipe" in refusal.json()["error"]["message"]
            assert (await client.get("/status")).json()["loaded"]["models"]["nli"] == "table"


async def test_faults_of_a_request() -> None:
    models = Models(entailment=TableEntailment(lambda premise, text: 0.5))
    async with await client_of(models, max_rows=2, max_body=500 / MIB) as client:
        for path, body, status, message in (
            ("/similarity", {"pairs": PAIRS}, 404, "start it with --similarity"),
            ("/entailment", {"pairs": [["a"]]}, 422, "length 2"),
            ("/entailment", {"pairs": PAIRS, "model": "x"}, 422, "model"),
            ("/entailment", {"pairs": PAIRS * 2}, 413, "at most 2 rows"),
            ("/entailment", {"pairs": [["a" * 600, "b"]]}, 413, "more than 500 bytes"),
            ("/entailment", {"pairs": PAIRS, "contradiction": True}, 424, "no label"),
        ):
            answer = await client.post(path, json=body)
            assert answer.status_code == status, path
            assert message in answer.json()["error"]["message"]


async def test_models_require_the_token() -> None:
    async with await client_of(MODELS, token="secret") as client:
        assert (await client.get("/models")).status_code == 401
        assert (await client.post("/entailment", json={"pairs": PAIRS})).status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert (await client.get("/models", headers=headers)).status_code == 200


def test_requests_that_wait_form_one_batch() -> None:
    async def test() -> None:
        model = SlowEntailment()
        async with await client_of(Models(entailment=model)) as client:
            bodies = [{"pairs": [["x" * i, "y"]] * 3} for i in range(1, 9)]
            answers = await asyncio.gather(*(client.post("/entailment", json=b) for b in bodies))
        assert [answer.json()["entailment"][0] for answer in answers] == [
            i / 100 for i in range(1, 9)
        ]
        assert sum(model.sizes) == 24
        assert len(model.sizes) < 8

    run_in_virtual_time(test())


def test_a_pair_does_not_affect_other_requests() -> None:
    async def test() -> None:
        model = SlowEntailment()
        async with await client_of(Models(entailment=model)) as client:
            premises = ["first", "x", "error", "xx", "xxx"]
            answers = await asyncio.gather(
                *(client.post("/entailment", json={"pairs": [[p, "y"]]}) for p in premises)
            )
            assert (await client.get("/status")).json()["rollouts_waiting"] == 0
        assert [answer.status_code for answer in answers] == [200, 200, 424, 200, 200]
        assert answers[-1].json() == {"entailment": [0.03]}
        assert max(model.sizes) > 1  # they were in one batch

    run_in_virtual_time(test())


def test_a_missing_result_moves_no_number_to_another_request() -> None:
    class Forgetful(SlowEntailment):
        async def entail(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
            values = await super().entail(pairs)
            return [value for value in values if value != 0.05]

    async def test() -> None:
        async with await client_of(Models(entailment=Forgetful())) as client:
            answers = await asyncio.gather(
                *(client.post("/entailment", json={"pairs": [["x" * i, "y"]]}) for i in range(3, 8))
            )
        assert [answer.json().get("entailment") for answer in answers] == [
            None if i == 5 else [i / 100] for i in range(3, 8)
        ]
        assert answers[2].status_code == 424
        assert "returned 0 results for 1 pairs" in answers[2].json()["error"]["message"]

    run_in_virtual_time(test())


async def test_a_failure_of_the_model_is_final() -> None:
    async with await client_of(Models(entailment=SlowEntailment())) as client:
        answer = await client.post("/entailment", json={"pairs": [["error", "y"]]})
        assert answer.status_code == 424
        assert "out of memory" in answer.json()["error"]["message"]
        assert (await client.post("/entailment", json={"pairs": PAIRS})).status_code == 200


@pytest.mark.slow
def test_a_shared_model_has_the_values_and_the_fingerprint_of_a_local_one(
    serving: Any, tmp_path: Path
) -> None:
    models = pytest.importorskip("tiny_text_models")
    from rag_rewards.models.nli import load_entailment
    from rag_rewards.models.similarity import SentenceSimilarity
    from rag_rewards.models.text_servers import EntailmentServer, SimilarityServer

    nli = models.save_classifier(tmp_path / "nli")
    encoder = models.save_encoder(tmp_path / "base", tmp_path / "encoder")
    token = tmp_path / "token.txt"
    token.write_text("secret")
    running: Running = serving(
        "--nli", nli, "--similarity", encoder, "--device", "cpu", "--token-file", token
    )
    url = running.url.replace("http://", "http://worker:secret@")
    limits = Limits(batch=3, backoff=0.01)
    first, second = EntailmentServer(url, limits=limits), SimilarityServer(url, limits=limits)
    pairs = [*models.PAIRS, (models.text(200)[0], "Paris is a city ."), ("", "the cat")]
    local = load_entailment(nli, device="cpu")
    assert first.fingerprint == local.fingerprint
    assert asyncio.run(first.entail(pairs)) == pytest.approx(local.entail_sync(pairs), abs=1e-5)
    both = asyncio.run(first.entail_and_contradict(pairs))
    expected = asyncio.run(local.entail_and_contradict(pairs))
    assert both == [pytest.approx(values, abs=1e-5) for values in expected]
    similar = SentenceSimilarity(encoder, device="cpu")
    assert second.fingerprint == similar.fingerprint
    values = asyncio.run(second.similarity(models.TEXTS))
    assert values == pytest.approx(similar.similarity_sync(models.TEXTS), abs=1e-5)
    with pytest.raises(BackendError, match="status 401"):
        asyncio.run(EntailmentServer(running.url, limits=limits).entail(pairs))


@pytest.mark.parametrize(
    "arguments", [[], ["--judge", "http://host/v1", "--judge-model", "x", "--nli", "x"]]
)
def test_a_server_without_a_recipe_shares_only_these_models(
    arguments: list[str], serving: Any
) -> None:
    running: Running = serving(*arguments, wait=False)
    code, log = running.wait_for_end()
    assert code == 2
    assert "without a recipe, the server shares only the models --nli and --similarity" in " ".join(
        log.split()
    )


def test_a_server_without_a_recipe_writes_no_dump(serving: Any, tmp_path: Path) -> None:
    running: Running = serving("--nli", "x", "--dump", tmp_path / "rollouts.jsonl", wait=False)
    code, log = running.wait_for_end()
    assert code == 2
    assert "--dump writes scored rollouts: set --recipe, or remove --dump" in " ".join(log.split())
    assert not (tmp_path / "rollouts.jsonl").exists()

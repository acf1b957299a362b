"""Batches of requests, deadlines, errors of models, and the rate."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from processes import WAIT_SECONDS
from running_server import connect
from virtual_time import run_and_advance, run_in_virtual_time

from rag_rewards import decode_row
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.loading import RecipeSpec
from rag_rewards.rewards import truthfulness
from rag_rewards.server.admission import THREADS, Admission, Message
from rag_rewards.server.options import MIB, ServerOptions
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.telemetry import Rate
from rag_rewards.testing import TableJudge
from rag_rewards.text.latex import last_box
from rag_rewards.training import openrlhf

PLAN = RecipeSpec(recipe="truthrl")
RUN_TEST = run_in_virtual_time
DEADLINE = 1000.0
"""A deadline in seconds that is over only when a test sets the clock forward."""


class SlowJudge:
    """A judge that compares the numbers of answer and gold answer. It can wait, or raise."""

    fingerprint = "slow"

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds = seconds
        self.calls: list[int] = []
        self.broken = False
        self.running = self.max_running = 0

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]:
        self.calls.append(len(questions))
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        if self.broken:
            raise BackendError("the judge is down")
        return [int(question.response[1:] == question.gold[0][1:]) for question in questions]

    async def close(self) -> None:
        return None


def row(i: int, right: bool = True) -> dict[str, Any]:
    answer = f"x{i}" if right else "wrong"  # differs from the gold answer, which needs no judge
    return {"question": f"q{i}", "response": rf"\boxed{{{answer}}}", "answers": f"a{i}"}


async def test_requests_of_many_connections_are_batched() -> None:
    judge = SlowJudge()
    async with connect(PLAN, Models(judge=judge)) as (client, server):
        answers = await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i, i % 3 > 0)]}) for i in range(60)]
        )
    rewards = [answer.json()["scores"][0]["reward"] for answer in answers]
    assert rewards == [1.0 if i % 3 else -1.0 for i in range(60)]
    assert sum(judge.calls) == 60
    assert len(judge.calls) < 10
    assert judge.max_running == 1
    assert server.telemetry.status()["rollouts_waiting"] == 0


async def test_the_status_reads_no_fingerprint_again() -> None:
    """The fingerprint of a policy reads all of its weights, which would block other requests."""

    class CountingJudge(SlowJudge):
        reads = 0

        @property
        def fingerprint(self) -> str:  # type: ignore[override]
            self.reads += 1
            return "counting"

    judge = CountingJudge()
    async with connect(PLAN, Models(judge=judge)) as (client, _):
        reads = judge.reads
        for _ in range(3):
            status = (await client.get("/status")).json()
            assert status["loaded"]["models"] == {"judge": "counting"}
        assert judge.reads == reads


async def test_several_batches_run_at_the_same_time() -> None:
    judge = SlowJudge()
    options = {"batch_rows": 4, "in_flight": 3}
    async with connect(PLAN, Models(judge=judge), **options) as (client, _):
        await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i)]}) for i in range(30)]
        )
    assert judge.max_running == 3
    assert max(judge.calls) == 4


async def test_a_request_larger_than_a_batch_is_one_batch() -> None:
    judge = SlowJudge(0.0)
    async with connect(PLAN, Models(judge=judge), batch_rows=4) as (client, _):
        answer = await client.post("/score", json={"rollouts": [row(i) for i in range(9)]})
    assert judge.calls == [9]
    assert {score["reward"] for score in answer.json()["scores"]} == {1.0}


async def test_a_cascade_sends_only_undecided_answers_to_the_judge() -> None:
    texts = ("It is Paris.", "Rome, Paris", "It is not Paris.", "")
    rows = [
        {
            "question": "Which city is it?",
            "response": rf"\boxed{{{text}}}",
            "answers": "Paris",
        }
        for text in texts
    ]
    plan = RecipeSpec(recipe="truthrl", settings={"verifier": "cascade"})

    judge = TableJudge(lambda question: int(question.response == texts[1]))
    async with connect(plan, Models(judge=judge)) as (client, _):
        answer = await client.post("/score", json={"rollouts": rows})
    scores = answer.json()["scores"]
    assert [score["reward"] for score in scores] == [1.0, 1.0, -1.0, -1.0]
    deciders = [score["details"].get("decided_by") for score in scores]
    assert deciders == [None, "judge", "judge", None]
    assert [question.response for question in judge.requests] == [texts[1], texts[2]]


async def test_a_broken_judge_is_the_error_of_each_row() -> None:
    judge = SlowJudge(0.0)
    async with connect(PLAN, Models(judge=judge)) as (client, _):
        judge.broken = True
        body = {"rollouts": [row(i) for i in range(30)]}
        scores = (await client.post("/score", json=body)).json()["scores"]
        assert {score["error"]["type"] for score in scores} == {"BackendError"}


async def test_openrlhf_gets_503_while_the_judge_is_down() -> None:
    judge = SlowJudge(0.0)
    judge.broken = True
    sample = {
        "query": [r"q\boxed{x}"],
        "prompts": ["q"],
        "labels": [json.dumps({"question": "q", "answers": "a"})],
    }
    async with connect(PLAN, Models(judge=judge)) as (client, _):
        answer = await client.post("/openrlhf", json=sample)
    assert answer.status_code == 503
    assert "the judge is down" in answer.json()["error"]["message"]


async def test_a_request_after_its_deadline_is_removed_from_the_queue() -> None:
    judge = SlowJudge(0.3)
    async with connect(PLAN, Models(judge=judge), deadline=0.1) as (client, server):
        started = asyncio.get_running_loop().time()
        answers = await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i)]}) for i in range(2)],
        )
        assert asyncio.get_running_loop().time() - started <= 0.1
        assert {answer.status_code for answer in answers} == {504}
        assert answers[0].json()["error"]["type"] == "Deadline"
        await asyncio.sleep(0.4)
        assert server.telemetry.status()["rollouts_waiting"] == 0


class Panic(BaseException):
    """An error like PanicException of pyo3, which is not an Exception."""


@pytest.mark.parametrize(
    ("error", "message", "is_logged"),
    [
        (BackendError("self-check failed"), "self-check failed", False),
        (KeyError("gone"), "KeyError: 'gone'", True),
        (Panic("poisoned lock"), "Panic: poisoned lock", True),
    ],
)
async def test_an_error_of_a_batch_is_the_error_of_each_rollout(
    error: BaseException, message: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> Any:
        raise error

    models = Models(judge=SlowJudge(0.0))
    async with connect(PLAN, models, error_value=-1.0, deadline=30) as (client, server):
        server.ready.recipe.scorer.score_each_async = fail  # type: ignore[union-attr,method-assign]
        answers = await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i)]}) for i in range(30)]
        )
        errors = [answer.json()["scores"][0]["error"] for answer in answers]
        assert {(each["type"], each["message"]) for each in errors} == {("BackendError", message)}
        assert (type(error).__name__ in caplog.text) is is_logged
        label = json.dumps({"question": "q", "answers": "a"})
        sample = {"query": [r"q\boxed{x}"], "prompts": ["q"], "labels": [label]}
        answer = await client.post("/openrlhf", json=sample)  # no value replaces a failure
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, message)


async def test_a_panic_of_one_rollout_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def panicking_box(text: str) -> str | None:
        if "bad" in text:
            raise Panic("no boundary")
        return last_box(text)

    monkeypatch.setattr(truthfulness, "last_box", panicking_box)
    good = {"response": r"\boxed{Paris}", "answers": "Paris", "question": "q"}
    bad = good | {"response": r"bad \boxed{Paris}"}

    for models in (Models(judge=SlowJudge(0.0)), Models()):
        async with connect(PLAN, models) as (client, _):
            answer = await client.post("/score", json={"rollouts": [good, bad, good]})
            scores = answer.json()["scores"]
        assert [score["reward"] for score in scores] == [1.0, None, 1.0]
        assert scores[1]["error"]["type"] == "ScoringError"


async def test_requests_in_flight_are_answered_when_their_batch_is_cancelled() -> None:
    judge = SlowJudge(30.0)
    async with connect(PLAN, Models(judge=judge), deadline=30) as (_, server):
        recipe = server.ready.recipe  # type: ignore[union-attr]
        score = asyncio.ensure_future(recipe.score([decode_row(row(1))], [[0]], 0))  # type: ignore[union-attr]
        await asyncio.sleep(0.05)  # until the judge has the batch
        (batch,) = recipe.batcher._running  # type: ignore[union-attr]
        batch.cancel()
        done, _ = await asyncio.wait([score], timeout=5)
        assert done == {score}
        assert score.cancelled()


async def test_requests_above_the_queue_limit_are_refused() -> None:
    async with connect(PLAN, Models(judge=SlowJudge(0.2)), max_waiting=3) as (
        client,
        _,
    ):
        answers = await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i)]}) for i in range(20)]
        )
        assert {answer.status_code for answer in answers} == {200, 503}
        busy = next(answer for answer in answers if answer.status_code == 503)
        assert busy.json()["error"]["type"] == "Busy"


def test_large_requests_have_a_limit_also_after_their_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    can_end, running, requests = threading.Event(), [], []

    async def test() -> None:
        async with connect(PLAN, max_pending=1_000_000, deadline=DEADLINE) as (client, server):
            assert server.ready is not None
            assert server.ready.recipe is not None
            recipe = server.ready.recipe
            score_each = recipe.scorer.score_each

            def wait_and_score(*arguments: Any) -> Any:
                running.append(threading.current_thread())
                assert can_end.wait(WAIT_SECONDS)
                return score_each(*arguments)

            monkeypatch.setattr(recipe.scorer, "score_each", wait_and_score)
            body = {"rollouts": [row(0) | {"context": "x" * 100_000}]}
            requests.extend(
                asyncio.ensure_future(client.post("/score", json=body)) for _ in range(20)
            )
            answers = await asyncio.gather(*requests)
            statuses = Counter(answer.status_code for answer in answers)
            # Of the nine requests up to the limit, those without a thread end at the deadline.
            assert statuses == {504: 9, 503: 11}
            assert len(running) == THREADS
            assert THREADS * 100_000 < server.admission.pending_bytes < (THREADS + 1) * 100_000
            can_end.set()
            while server.admission.pending_bytes:
                await asyncio.sleep(0.01)
            assert len(running) == THREADS
            assert (await client.post("/score", json=body)).status_code == 200

    def is_full() -> bool:
        """Return whether threads score and all requests above the limit were refused."""
        return len(running) == THREADS and sum(request.done() for request in requests) == 11

    run_and_advance(test(), DEADLINE, is_full)


def test_large_requests_of_openrlhf_are_read_in_the_same_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    can_end, running, requests = threading.Event(), [], []
    rollouts_of = openrlhf.rollouts_of

    def wait_and_read(request: openrlhf.SampleRequest) -> Any:
        running.append(threading.current_thread())
        assert can_end.wait(WAIT_SECONDS)
        return rollouts_of(request)

    monkeypatch.setattr(openrlhf, "rollouts_of", wait_and_read)
    prompt = "x" * 100_000
    body = {"query": [prompt + r"\boxed{a}"], "prompts": [prompt], "labels": ['{"answers": "a"}']}

    async def test() -> None:
        async with connect(PLAN, max_pending=2_000_000, deadline=DEADLINE) as (client, server):
            requests.extend(
                asyncio.ensure_future(client.post("/openrlhf", json=body)) for _ in range(20)
            )
            answers = await asyncio.gather(*requests)
            assert Counter(answer.status_code for answer in answers) == {504: 9, 503: 11}
            assert len(running) == THREADS
            assert {thread.name[:7] for thread in running} == {"scoring"}
            assert server.admission.pending_bytes > THREADS * 200_000
            can_end.set()
            while server.admission.pending_bytes:
                await asyncio.sleep(0.01)
            assert (await client.post("/openrlhf", json=body)).json()["rewards"] == 1.0

    def is_full() -> bool:
        return len(running) == THREADS and sum(request.done() for request in requests) == 11

    run_and_advance(test(), DEADLINE, is_full)


class SlowSimilarity:
    """A similarity model that takes as long as `SlowJudge`."""

    fingerprint = "slow"

    async def similarity(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        await asyncio.sleep(0.05)
        return [0.5] * len(pairs)

    async def close(self) -> None:
        return None


PADDING = "x" * 30_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/score", {"rollouts": [row(0) | {"context": PADDING}]}),
        (
            "/openrlhf",
            {
                "query": [PADDING + row(0)["response"]],
                "prompts": [PADDING],
                "labels": [json.dumps({"question": "q0", "answers": "a0"})],
            },
        ),
        ("/similarity", {"pairs": [[PADDING, "y"]]}),
    ],
)
async def test_small_requests_that_wait_for_a_model_are_counted(path: str, body: Any) -> None:
    size = len(json.dumps(body))

    models = Models(judge=SlowJudge(), similarity=SlowSimilarity())
    async with connect(PLAN, models, max_pending=3 * size + 100) as (client, server):
        answers = await asyncio.gather(*[client.post(path, json=body) for _ in range(9)])
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses == {200: 3, 503: 6}
        assert server.admission.pending_bytes == 0


async def test_a_refused_request_refuses_no_other_one() -> None:
    admission = Admission(ServerOptions(max_pending=100, max_body=80 / MIB))

    async def answer(size: int) -> object:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * size}

        async def handle(body: bytes) -> bytes:
            return body[:1]

        try:
            return await admission.answer(receive, handle)
        except RequestError as error:
            return error.status

    results = await asyncio.gather(*map(answer, (60, 60, 90, 30)))
    assert results == [b"x", 503, 413, b"x"]
    assert admission.pending_bytes == 0


async def test_a_request_is_counted_until_its_batch_ends() -> None:
    options = {"deadline": 0.1, "batch_ms": 0.0}
    async with connect(PLAN, Models(judge=SlowJudge(0.3)), **options) as (client, server):
        answer = await client.post("/score", json={"rollouts": [row(0)]})
        assert answer.status_code == 504
        assert server.admission.pending_bytes > 0
        await asyncio.sleep(0.3)
        assert server.admission.pending_bytes == 0


async def test_a_batch_that_fails_is_repeated_for_each_request() -> None:
    async with connect(PLAN, Models(judge=SlowJudge(0.0))) as (client, server):
        scorer = server.ready.recipe.scorer  # type: ignore[union-attr]
        score_each, sizes = scorer.score_each_async, []

        async def fail_for_q1(rollouts: Any, groups: Any) -> Any:
            sizes.append(len(rollouts))
            if any(rollout.question == "q1" for rollout in rollouts):
                raise KeyError("gone")
            return await score_each(rollouts, groups)

        scorer.score_each_async = fail_for_q1  # type: ignore[method-assign]
        answers = await asyncio.gather(
            *[client.post("/score", json={"rollouts": [row(i)]}) for i in range(3)]
        )
    scores = [answer.json()["scores"][0] for answer in answers]
    assert [score["reward"] for score in scores] == [1.0, None, 1.0]
    assert scores[1]["error"]["message"] == "KeyError: 'gone'"
    assert sizes == [3, 1, 1, 1]


async def test_a_cancelled_request_ends_its_scoring() -> None:
    judge = SlowJudge(0.2)
    async with connect(PLAN, Models(judge=judge), batch_ms=0.0) as (client, server):
        assert server.ready is not None
        assert server.ready.recipe is not None
        first, second = (
            asyncio.ensure_future(client.post("/score", json={"rollouts": [row(i)]}))
            for i in range(2)
        )
        while server.ready.recipe.batcher.waiting != 1 or not judge.running:
            await asyncio.sleep(0.01)  # the second one waits for the first one
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await asyncio.sleep(0)
        assert server.ready.recipe.batcher.waiting == 0
        assert (await first).status_code == 200
        assert judge.calls == [1]


def test_the_deadline_of_a_large_request_stops_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollout that is scored at the deadline is the last one."""
    scored: list[int] = []
    can_end = threading.Event()

    async def test() -> None:
        async with connect(PLAN, deadline=DEADLINE) as (client, server):
            assert server.ready is not None
            assert server.ready.recipe is not None
            recipe = server.ready.recipe

            def wait(*_: Any) -> Any:
                scored.append(1)
                assert can_end.wait(WAIT_SECONDS)
                return [BackendError("late")]

            monkeypatch.setattr(recipe.scorer, "score_each", wait)
            rows = [row(i) | {"context": "x" * 100_000} for i in range(4)]
            assert (await client.post("/score", json={"rollouts": rows})).status_code == 504
            await asyncio.sleep(0)  # cancels the request
            can_end.set()
            while server.admission.pending_bytes:
                await asyncio.sleep(0.01)
            assert len(scored) == 1

    run_and_advance(test(), DEADLINE, lambda: bool(scored))


def test_large_requests_have_the_scores_of_small_ones() -> None:
    async def test() -> None:
        async with connect(RecipeSpec(recipe="truthrl")) as (client, _):
            rows = [row(i, right=i % 3 == 0) | {"group": i % 5} for i in range(12)]
            for each in rows:
                each["answers"] = each["response"][7:-1] if each["group"] else "no"
                each["verdicts"] = {"outcome": 0}
            small = (await client.post("/score", json={"rollouts": rows})).json()
            padded = [each | {"context": "x" * 10_000} for each in rows]
            large = (await client.post("/score", json={"rollouts": padded})).json()
            assert large == small
            assert {score["reward"] for score in small["scores"]} == {-1.0, 1.0}

    asyncio.run(test())


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/score", {"rollouts": [row(0), row(1) | {"context": "x" * 2000}]}, "rollouts[1]"),
        (
            "/openrlhf",
            {"query": ["q", "q" * 2000], "prompts": ["q", "q"], "labels": [None, None]},
            "query[1]",
        ),
        (
            "/openrlhf",
            {"query": ["q"], "prompts": ["q"], "labels": [json.dumps({"answers": "a" * 2000})]},
            "labels[0]",
        ),
        ("/entailment", {"pairs": [["a", "b"], ["a" * 1000, "b" * 1000]]}, "pairs[1]"),
    ],
)
@pytest.mark.parametrize("padding", [0, 100_000])
def test_a_row_above_the_limit_is_refused(
    path: str, body: dict[str, Any], place: str, padding: int
) -> None:
    async def test() -> None:
        async with connect(PLAN, max_row=1500 / MIB) as (client, _):
            answer = await client.post(path, content=json.dumps(body) + " " * padding)
            assert answer.status_code == 413
            assert answer.json()["error"]["path"] == place

    asyncio.run(test())


def test_bodies_that_are_received_have_a_common_limit() -> None:
    """A body of less than 64 kB is accepted also while large ones use the limit."""

    received = asyncio.Event()

    async def large(parts: int, wait: asyncio.Event) -> Any:
        for _ in range(parts):
            yield b" " * 100_000
        received.set()
        await wait.wait()
        yield b"{}"

    async def test() -> None:
        async with connect(PLAN, max_pending=1_000_000) as (client, _):
            wait = asyncio.Event()
            first = asyncio.ensure_future(client.post("/score", content=large(8, wait)))
            await received.wait()
            second = await client.post("/score", content=large(3, wait))
            small = await client.post("/score", json={"rollouts": []})
            wait.set()
            assert (await first).status_code == 422
            assert second.status_code == 503
            assert second.headers["retry-after"] == "1"
            assert second.json()["error"]["type"] == "Busy"
            assert small.status_code == 200

    asyncio.run(test())


async def test_the_deadline_includes_the_body() -> None:
    async def slow_body() -> Any:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    async with connect(PLAN, Models(judge=SlowJudge()), deadline=0.1) as (client, _):
        assert (await client.post("/score", content=slow_body())).status_code == 504


def test_loading_is_tried_again_when_a_backend_does_not_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rag_rewards.scorer import Scorer
    from rag_rewards.server import app
    from rag_rewards.server.options import ServerOptions

    monkeypatch.setattr(app, "RETRY_SECONDS", 0.01)
    statuses: list[int] = []

    def load() -> Scorer:
        statuses.append(server.health()[0])
        if len(statuses) < 3:
            raise BackendError("connection refused")
        return Scorer.load(PLAN)

    server = app.RewardServer(load, ("outcome",), ServerOptions())
    asyncio.run(server.start())
    assert statuses == [503, 503, 503]
    assert server.health()[0] == 200


def test_the_rate_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = Rate(started=1000.0)
    for now, count in ((1001.0, 20), (1009.9, 30)):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        rate.add(count)
    monkeypatch.setattr(time, "monotonic", lambda: 1010.0)
    assert rate.per_second == 5.0
    monkeypatch.setattr(time, "monotonic", lambda: 1065.0)
    assert rate.per_second == 0.5

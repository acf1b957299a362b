"""A judge behind a server with many kinds of faults, and a cache on a full disk."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from email.utils import formatdate
from pathlib import Path

import pytest
from judge_server import Behaviour, JudgeServer, Reply, Request

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.models import verdict_cache
from rag_rewards.models.openai import OpenAIJudge
from rag_rewards.models.verdict_cache import (
    BackgroundCache,
    Entry,
    Verdicts,
    cache_key,
    check_cache,
)

GARBAGE = (b"", b"<html>502</html>", b"\xff\xfe\x00", b'{"choices": []}', b'{"choices": [{"mess')


def questions(count: int) -> list[JudgeQuestion]:
    return [
        JudgeQuestion("outcome", f"Question {i}?", f"answer {i}", ("Rome",)) for i in range(count)
    ]


def verdict_of(request: Request) -> int:
    """Return a verdict that depends on the texts of a request only."""
    return hashlib.sha256(request.material.encode()).digest()[0] % 2


def fault(rng: random.Random) -> Reply:
    """Return one of the faults that the next attempt can overcome."""
    return rng.choice(
        [
            Reply(status=429, headers={"retry-after": "0.02"}),
            Reply(status=429, headers={"retry-after": "0"}, raw=b'{"error": {"message": "slow"}}'),
            Reply(status=503, headers={"retry-after": "soon"}),
            Reply(status=500, raw=b"\x00" * 2000),
            Reply(status=502, raw=b"<html>"),
            Reply(cut=True),
            Reply(raw=rng.choice(GARBAGE)),
            Reply("I cannot decide."),
            Reply('{"score": 2}'),
            Reply('{"score": 1', finish="length"),
        ]
    )


def faulty(seed: int, share: float = 0.4) -> Behaviour:
    """Return a behaviour with at most two faults for each request."""
    rng, faults = random.Random(seed), Counter[bytes]()

    def behave(request: Request) -> Reply:
        # A request with a fault has two at most: a third one without a verdict would be its last.
        if request.number == 10 and share and not faults[request.raw]:  # takes up to a second
            faults[request.raw] += 1
            date = formatdate(time.time() + 1, usegmt=True)
            return Reply(status=429, headers={"retry-after": date})
        if faults[request.raw] < 2 and rng.random() < share:
            faults[request.raw] += 1
            return fault(rng)
        return Reply(f'{{"explanation": "", "score": {verdict_of(request)}}}')

    return behave


@pytest.mark.parametrize("seed", [1, 2])
def test_no_verdict_is_lost_or_invented_by_faults(tmp_path: Path, seed: int) -> None:
    asked = questions(80)
    with JudgeServer(faulty(seed, share=0.0)) as server:
        expected = asyncio.run(OpenAIJudge("m", base_url=server.url).judge(asked))
    with JudgeServer(faulty(seed)) as server:
        options = {"backoff": 0.005, "cache": tmp_path / "verdicts.db"}
        judge = OpenAIJudge("m", base_url=server.url, **options)  # type: ignore[arg-type]
        assert asyncio.run(judge.judge(asked)) == expected
        sent = len(server.requests)
        assert sent > len(asked)  # faults were repeated
        assert asyncio.run(judge.judge(asked)) == expected
    assert len(server.requests) == sent  # and all verdicts are in the cache


def test_a_question_whose_faults_do_not_end_has_no_verdict(tmp_path: Path) -> None:
    def behave(request: Request) -> Reply:
        return Reply(cut=True) if "answer 3\n" in request.material else Reply()

    with JudgeServer(behave) as server:
        cache = tmp_path / "verdicts.db"
        judge = OpenAIJudge("m", base_url=server.url, retries=1, backoff=0.001, cache=cache)
        verdicts = asyncio.run(judge.judge(questions(6)))
        assert [verdict == 1 for verdict in verdicts] == [True] * 3 + [False] + [True] * 2
        assert isinstance(verdicts[3], BackendError)
        server.behaviour = lambda _: Reply()
        sent = len(server.requests)
        assert asyncio.run(judge.judge(questions(6))) == [1] * 6
    assert len(server.requests) == sent + 1  # only the missing verdict is requested again


# --- a cache that cannot be written --------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each write to a cache fail as on a full disk. Return the sizes of the writes."""
    sizes: list[int] = []

    def put(self: object, entries: dict[bytes, Entry]) -> None:
        sizes.append(len(entries))
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(verdict_cache.Verdicts, "put", put)
    return sizes


def test_a_full_disk_loses_no_verdict(
    tmp_path: Path, full_disk: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with JudgeServer() as server:
        judge = OpenAIJudge("m", base_url=server.url, cache=tmp_path / "verdicts.db")
        assert asyncio.run(judge.judge(questions(20))) == [1] * 20
    assert full_disk
    assert "20 could not be written" in caplog.text
    assert "database or disk is full" in caplog.text
    assert judge.usage.cache_faults == 20


def test_the_work_for_unwritten_verdicts_is_linear(tmp_path: Path, full_disk: list[int]) -> None:
    """A file that cannot be written is not tried again with all verdicts at each new verdict."""
    count = 300

    async def put_all() -> None:
        cache = BackgroundCache(check_cache(tmp_path / "verdicts.db"))
        for i in range(count):
            cache.put(cache_key(i=i), Entry(1))
            await asyncio.sleep(0)
            await cache.get([])  # waits for the thread
        await cache.close()
        assert cache.faults.unwritten == count

    asyncio.run(put_all())
    assert len(full_disk) <= 12
    assert sum(full_disk) <= 4 * count


def test_verdicts_are_written_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdicts.db"
    put = verdict_cache.Verdicts.put
    failures = iter([sqlite3.OperationalError("database or disk is full")] * 3)

    def put_later(self: verdict_cache.Verdicts, entries: dict[bytes, Entry]) -> None:
        for failure in failures:
            raise failure
        put(self, entries)

    monkeypatch.setattr(verdict_cache.Verdicts, "put", put_later)

    async def put_all() -> None:
        cache = BackgroundCache(check_cache(path))
        for i in range(40):
            cache.put(cache_key(i=i), Entry(1))
            await cache.get([])
        assert len(await cache.get(cache_key(i=i) for i in range(40))) > 30
        await cache.close()
        assert cache.faults.unwritten == 0

    asyncio.run(put_all())
    with closing(Verdicts(str(path))) as store:
        assert len(dict(store.get(cache_key(i=i) for i in range(40)))) == 40

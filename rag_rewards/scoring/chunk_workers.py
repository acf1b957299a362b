"""Scoring of the chunks of one reader in several processes, in order, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from itertools import accumulate, pairwise

import msgspec

from rag_rewards.errors import RagRewardsError
from rag_rewards.rows import Chunk, ScoredChunk
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.worker_pool import WorkerPool
from rag_rewards.scoring.worker_process import ScorerArguments, answer_messages


def score_in_workers(
    scorer: Scorer, chunks: Iterable[Chunk], workers: int
) -> Generator[ScoredChunk, None, None]:
    """Yield every chunk with its scores, in order.

    Each worker builds the scorer's recipe again. Raises UsageError when the scorer has models, or a
    recipe that is not plain data.
    """
    pool = WorkerPool(__name__, ScorerArguments.of(scorer), workers)
    try:
        yield from _score_in_order(pool, chunks, limit=2 * workers)
    finally:
        pool.close()


def _score_in_order(
    pool: WorkerPool, chunks: Iterable[Chunk], limit: int
) -> Generator[ScoredChunk, None, None]:
    """Yield the scored chunks in order, with at most `limit` chunks in work.

    An error of the reader is raised after all chunks before it.
    """
    futures: deque[Future[ScoredChunk]] = deque()
    source = iter(chunks)
    reader_error: RagRewardsError | None = None
    while True:
        try:
            chunk = next(source, None)
        except RagRewardsError as error:
            reader_error, chunk = error, None
        if chunk is None:
            break
        futures.append(pool.submit(_score, pool, chunk))
        if len(futures) > limit:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()
    if reader_error is not None:
        raise reader_error


def _score(pool: WorkerPool, chunk: Chunk) -> ScoredChunk:
    head, output = pool.ask(f"lines {chunk.numbers[0]} to {chunk.numbers[-1]}", *_message_of(chunk))
    result = msgspec.msgpack.decode(head, type=ScoredChunk)
    result.output = output
    return result


class _Head(msgspec.Struct, frozen=True):
    """A chunk without its lines, and the end of each line in the body."""

    chunk: Chunk
    ends: list[int]


def _message_of(chunk: Chunk) -> tuple[_Head, bytes]:
    ends = list(accumulate(map(len, chunk.lines)))
    return _Head(msgspec.structs.replace(chunk, lines=[]), ends), b"".join(chunk.lines)


def _chunk_of(head: bytes, body: bytes) -> Chunk:
    decoded = msgspec.msgpack.decode(head, type=_Head)
    lines = [body[start:end] for start, end in pairwise([0, *decoded.ends])]
    return msgspec.structs.replace(decoded.chunk, lines=lines)


def main() -> None:
    """Score chunks as a worker process."""
    answer_messages(_scoring)


def _scoring(arguments: bytes) -> Callable[[bytes, bytes], tuple[ScoredChunk, bytes]]:
    scorer = msgspec.msgpack.decode(arguments, type=ScorerArguments).load()

    def answer(head: bytes, body: bytes) -> tuple[ScoredChunk, bytes]:
        result = scorer.score_rows(_chunk_of(head, body))
        output, result.output = result.output, b""
        return result, output

    return answer

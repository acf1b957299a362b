"""Scoring of the chunks of one reader in several processes, in order, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from queue import SimpleQueue

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.io.worker_process import ScorerArguments, WorkerProcess, answer_messages
from rag_rewards.rows import Chunk, ScoredChunk
from rag_rewards.scorer import Scorer


def score_in_workers(
    scorer: Scorer, chunks: Iterable[Chunk], workers: int
) -> Generator[ScoredChunk, None, None]:
    """Yield every chunk with its scores, in order.

    Each worker builds the scorer's recipe again. Raises UsageError when the scorer has models, or a
    recipe that is not plain data.
    """
    pool = _Pool(ScorerArguments.of(scorer), workers)
    try:
        yield from pool.map(chunks)
    finally:
        pool.close()


class _Pool:
    """Worker processes, each with a thread that writes a chunk, waits, and reads the result."""

    def __init__(self, arguments: ScorerArguments, workers: int) -> None:
        self._workers = [WorkerProcess(__name__, arguments) for _ in range(workers)]
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers)

    def map(self, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        futures: deque[Future[ScoredChunk]] = deque()
        for chunk in chunks:
            futures.append(self._threads.submit(self._score, chunk))
            if len(futures) > 2 * len(self._workers):
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()

    def _score(self, chunk: Chunk) -> ScoredChunk:
        worker = self._idle.get()
        try:
            answer = worker.ask(*_message_of(chunk))
        finally:
            self._idle.put(worker)
        if answer is None:
            raise BackendError(
                f"a scoring worker ended (exit code {worker.exit_code()}) at lines "
                f"{chunk.numbers[0]} to {chunk.numbers[-1]}: use fewer workers"
            )
        head, output = answer
        result = msgspec.msgpack.decode(head, type=ScoredChunk)
        result.output = output
        return result

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()


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

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


ATTEMPTS = 3
"""Number of processes that try to score one chunk before the run ends."""


class _Pool:
    """Worker processes, each with a thread that writes a chunk, waits, and reads the result.

    A chunk whose process ends is scored again by a new process, `ATTEMPTS` times in all.
    """

    def __init__(self, arguments: ScorerArguments, workers: int) -> None:
        self._arguments = arguments
        self._workers: set[WorkerProcess] = set()
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._limit = 2 * workers
        self._is_closed = False
        for _ in range(workers):
            self._idle.put(self._start())
        self._threads = ThreadPoolExecutor(workers)

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(__name__, self._arguments)
        self._workers.add(worker)
        return worker

    def map(self, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        futures: deque[Future[ScoredChunk]] = deque()
        for chunk in chunks:
            futures.append(self._threads.submit(self._score, chunk))
            if len(futures) > self._limit:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()

    def _score(self, chunk: Chunk) -> ScoredChunk:
        message = _message_of(chunk)
        exit_code = 0
        for _ in range(ATTEMPTS):
            worker = self._idle.get()
            if self._is_closed:
                self._idle.put(worker)
                break
            if (answer := worker.ask(*message)) is not None:
                self._idle.put(worker)
                head, output = answer
                result = msgspec.msgpack.decode(head, type=ScoredChunk)
                result.output = output
                return result
            exit_code = self._replace(worker)
        raise BackendError(
            f"{ATTEMPTS} scoring workers ended (the last with exit code {exit_code}) at lines "
            f"{chunk.numbers[0]} to {chunk.numbers[-1]}: use fewer workers"
        )

    def _replace(self, worker: WorkerProcess) -> int:
        """Start a process in place of one that has ended, and return its exit code."""
        worker.kill()
        self._workers.discard(worker)
        exit_code = worker.exit_code()
        worker.close()
        self._idle.put(worker if self._is_closed else self._start())
        return exit_code

    def close(self) -> None:
        self._is_closed = True
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
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

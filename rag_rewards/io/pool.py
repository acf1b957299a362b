"""Scoring in several processes, in order, with bounded memory.

Workers are new interpreters, each connected by two pipes. An interrupt of the terminal reaches
only the parent. A message consists of a head in MessagePack and a body, which is the unchanged
bytes of the rows, so that nothing is pickled and no row is encoded for the transfer.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from queue import SimpleQueue
from typing import IO

import msgspec

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from rag_rewards.errors import BackendError, OptionError
from rag_rewards.loading import RecipeSpec
from rag_rewards.rows import Chunk, ScoredChunk
from rag_rewards.scorer import Scorer

_LENGTHS = struct.Struct("<QQ")
# By default glibc returns the memory of each chunk to the system. Keeping it avoids seven of eight
# page faults.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
_START = """
import sys
sys.path[:] = sys.argv[1:]  # the parent's path, without the current folder
from rag_rewards.io.pool import main
main()
"""


class _Task(msgspec.Struct, frozen=True):
    """The arguments of a worker's scorer."""

    recipe: RecipeSpec
    keep_evidence: bool
    for_parquet: bool


def score_in_workers(
    scorer: Scorer, chunks: Iterable[Chunk], workers: int
) -> Generator[ScoredChunk, None, None]:
    """Yield every chunk with its scores, in order.

    Each worker builds the scorer's recipe again. Raises UsageError when the scorer has models, or a
    recipe that is not plain data.
    """
    if scorer.has_models:
        raise OptionError("{workers} must be 1 when models are set: one process calls them")
    if scorer.spec is None:
        raise OptionError(
            "{workers} must be 1 for a recipe that is given as an object: worker processes load "
            "it by its name, or by module:name"
        )
    task = _Task(scorer.spec, scorer.keep_evidence, scorer.for_parquet)
    pool = _Pool(task, workers)
    try:
        yield from pool.map(chunks)
    finally:
        pool.close()


class _Pool:
    """Worker processes, each with a thread that writes a chunk, waits, and reads the result."""

    def __init__(self, task: _Task, workers: int) -> None:
        self._workers = workers
        self._processes = [_start(task) for _ in range(workers)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(workers)

    def map(self, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        futures: deque[Future[ScoredChunk]] = deque()
        for chunk in chunks:
            futures.append(self._threads.submit(self._score, chunk))
            if len(futures) > 2 * self._workers:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()

    def _score(self, chunk: Chunk) -> ScoredChunk:
        process = self._idle.get()
        try:
            _send_chunk(_pipe(process.stdin), chunk)
            answer = _receive(_pipe(process.stdout))
        except OSError:
            answer = None
        finally:
            self._idle.put(process)
        if answer is None:
            raise BackendError(
                f"a scoring worker ended (exit code {process.wait()}) at lines "
                f"{chunk.numbers[0]} to {chunk.numbers[-1]}: use fewer workers"
            )
        head, output = answer
        result = msgspec.msgpack.decode(head, type=ScoredChunk)
        result.output = output
        return result

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()


def _start(task: _Task) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(  # noqa: S603 (this interpreter, with code of this file)
        [sys.executable, "-c", _START, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | _KEEP_MEMORY,
    )
    _widen(process)
    with contextlib.suppress(BrokenPipeError):  # a worker that ended fails at its first chunk
        _send(_pipe(process.stdin), task)
    return process


def _widen(process: subprocess.Popen[bytes]) -> None:
    """Enlarge the pipes to the size of a chunk, where the system permits, to reduce waiting."""
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None) if fcntl else None
    if set_size is None:
        return
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            fcntl.fcntl(_pipe(stream), set_size, 1 << 20)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise BackendError("a scoring worker has no pipe")
    return stream


def _send(stream: IO[bytes], head: msgspec.Struct, body: bytes = b"") -> None:
    encoded = msgspec.msgpack.encode(head)
    stream.write(_LENGTHS.pack(len(encoded), len(body)))
    stream.write(encoded)
    stream.write(body)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Read a message. None when the other process has ended."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    of_head, of_body = _LENGTHS.unpack(lengths)
    head, body = stream.read(of_head), stream.read(of_body)
    return (head, body) if (len(head), len(body)) == (of_head, of_body) else None


class _Head(msgspec.Struct, frozen=True):
    """A chunk without its lines, and the end of each line in the body."""

    chunk: Chunk
    ends: list[int]


def _send_chunk(stream: IO[bytes], chunk: Chunk) -> None:
    ends = list(accumulate(map(len, chunk.lines)))
    _send(stream, _Head(msgspec.structs.replace(chunk, lines=[]), ends), b"".join(chunk.lines))


def _chunk_of(head: bytes, body: bytes) -> Chunk:
    decoded = msgspec.msgpack.decode(head, type=_Head)
    lines = [body[start:end] for start, end in pairwise([0, *decoded.ends])]
    return msgspec.structs.replace(decoded.chunk, lines=lines)


def main() -> None:
    """Score chunks as a worker process, until the parent closes the pipe or ends."""
    with contextlib.suppress(BrokenPipeError):
        _work()


def _work() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    message = _receive(source)
    if message is None:
        return
    task = msgspec.msgpack.decode(message[0], type=_Task)
    scorer = Scorer.load(
        task.recipe, keep_evidence=task.keep_evidence, for_parquet=task.for_parquet
    )
    while (message := _receive(source)) is not None:
        result = scorer.score_rows(_chunk_of(*message))
        output, result.output = result.output, b""
        _send(sink, result, output)


if __name__ == "__main__":
    main()

"""Scoring in several processes, in order, with bounded memory.

Workers are fresh interpreters on the other side of two pipes; an interrupt of the terminal
reaches the parent alone. A message is a head, MessagePack, and a body, the bytes of the rows as
they are: nothing is pickled, and no row is encoded on its way.
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

from rag_rewards.errors import BackendError
from rag_rewards.scoring import Chunk, Plan, Result, Scorer

_LENGTHS = struct.Struct("<QQ")
# glibc gives the memory of each chunk back and asks for it anew; kept, it is 8 times fewer faults.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
_START = """
import sys
sys.path[:] = sys.argv[1:]  # the parent's: a module in the current folder is not ours
from rag_rewards.workers import main
main()
"""


def score_chunks(
    plan: Plan, chunks: Iterable[Chunk], workers: int, scorer: Scorer | None = None
) -> Generator[Result, None, None]:
    """The result of every chunk, in order. A `scorer` that asks models works in this process."""
    if workers == 1 or scorer is not None:
        scorer = scorer or Scorer(plan)
        for chunk in chunks:
            yield scorer.score(chunk)
        return
    pool = _Pool(plan, workers)
    try:
        yield from pool.map(chunks)
    finally:
        pool.close()


class _Pool:
    """One thread per worker process: it writes a chunk, waits, reads the result."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self._workers = workers
        self._processes = [_start(plan) for _ in range(workers)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(workers)

    def map(self, chunks: Iterable[Chunk]) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        for chunk in chunks:
            waiting.append(self._threads.submit(self._score, chunk))
            if len(waiting) > 2 * self._workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _score(self, chunk: Chunk) -> Result:
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
                f"{chunk.numbers[0]} to {chunk.numbers[-1]}; try fewer --workers"
            )
        head, output = answer
        result = msgspec.msgpack.decode(head, type=Result)
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


def _start(plan: Plan) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(  # noqa: S603 (this interpreter, with code of this file)
        [sys.executable, "-c", _START, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | _KEEP_MEMORY,
    )
    _widen(process)
    with contextlib.suppress(BrokenPipeError):  # it ended at once: its first chunk will say so
        _send(_pipe(process.stdin), plan)
    return process


def _widen(process: subprocess.Popen[bytes]) -> None:
    """Room for a chunk in each pipe, where the system allows it: fewer waits on both sides."""
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
    """Head and body, None where the other side is gone."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    of_head, of_body = _LENGTHS.unpack(lengths)
    head, body = stream.read(of_head), stream.read(of_body)
    return (head, body) if (len(head), len(body)) == (of_head, of_body) else None


class _Head(msgspec.Struct, frozen=True):
    """A chunk without its lines, and where each of them ends in the body."""

    chunk: Chunk
    ends: list[int]


def _send_chunk(stream: IO[bytes], chunk: Chunk) -> None:
    ends = list(accumulate(map(len, chunk.lines)))
    _send(stream, _Head(msgspec.structs.replace(chunk, lines=[]), ends), b"".join(chunk.lines))


def _chunk_of(head: bytes, body: bytes) -> Chunk:
    known = msgspec.msgpack.decode(head, type=_Head)
    lines = [body[start:end] for start, end in pairwise([0, *known.ends])]
    return msgspec.structs.replace(known.chunk, lines=lines)


def main() -> None:
    """A worker: a plan, then chunks, until the parent closes the pipe or is gone."""
    with contextlib.suppress(BrokenPipeError):
        _work()


def _work() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    message = _receive(source)
    if message is None:
        return
    scorer = Scorer(msgspec.msgpack.decode(message[0], type=Plan))
    while (message := _receive(source)) is not None:
        result = scorer.score(_chunk_of(*message))
        output, result.output = result.output, b""
        _send(sink, result, output)


if __name__ == "__main__":
    main()

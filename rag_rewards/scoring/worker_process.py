"""Worker processes that answer messages of their parent.

Workers are new interpreters, each connected by two pipes. An interrupt of the terminal reaches
only the parent. A message consists of a head in MessagePack and a body of bytes, so that nothing
is pickled. A worker ends when its parent ends, also in the middle of its work.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO

import msgspec

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from rag_rewards.errors import BackendError, OptionError
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.ray_cluster import KEEP_MEMORY

Message = tuple[bytes, bytes]
"""The encoded head and the body of a message."""

_LENGTHS = struct.Struct("<QQ")
_START = """
import sys
sys.path[:] = sys.argv[2:]  # the parent's path, without the current folder
from importlib import import_module
import_module(sys.argv[1]).main()
"""


class WorkerEndedError(Exception):
    """A worker has ended before its answer."""


class ScorerArguments(msgspec.Struct, frozen=True):
    """What a worker needs to load the scorer of its parent."""

    recipe: RecipeSpec
    keep_evidence: bool
    for_parquet: bool
    models: ModelOptions = ModelOptions()

    @classmethod
    def of(cls, scorer: Scorer) -> ScorerArguments:
        """Return the arguments of a scorer.

        Raises UsageError when the scorer has models, or a recipe that is not plain data.
        """
        if scorer.has_models:
            raise OptionError("{workers} must be 1 when models are set: one process calls them")
        if scorer.spec is None:
            raise OptionError(
                "{workers} must be 1 for a recipe that is given as an object: worker processes "
                "load it by its name, or by module:name"
            )
        return cls(scorer.spec, scorer.keep_evidence, scorer.for_parquet)

    def load(self) -> Scorer:
        """Load the scorer."""
        return Scorer.load(
            self.recipe,
            models=self.models,
            keep_evidence=self.keep_evidence,
            for_parquet=self.for_parquet,
        )


class WorkerProcess:
    """A process that runs `main` of a module, which calls `answer_messages`."""

    def __init__(self, module: str, arguments: msgspec.Struct) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (this interpreter, with code of this file)
            [sys.executable, "-c", _START, module, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | KEEP_MEMORY,
        )
        self._widen()
        with contextlib.suppress(BrokenPipeError):  # a worker that ended fails at its next message
            _send(_pipe(self._process.stdin), arguments)

    def ask(self, head: msgspec.Struct, body: bytes = b"") -> Message:
        """Send a message and return the answer. Raises WorkerEndedError if there is none."""
        try:
            _send(_pipe(self._process.stdin), head, body)
            answer = _receive(_pipe(self._process.stdout))
        except OSError:
            answer = None
        if answer is None:
            raise WorkerEndedError
        return answer

    def exit_code(self) -> int:
        """Wait for the end of the process."""
        return self._process.wait()

    def kill(self) -> None:
        """End the process. `ask` raises WorkerEndedError in a thread that waits for an answer."""
        self._process.kill()

    def close(self) -> None:
        """Release a process that was killed, when no thread waits for it."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()

    def _widen(self) -> None:
        """Enlarge the pipes to the size of a chunk, where the system permits."""
        set_size = getattr(fcntl, "F_SETPIPE_SZ", None) if fcntl else None
        if set_size is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                fcntl.fcntl(_pipe(stream), set_size, 1 << 20)


def answer_messages(
    start: Callable[[bytes], Callable[[bytes, bytes], tuple[msgspec.Struct, bytes]]],
) -> None:
    """Answer the messages of the parent as a worker process, until the parent ends.

    `start` receives the arguments of the worker and returns the function that answers a message.
    """
    answers = _take_standard_output()
    messages: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_read_messages, args=(messages,), daemon=True).start()
    answer = start(messages.get()[0])
    with contextlib.suppress(BrokenPipeError):
        while True:
            _send(answers, *answer(*messages.get()))


def _take_standard_output() -> IO[bytes]:
    """Return the pipe to the parent. What a reward prints goes to standard error instead."""
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


def _read_messages(messages: SimpleQueue[Message]) -> None:
    """Read messages in a thread, which ends the process when its parent has ended.

    The stream belongs to this thread. At its end, Python closes sys.stdin, and would fail while the
    thread reads from it.
    """
    source = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 (as long as the process)
    with contextlib.suppress(OSError):
        while (message := _receive(source)) is not None:
            messages.put(message)
    os._exit(0)


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


def _receive(stream: IO[bytes]) -> Message | None:
    """Read a message. None when the other process has ended."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    of_head, of_body = _LENGTHS.unpack(lengths)
    head, body = stream.read(of_head), stream.read(of_body)
    return (head, body) if (len(head), len(body)) == (of_head, of_body) else None

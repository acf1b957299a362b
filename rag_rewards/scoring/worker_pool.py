"""A pool of worker processes, each used by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.scoring.worker_process import Message, WorkerEndedError, WorkerProcess

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 3
"""Number of processes that try to answer one message before the run ends."""


class WorkerPool:
    """Worker processes that run `main` of a module, with as many threads that wait for answers."""

    def __init__(self, module: str, arguments: msgspec.Struct, workers: int) -> None:
        self._module = module
        self._arguments = arguments
        self._workers: set[WorkerProcess] = set()
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._end = ""
        """The reason why no message is sent any more."""
        self._threads = ThreadPoolExecutor(workers)
        try:
            for _ in range(workers):
                self._idle.put(self._start())
        except BackendError:
            self.close()
            raise

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> Future[T]:
        """Call a function, which may call `ask`, in a thread of the pool."""
        return self._threads.submit(function, *arguments, **options)

    def ask(self, lines: str, head: msgspec.Struct, body: bytes = b"") -> Message:
        """Send a message to an idle worker and return the answer. See `use`."""
        return self.use(lines, lambda worker: worker.ask(head, body))

    def use(self, lines: str, function: Callable[[WorkerProcess], T]) -> T:
        """Call a function with an idle worker, to which it sends messages.

        Another process takes the place of a worker that ends, and the function is called again.
        Raises BackendError, which names the `lines`, when `ATTEMPTS` processes have ended, and when
        no process can be started.
        """
        exit_code = 0
        for _ in range(ATTEMPTS):
            worker = self._idle.get()
            if self._end:
                self._idle.put(worker)
                raise BackendError(self._end)
            try:
                result = function(worker)
            except WorkerEndedError:
                exit_code = self._replace(worker)
                continue
            except BaseException:
                self._idle.put(worker)
                raise
            self._idle.put(worker)
            return result
        raise BackendError(
            f"{ATTEMPTS} scoring workers ended (the last with exit code {exit_code}) at {lines}: "
            "use fewer workers"
        )

    def close(self) -> None:
        """End all workers, also while they score."""
        self._end = self._end or "the scoring workers were ended"
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
            worker.close()

    def _start(self) -> WorkerProcess:
        try:
            worker = WorkerProcess(self._module, self._arguments)
        except OSError as error:
            self._end = f"cannot start a scoring worker ({error.strerror}): use fewer workers"
            raise BackendError(self._end) from None
        self._workers.add(worker)
        return worker

    def _replace(self, worker: WorkerProcess) -> int:
        """Start a process in place of one that has ended, and return its exit code."""
        worker.kill()
        self._workers.discard(worker)
        exit_code = worker.exit_code()
        worker.close()
        try:
            if not self._end:
                worker = self._start()
        finally:  # another thread can wait for a worker
            self._idle.put(worker)
        return exit_code

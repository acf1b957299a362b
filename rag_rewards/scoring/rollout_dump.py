"""Dumps of rollouts: every rollout that a trainer scores, as a scored row in a file.

    reward = RagReward("arena", dump="rollouts.jsonl")

The rows contain the gold data, the training step, the components and the evidence, so that
`report`, `explain`, `evaluate`, `replay` and `score` read them, also during the training.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from logging import LogRecord
from logging.handlers import QueueListener
from pathlib import Path
from queue import Full, Queue
from typing import Any, Protocol

from rag_rewards.errors import OptionError, RolloutError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import Groups
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.scoring.dump_rows import ScoredBatch, dumped_rows, with_missing
from rag_rewards.scoring.rotating_file import RotatingLines, check_path
from rag_rewards.scoring.run_id import new_run_id
from rag_rewards.signature import signature_of

log = logging.getLogger("rag_rewards")

MAX_WAITING = 4096
"""Rollouts that wait for a slow disk. Further ones are left out of the dump."""
EXIT_SECONDS = 10.0
"""Time that a process waits at its end for the rest of its rows."""


class DumpedScorer(Protocol):
    """What a dump reads from a `Scorer`."""

    reward: Any
    models: Models

    @property
    def scope(self) -> str: ...
    @property
    def fingerprints(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class DumpOptions:
    """A dump of the scored rollouts, with the same names in Python and on the command line."""

    dump: str | None = None
    """Write every scored rollout to this .jsonl file, as a scored row with its evidence."""
    dump_mb: int = 256
    """Maximum size of a file of the dump, in MiB."""
    dump_files: int = 8
    """Maximum number of files of the dump for each process. The oldest one is removed."""

    def open(self) -> RolloutDump | None:
        """Return the dump, or None if there is no file. Raises OptionError for invalid options."""
        if self.dump is None:
            return None
        return RolloutDump(self.dump, max_mb=self.dump_mb, max_files=self.dump_files)


class RolloutDump:
    """Writes scored rollouts to files, in a thread. It never ends or delays a training.

    path       file of a single process, such as `rollouts.jsonl`. A full file becomes
               `rollouts.1.jsonl`. Each of several processes has files of its own, such as
               `rollouts.rank1.jsonl`.
    max_mb     size of a file in MiB
    max_files  number of files of each process; the oldest one is removed

    If rows cannot be written (a full disk, a lost folder), one warning is logged, and the training
    goes on. The next row that can be written has the number of missing rollouts in the field
    `missing_before`. Rows are complete in the file after each batch. A copy in another process,
    by pickle or fork, writes a file of its own. The rows of a run have the same `run`, which keeps
    the groups of several runs apart.

    Raises OptionError for an invalid path, size or number.
    """

    def __init__(self, path: str | Path, *, max_mb: float = 256, max_files: int = 8) -> None:
        self.path, self.max_mb, self.max_files = Path(path).absolute(), max_mb, max_files
        self._run_id = new_run_id()
        if not max_mb > 0:
            raise OptionError("{dump_mb} must be above 0, found {value}", value=max_mb)
        if max_files < 1:
            raise OptionError("{dump_files} must be at least 1, found {value}", value=max_files)
        if fault := check_path(self.path):
            raise OptionError("{dump}: {fault}", fault=fault)
        self._writers: dict[int, _Writer] = {}
        """The writer of each process id: a fork has no thread, so it needs a writer of its own."""

    def add(
        self,
        scorer: DumpedScorer,
        rollouts: Sequence[Rollout | RolloutError],
        rows: Sequence[Rollout | RolloutError],
        groups: Groups | None,
        results: Sequence[ScoreOrError],
    ) -> None:
        """Write the rollouts of a batch soon. Errors are logged and never raised.

        `rows` are the rollouts with their evidence, or the errors of models.
        """
        try:
            writer = self._own_writer()
            try:
                if rollouts:
                    writer.put(_batch(scorer, rollouts, rows, groups, results))
            except Exception as error:
                writer.lose(len(rollouts), error)
        except Exception as error:
            log.debug("a batch is not in the dump: %s", error)

    def flush(self, timeout: float = EXIT_SECONDS) -> bool:
        """Wait until all rows are written. Return False if this takes longer, in seconds."""
        writer = self._writers.get(os.getpid())
        return writer is None or writer.wait(timeout)

    @property
    def missing(self) -> int:
        """The number of rollouts of this process that could not be written."""
        writer = self._writers.get(os.getpid())
        return 0 if writer is None else writer.missing

    def _own_writer(self) -> _Writer:
        """Return the writer of this process. Threads that call this at once get the same one."""
        pid = os.getpid()
        if (writer := self._writers.get(pid)) is not None:
            return writer
        max_bytes = max(int(self.max_mb * (1 << 20)), 1)
        # `setdefault` is atomic. A lock could be held by another thread while a process forks.
        own = _Writer(self.path, max_bytes, self.max_files, self._run_id)
        writer = self._writers.setdefault(pid, own)
        if writer is own:
            writer.start()
            atexit.register(_flush_at_exit, weakref.ref(self))
            for other in set(self._writers) - {pid}:
                del self._writers[other]
        return writer

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (str(self.path), self.max_mb, self.max_files, self._run_id))

    def __repr__(self) -> str:
        return f"RolloutDump({str(self.path)!r})"


def split_dump(options: Mapping[str, Any]) -> tuple[dict[str, Any], RolloutDump | None]:
    """Divide a flat mapping into the other options and the dump that it describes.

    >>> split_dump({"recipe": "arena", "dump": "rollouts.jsonl"})[0]
    {'recipe': 'arena'}
    """
    names = DumpOptions.__dataclass_fields__
    rest = {key: value for key, value in options.items() if key not in names}
    own = {name: options[name] for name in names if options.get(name) is not None}
    if isinstance(own.get("dump"), RolloutDump):
        return rest, own["dump"]
    return rest, DumpOptions(**own).open()


def _batch(
    scorer: DumpedScorer,
    rollouts: Sequence[Rollout | RolloutError],
    rows: Sequence[Rollout | RolloutError],
    groups: Groups | None,
    results: Sequence[ScoreOrError],
) -> ScoredBatch:
    """Return the rows with their results. Groups of one rollout can be parts of larger groups."""
    is_complete = scorer.scope == "group" or any(len(group) > 1 for group in groups or ())
    return ScoredBatch(
        [_rollout_or_none(*pair) for pair in zip(rows, rollouts, strict=True)],
        results,
        groups if is_complete else None,
        signature_of(scorer.reward, _lasting_fingerprints(scorer)),
        scorer.reward.component_names,
    )


def _rollout_or_none(*rows: Rollout | RolloutError) -> Rollout | None:
    return next((row for row in rows if isinstance(row, Rollout)), None)


def _lasting_fingerprints(scorer: DumpedScorer) -> Mapping[str, str]:
    """Return the fingerprints without the weights in training, whose hash takes too long.

    The rows state the version of these weights in `weight_version`.
    """
    if getattr(scorer.models.policy, "weight_version", None) is None:
        return scorer.fingerprints
    return replace(scorer.models, policy=None).fingerprints | {"policy": "weight_version"}


class _Batches(Queue[LogRecord]):
    """The batches that wait for the disk. The size of the queue is their number of rollouts."""

    def _qsize(self) -> int:
        return sum(len(record.msg) for record in self.queue)


class _Writer(RotatingLines):
    """Writes the batches of one process to its file, in the thread of a listener."""

    def __init__(self, path: Path, max_bytes: int, max_files: int, run_id: str) -> None:
        super().__init__(path, max_bytes, max_files, run_id)
        self.missing = 0
        self._pending = 0
        """Missing rollouts that no row states yet."""
        self._counting = threading.Lock()
        self._count = 0
        self._batches = _Batches(MAX_WAITING)
        self._listener = QueueListener(self._batches, self)
        identity = f"{socket.gethostname()} {os.getpid()} {time.time_ns()} {id(self)}"
        self._process = blake2b(identity.encode(), digest_size=4).hexdigest()

    def start(self) -> None:
        self._listener.start()

    def put(self, batch: ScoredBatch) -> None:
        try:
            self._batches.put_nowait(logging.makeLogRecord({"msg": batch}))
        except Full:
            self.lose(len(batch), "the disk is too slow")

    def wait(self, timeout: float) -> bool:
        """Wait until all batches are written. Return False if this takes longer, in seconds."""
        with self._batches.all_tasks_done:
            done = self._batches.all_tasks_done
            return done.wait_for(lambda: not self._batches.unfinished_tasks, timeout)

    def handle(self, record: LogRecord) -> bool:
        """Write a batch, as many groups at once as a file can contain.

        No lock is held, so that a slow disk does not delay the end of the process.
        """
        batch: Any = record.msg
        first, self._count = self._count, self._count + len(batch)
        try:
            units = dumped_rows(batch, self.run_id, self._process, first)
        except Exception as error:
            self.lose(len(batch), error)
            return False
        if left_out := len(batch) - sum(map(len, units)):
            self.lose(left_out, "no valid row")
        for rows in _blocks(units, self.maxBytes):
            with self._counting:
                pending, self._pending = self._pending, 0
            lines = b"".join([with_missing(rows[0], pending), *rows[1:]])
            vars(record).update(msg=lines, rows=len(rows), pending=pending)
            self.emit(record)
        return True

    def handleError(self, record: LogRecord) -> None:
        """Count the rows that cannot be written, with those that they would have stated."""
        error = sys.exc_info()[1]
        with self._counting:
            self._pending += vars(record)["pending"]
        self.lose(vars(record)["rows"], getattr(error, "strerror", None) or error)

    def lose(self, rows: int, reason: object) -> None:
        with self._counting:
            is_first = not self.missing
            self.missing += rows
            self._pending += rows
        if is_first:
            log.warning(
                "rollouts are missing in the dump %s (%s): the training goes on, and the next row "
                "states their number in `missing_before`",
                self.baseFilename,
                reason,
            )


def _blocks(units: Iterable[Sequence[bytes]], max_bytes: int) -> Iterator[list[bytes]]:
    """Yield the rows of units, as many units at once as a file can contain."""
    block: list[bytes] = []
    size = 0
    for unit in units:
        length = sum(map(len, unit))
        if block and size + length > max_bytes:
            yield block
            block, size = [], 0
        block += unit
        size += length
    if block:
        yield block


def _flush_at_exit(dump: weakref.ref[RolloutDump]) -> None:
    if (alive := dump()) is not None:
        alive.flush()


def _rebuild(path: str, max_mb: float, max_files: int, run_id: str) -> RolloutDump:
    """Return a copy of a dump, which belongs to the same run."""
    dump = RolloutDump(path, max_mb=max_mb, max_files=max_files)
    dump._run_id = run_id
    return dump

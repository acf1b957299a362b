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
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from rag_rewards.errors import OptionError, RolloutError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import Groups
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.scoring.dump_rows import Origin, ScoredBatch, dumped_rows, with_missing
from rag_rewards.scoring.rotating_file import RotatingFile, check_path
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
                writer.put(_batch(scorer, rollouts, rows, groups, results))
            except Exception as error:
                writer.lose(len(rollouts), error)
        except Exception as error:
            log.debug("a batch is not in the dump: %s", error)

    def flush(self, timeout: float = EXIT_SECONDS) -> bool:
        """Wait until all rows are written. Return False if this takes longer, in seconds."""
        writer = self._writers.get(os.getpid())
        return writer is None or writer.flush(timeout)

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
        own = _Writer(RotatingFile(self.path, max_bytes, self.max_files, self._run_id))
        writer = self._writers.setdefault(pid, own)
        if writer is own:
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


class _Writer:
    """The thread of one process that writes batches to its file."""

    def __init__(self, file: RotatingFile) -> None:
        self.missing = 0
        self._file = file
        self._unmarked = 0
        """Missing rollouts that no row states yet."""
        self._has_warned = False
        self._count = 0
        self._batches: list[ScoredBatch] = []
        self._waiting = 0
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        identity = f"{socket.gethostname()} {os.getpid()} {time.time_ns()} {id(self)}"
        self._source = blake2b(identity.encode(), digest_size=4).hexdigest()

    def put(self, batch: ScoredBatch) -> None:
        with self._condition:
            if self._waiting and self._waiting + len(batch) > MAX_WAITING:
                self.lose(len(batch), "the disk is too slow")
                return
            self._batches.append(batch)
            self._waiting += len(batch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rag-dump", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def flush(self, timeout: float) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: not self._waiting, timeout)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._batches)
                batches, self._batches = self._batches, []
            try:
                self._write(self._units(batches))
            except Exception as error:  # the thread must live, and the training must go on
                self.lose(0, error)
            with self._condition:
                self._waiting -= sum(map(len, batches))
                self._condition.notify_all()

    def _units(self, batches: Sequence[ScoredBatch]) -> list[list[bytes]]:
        """Return the rows of batches. The rows of a group are in one unit."""
        units: list[list[bytes]] = []
        for batch in batches:
            try:
                origin = Origin(self._file.run_id, self._source, self._count)
                rows = dumped_rows(batch, origin)
            except Exception as error:
                self.lose(len(batch), error)
            else:
                units += rows
                if left_out := len(batch) - sum(map(len, rows)):
                    self.lose(left_out, "no valid row")
            self._count += len(batch)
        return units

    def _write(self, units: Sequence[Sequence[bytes]]) -> None:
        """Append the units, as many at once as a file can contain."""
        block: list[bytes] = []
        size = 0
        for unit in units:
            length = sum(map(len, unit))
            if block and size + length > self._file.max_bytes:
                self._append(block)
                block, size = [], 0
            block += unit
            size += length
        self._append(block)

    def _append(self, rows: list[bytes]) -> None:
        if not rows:
            return
        marked = self._unmarked
        try:
            self._file.append(b"".join([with_missing(rows[0], marked), *rows[1:]]))
        except OSError as error:
            self.lose(len(rows), error.strerror or error)
        else:
            with self._condition:
                self._unmarked -= marked

    def lose(self, rows: int, reason: object) -> None:
        with self._condition:
            self.missing += rows
            self._unmarked += rows
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            log.warning(
                "rollouts are missing in the dump %s (%s): the training goes on, and the next row "
                "states their number in `missing_before`",
                self._file.current or self._file.path,
                reason,
            )


def _flush_at_exit(dump: weakref.ref[RolloutDump]) -> None:
    if (alive := dump()) is not None:
        alive.flush()


def _rebuild(path: str, max_mb: float, max_files: int, run_id: str) -> RolloutDump:
    """Return a copy of a dump, which belongs to the same run."""
    dump = RolloutDump(path, max_mb=max_mb, max_files=max_files)
    dump._run_id = run_id
    return dump

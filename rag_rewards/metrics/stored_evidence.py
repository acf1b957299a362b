"""The evidence of an evaluation that is not complete, so that no model is called twice for it.

`OUT.evidence.jsonl` has one line with the settings and the files, and then one line for each batch
of rows. The lock of this file refuses a second run. A line that a killed run has not completed is
removed. With `resume`, the record `OUT.run.json` remains beside a complete output, so that the
same command can be repeated.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

import rag_rewards.errors as errors_module
from rag_rewards.errors import BackendError, RolloutError, UsageError, cannot_resume
from rag_rewards.evidence.usage import EvidenceUsage
from rag_rewards.io.compression import read_content
from rag_rewards.io.output import open_locked
from rag_rewards.rollout import Evidence
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.decoding import NOT_JSON
from rag_rewards.shards.run_folder import finished_record_of, write_synced
from rag_rewards.shards.run_settings import RunSettings

Gathered = Sequence[ScoredRow | RolloutError]


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evidence of a row, or its error as the name of its class, its message and its path."""

    evidence: Evidence | None = None
    error: tuple[str, str, str] | None = None

    @classmethod
    def of(cls, result: ScoredRow | RolloutError) -> _Result:
        if isinstance(result, RolloutError):
            return cls(error=(type(result).__name__, result.message, result.path))
        return cls(result.evidence)

    def add_to(self, row: ScoredRow) -> ScoredRow | RolloutError:
        if self.error is not None:
            name, message, path = self.error
            error: RolloutError = getattr(errors_module, name)(message, path)
            return error
        return row if self.evidence is None else row.with_evidence(self.evidence)


class _Batch(msgspec.Struct, frozen=True):
    """The evidence of a batch: its number, a checksum of its rows, and the work of the models."""

    number: int
    rows: int
    usage: EvidenceUsage
    results: list[_Result]


class _Head(msgspec.Struct, frozen=True):
    settings: RunSettings


class _Record(msgspec.Struct, frozen=True):
    """The record of a complete evaluation."""

    settings: RunSettings
    output_size: int


class _Number(msgspec.Struct, frozen=True):
    number: int


_HEAD = msgspec.json.Decoder(_Head)
_NUMBER = msgspec.json.Decoder(_Number)
_BATCH = msgspec.json.Decoder(_Batch)
T = TypeVar("T")


class StoredEvidence:
    """Gathers evidence, and stores it beside the output until the output is complete.

    With `resume`, the evidence of an earlier run is used again. A batch in which a model failed is
    not stored, so that the next run calls the model again.

    Raises UsageError if another run writes the file, and, with `resume`, if the earlier run had
    other settings or another input.
    """

    def __init__(self, output: str, settings: RunSettings, *, resume: bool) -> None:
        target = Path(os.path.realpath(output))
        self._path = target.with_name(target.name + ".evidence.jsonl")
        self._output = output
        self._target = target
        self._settings = settings
        self._leaves_record = resume
        try:
            self._file = open_locked(self._path, truncate=not resume)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from None
        self._earlier = self._path.open("rb")
        self._places: dict[int, int] = {}
        self._number = 0
        try:
            self._index()
        except BaseException:
            self.close()
            raise

    def _index(self) -> None:
        """Find the batches of an earlier run, and remove an incomplete line."""
        head = self._earlier.readline()
        if not head.endswith(b"\n"):
            self._file.truncate(0)
            self._append(_Head(self._settings))
            return
        self._settings.check(self._decoded(head, _HEAD).settings, self._output)
        place = self._earlier.tell()
        for line in iter(self._earlier.readline, b""):
            if not line.endswith(b"\n"):
                break
            self._places[self._decoded(line, _NUMBER).number] = place
            place += len(line)
        self._file.truncate(place)

    def _decoded(self, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(line)
        except NOT_JSON as error:
            raise cannot_resume(self._output, f"{self._path} is damaged ({error})") from None

    def gatherer(
        self, gather: Callable[[Sequence[ScoredRow]], Gathered], usage: EvidenceUsage
    ) -> Callable[[Sequence[ScoredRow]], Gathered]:
        """Return a function that gathers evidence which is not stored. `usage` counts the work."""

        def gather_new(rows: Sequence[ScoredRow]) -> Gathered:
            self._number += 1
            checksum = zlib.crc32(msgspec.json.encode(rows))
            if (batch := self._batch(self._number)) is not None:
                if batch.rows != checksum:
                    raise cannot_resume(self._output, "the input has changed")
                usage.add(batch.usage)
                return [result.add_to(row) for result, row in zip(batch.results, rows, strict=True)]
            before = replace(usage)
            results = gather(rows)
            if not any(isinstance(result, BackendError) for result in results):
                stored = list(map(_Result.of, results))
                self._append(_Batch(self._number, checksum, usage.since(before), stored))
            return results

        return gather_new

    def _batch(self, number: int) -> _Batch | None:
        """Return a batch of the earlier run."""
        place = self._places.get(number)
        if place is None:
            return None
        self._earlier.seek(place)
        return self._decoded(self._earlier.readline(), _BATCH)

    def _append(self, record: msgspec.Struct) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Record that the output is complete, and remove the evidence."""
        record = finished_record_of(self._target)
        if self._leaves_record:
            content = _Record(self._settings, self._target.stat().st_size)
            write_synced(record, msgspec.json.encode(content))
        else:
            record.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock. Without `finish` the evidence remains for another run."""
        self._earlier.close()
        self._file.close()


def complete_output(output: str, settings: RunSettings) -> bytes | None:
    """Return the output of an earlier run that is complete, or None.

    Raises UsageError if this run had other settings or another input.
    """
    target = Path(os.path.realpath(output))
    try:
        record = msgspec.json.decode(finished_record_of(target).read_bytes(), type=_Record)
        size = target.stat().st_size
    except (FileNotFoundError, *NOT_JSON):
        return None
    settings.check(record.settings, output)
    return read_content(target) if size == record.output_size else None

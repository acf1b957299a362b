"""Scoring of an input to an output file, in order, so that an interrupted run can continue."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import IO

import msgspec

from rag_rewards.errors import OptionError
from rag_rewards.files.progress import Progress
from rag_rewards.files.sinks import open_output
from rag_rewards.files.sources import CHUNK_BYTES, Source, is_splittable
from rag_rewards.files.storage import input_files, open_file
from rag_rewards.rows import ScoredChunk, Totals
from rag_rewards.rows.line_groups import KeyDigests
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.executor import ClusterExecutor, Executor
from rag_rewards.scoring.files import InputFile
from rag_rewards.scoring.in_order import CompleteParts, parts_in_order
from rag_rewards.scoring.plan import Shard, plan_shards, shard_bytes, splittable_files
from rag_rewards.scoring.positions import Positions
from rag_rewards.scoring.reader import StreamParts, changed_input
from rag_rewards.scoring.recipe_code import recipe_code
from rag_rewards.scoring.row_files import OrderedRows
from rag_rewards.scoring.run_folder import RunFolder
from rag_rewards.scoring.run_settings import RunSettings, settings_of
from rag_rewards.scoring.score import (
    Part,
    PartFiles,
    ShardJob,
    grouping_of,
    score_shard,
)
from rag_rewards.scoring.score_options import OnOutput, OutputError, ScoreOptions, ScoringRun


def score_to_file(
    scorer: Scorer,
    options: ScoreOptions,
    source: Source,
    run: ScoringRun,
    display: Progress,
    on_output: OnOutput | None,
    cluster: ClusterExecutor | None = None,
) -> None:
    """Score a source to a file. `cluster` scores the shards on other machines.

    Files that can be read from any row are scored in shards, other sources by one reader. Raises
    UsageError if the input has changed, or if `resume` finds a run with other settings.
    """
    paths = None if options.source == "-" else input_files(options.source)
    paths = [options.source] if paths is None else paths
    in_shards = not options.sort and all(map(is_splittable, paths))
    if cluster is not None and not in_shards:
        raise OptionError(
            "one process must read {source} from its start: decompress it, or use {engine} local",
            source=options.source,
        )
    files = splittable_files(paths) if in_shards else list(map(InputFile.of, regular_files(paths)))
    reading = "shards" if in_shards else "stream"
    code = recipe_code(scorer.spec)
    settings = RunSettings(options=settings_of(run.signature, code, options, reading), files=files)
    with contextlib.ExitStack() as stack:
        # `folder.start` removes the rows of an earlier run when its records have been removed.
        output = open_output(str(options.output), resume=True)
        stack.callback(_close, output.close)
        folder = RunFolder(output, str(options.errors), settings, is_sorted=options.sort)
        stack.callback(_close, folder.close)
        if options.resume and (record := folder.resume()) is not None:
            # Files have been compared by their size and the time of their last change.
            if not files and StreamParts(scorer, options, source, []).read() != record.stream:
                raise changed_input(options.output)
            run.totals, run.was_complete = record.totals, True
            return
        if not folder.has_begun:
            size = CHUNK_BYTES if options.models.is_set else shard_bytes(files, options.workers)
            folder.start(size)
        scoring = _FileScoring(scorer, options, folder, run, display, on_output, cluster)
        with display:
            if in_shards:
                scoring.score_shards(files)
            else:
                scoring.score_stream(source)
        for file in files:
            file.check()
        run.totals = scoring.totals
        if run.stopped_by:
            run.partial = str(output.partial or "")
            return
        folder.finish(scoring.totals, scoring.stream)


def _close(close: Callable[[], None]) -> None:
    """Close files. Errors of writing were raised before."""
    with contextlib.suppress(OSError):
        close()


def regular_files(paths: Iterable[str]) -> list[str]:
    """Return the paths of regular files, which are not read as a stream."""
    return [path for path in paths if os.path.isfile(path)]


class _FileScoring:
    """The scoring of one run. Its totals are those of the complete parts."""

    def __init__(
        self,
        scorer: Scorer,
        options: ScoreOptions,
        folder: RunFolder,
        run: ScoringRun,
        display: Progress,
        on_output: OnOutput | None,
        cluster: ClusterExecutor | None,
    ) -> None:
        self._cluster = cluster
        self._scorer = scorer
        self._options = options
        self._folder = folder
        self._run = run
        self._display = display
        self._on_output = on_output
        self._keys = KeyDigests()
        self._input_done = 0
        self._positions: Positions | None = None
        self.totals = Totals()
        self.stream = (0, 0)
        """Number of lines and checksum of the input, if one reader has read it."""
        self._earlier = folder.take_parts()
        if on_output is not None:
            for rows in folder.scored_rows():
                on_output(rows)

    # --- shards --------------------------------------------------------------------------------

    def score_shards(self, files: list[InputFile]) -> None:
        """Score all shards that an earlier run has not scored."""
        job = ShardJob(
            files=files,
            folder=self._folder.parts_folder(remote=self._cluster is not None),
            columns=self._options.columns,
            grouping=grouping_of(self._scorer, self._options),
            on_error=self._options.on_error,
        )
        shards = plan_shards(files, self._folder.shard_bytes, job.grouping, job.columns)
        complete = self._complete_parts(job)
        for part in self._earlier:
            complete.check_input(part, next(shards, None))
            self._record(part)
        self._run.totals.merge(self.totals)
        first = list(islice(shards, 2))
        shards = chain(first, shards)
        if self._cluster is not None and first:
            self._cluster.begin(job)
            self._assemble(self._cluster, job, shards)
            return
        if self._options.workers == 1 or len(first) < 2:
            self._score_here(job, shards)
        else:
            self._score_in_processes(job, shards, first[0].index)

    def _score_in_processes(self, job: ShardJob, shards: Iterator[Shard], index: int) -> None:
        """Score the shards from `index` on in other processes of this machine."""
        # The modules that start processes take time to import.
        from rag_rewards.scoring.local import LocalExecutor

        workers = self._options.workers
        if not self._can_place(job):
            with contextlib.closing(LocalExecutor(self._scorer, job, workers)) as executor:
                self._assemble(executor, job, shards)
            return
        job = msgspec.structs.replace(job, partial=self._folder.partial)
        self._positions = Positions(index, self._folder.rows_size)
        try:
            executor = LocalExecutor(self._scorer, job, workers, self._positions)
            with contextlib.closing(executor):
                self._assemble(executor, job, shards)
        finally:
            # Rows of later shards, if the run does not end regularly.
            self._folder.output.truncate(self._folder.rows_size)

    def _can_place(self, job: ShardJob) -> bool:
        """Whether workers can write rows to the output before earlier rows are complete.

        This requires that no shard ends early or is scored again, and that no rows are passed on.
        """
        return job.on_error == "report" and not job.grouping.by_key and self._on_output is None

    def _score_here(self, job: ShardJob, shards: Iterator[Shard]) -> None:
        """Score shards in this process, directly to the output."""
        complete = self._complete_parts(job)
        for shard in shards:
            part = complete.find(shard)
            if part is not None:
                self._append(job, part)
                continue
            part = score_shard(self._scorer, job, shard, self._write, earlier=self._keys)
            if self._is_stopped(part):
                return
            self._folder.add(part)
            self._record(part)

    def _assemble(self, executor: Executor, job: ShardJob, shards: Iterator[Shard]) -> None:
        """Append the parts of other processes to the output, in order."""
        for part in parts_in_order(executor, shards, self._complete_parts(job), self._keys):
            self._append(job, part)
            if self._run.stopped_by:
                return

    def _complete_parts(self, job: ShardJob) -> CompleteParts:
        return CompleteParts(job, str(self._options.output), self._keys, self._positions)

    def _append(self, job: ShardJob, part: Part) -> None:
        """Append the files of a part to the output, as far as they exist, and remove them."""
        source, target = PartFiles(job, part.index), self._folder.files
        if not isinstance(target, OrderedRows):
            raise TypeError("the parts of shards are in input order")
        if self._positions is None or not self._positions.is_in_output(part):
            target.output.handle.seek(self._folder.rows_size)
            _copy(source.rows, target.output.handle, part.rows, self._on_output)
        if self._is_stopped(part):
            return
        if part.errors:
            _copy(source.errors, target.error_handle, part.errors)
        self._folder.add(part)
        source.remove()
        self._run.totals.merge(part.totals)
        self._record(part)
        self._display.update(self._run.totals, self._input_done, self._run.usage)

    # --- streams -------------------------------------------------------------------------------

    def score_stream(self, source: Source) -> None:
        """Score the rows of one reader, after those that an earlier run has scored."""
        for part in self._earlier:
            self._record(part)
        self._run.totals.merge(self.totals)
        parts = StreamParts(self._scorer, self._options, source, self._earlier)
        with contextlib.closing(parts.scored()) as scored:
            for chunk, complete in scored:
                self._write(chunk)
                if complete is None:
                    continue
                if self._is_stopped(complete):
                    return
                self._folder.add(complete)
                self._record(complete)
        self.stream = parts.input

    # --- totals --------------------------------------------------------------------------------

    def _write(self, chunk: ScoredChunk) -> None:
        self._folder.files.write(chunk)
        self._run.totals.merge(chunk.totals)
        if self._on_output is not None:
            self._on_output(chunk.output)
        self._display.update(self._run.totals, self._input_done, self._run.usage)

    def _record(self, part: Part) -> None:
        self.totals.merge(part.totals)
        self._keys.update(part.key_digests)
        part.keys = b""  # the parts of an earlier run are kept
        if part.shard is not None:
            self._input_done += part.shard.size

    def _is_stopped(self, part: Part) -> bool:
        """Whether the run ends at this part, whose rows are written but not recorded."""
        if part.stopped_by:
            self._run.stopped_by = part.stopped_by
            self.totals.rows += part.totals.rows
        return bool(part.stopped_by)


def _copy(source: str, target: IO[bytes], size: int, on_output: OnOutput | None = None) -> None:
    """Append a file of `size` bytes. Blocks for `on_output` end with a row."""
    with open_file(source) as handle:
        if on_output is None:
            if _copied_by_system(handle, target, size):
                return
            shutil.copyfileobj(handle, target, 1 << 20)
        else:
            while lines := handle.readlines(1 << 20):
                target.writelines(lines)
                on_output(b"".join(lines))
        if handle.tell() != size:
            raise OutputError(f"cannot write {target.name}: {source} has not {size:,} bytes")


def _copied_by_system(source: IO[bytes], target: IO[bytes], size: int) -> bool:
    """Append a file without copying its bytes to this process. False if the system cannot."""
    copy = getattr(os, "copy_file_range", None)
    if copy is None:
        return False
    target.flush()
    end, missing = target.tell() + size, size
    try:
        while missing and (copied := copy(source.fileno(), target.fileno(), missing)):
            missing -= copied
    except OSError as error:
        if missing < size or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    target.seek(end)
    if missing:
        raise OutputError(f"cannot write {target.name}: {source.name} has not {size:,} bytes")
    return True

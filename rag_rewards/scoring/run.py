"""Scoring of an input to an output, in order, so that an interrupted run can continue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from rag_rewards.errors import OptionError
from rag_rewards.files.sources import CHUNK_BYTES, is_splittable, open_source
from rag_rewards.files.storage import input_files, is_remote
from rag_rewards.rows import Totals
from rag_rewards.rows.line_groups import KeyDigests
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.file_store import FileStore
from rag_rewards.scoring.folder_store import FolderStore
from rag_rewards.scoring.input_files import InputFile, is_parquet, open_rows
from rag_rewards.scoring.options import Progress, ScoreOptions, ScoringRun
from rag_rewards.scoring.plan import Shard, plan_shards, shard_bytes
from rag_rewards.scoring.run_settings import RunSettings, settings_of
from rag_rewards.scoring.shard import Part, ShardJob, ShardTask, grouping_of, score_shard
from rag_rewards.scoring.spool import NO_ROWS, fingerprint_of, spool
from rag_rewards.scoring.store import RunRecord, RunStore, changed_input

if TYPE_CHECKING:
    from rag_rewards.scoring.on_ray import RayWorkers
    from rag_rewards.scoring.workers import ScoreShards


def score_to_output(
    scorer: Scorer,
    options: ScoreOptions,
    run: ScoringRun,
    progress: Callable[[int | None], Progress] | None,
    cluster: RayWorkers | None = None,
) -> None:
    """Score an input to a file or to a folder. `cluster` scores the shards on other machines.

    An input that only one reader can read is copied first. If the reader ends with an error, the
    shards before it are scored. Raises UsageError if the input has changed, or if `resume` finds a
    run with other settings.
    """
    paths = (options.source != "-" and input_files(options.source)) or [options.source]
    is_sorted = options.sort and scorer.scope == "group"
    with contextlib.ExitStack() as stack:
        source = None
        if is_sorted or not all(map(is_splittable, paths)):
            source = open_source(options.source, options.columns)
            stack.callback(source.close)
            _refuse_cluster(options)
        files = [InputFile.of(path) for path in paths if is_remote(path) or os.path.isfile(path)]
        for file in files if source is None else ():
            open_rows(file).close()  # raises for a file of another format
        settings = settings_of(run.signature, scorer.spec, options, files)
        store = _open_store(options, settings, is_sorted)
        stack.callback(store.close)
        state = store.resume() if options.resume else None
        if isinstance(state, RunRecord):
            # Files have been compared by their size and the time of their last change.
            if source is not None and not files and fingerprint_of(source.lines) != state.input:
                raise changed_input(store.name)
            run.totals, run.was_complete = state.totals, True
            return
        # A run with models records its work after each chunk.
        size = CHUNK_BYTES if options.models.is_set else shard_bytes(files, options.workers)
        state = state or store.begin(size)
        copy = None if source is None else spool(source, store.path, sort=is_sorted)
        job = ShardJob(
            files=files if copy is None else [copy.file],
            folder=store.parts_folder(remote=cluster is not None),
            numbers=None if copy is None else copy.numbers,
            sync=isinstance(store, FolderStore),
            columns=options.columns if copy is None else None,
            grouping=grouping_of(scorer, options),
            on_error=options.on_error,
        )
        shards = plan_shards(job.files, state.shard_bytes, job.grouping, job.columns)
        if copy and copy.error:
            shards = (shard for shard, _ in pairwise(shards))  # the last group may be incomplete
        display = None if progress is None else progress(_size_of(job.files))
        with display or contextlib.nullcontext():
            _Scoring(scorer, job, store, run, display).score(shards, options.workers, cluster)
        if run.stopped_by:
            return
        if copy and copy.error:
            raise copy.error
        for file in files:
            file.check()
        store.finish(run.totals, NO_ROWS if copy is None else copy.fingerprint)


def _open_store(options: ScoreOptions, settings: RunSettings, is_sorted: bool) -> RunStore:
    if options.output_format == "parts":
        return FolderStore(str(options.output), settings)
    return FileStore(str(options.output), str(options.errors), settings, is_sorted=is_sorted)


def _refuse_cluster(options: ScoreOptions) -> None:
    """Raise OptionError for an input that one process must read, if the engine is a cluster."""
    if options.engine == "ray":
        raise OptionError(
            "one process must read {source} from its start: decompress it, or use {engine} local",
            source=options.source,
        )


def _size_of(files: Sequence[InputFile]) -> int | None:
    """Return the size of the input in bytes; None for Parquet, whose shards consist of rows."""
    is_in_rows = any(is_parquet(file.path) for file in files)
    return None if is_in_rows else sum(file.size for file in files)


class _Scoring:
    """The scoring of the shards of one run, whose totals are those of the shards in order."""

    def __init__(
        self,
        scorer: Scorer,
        job: ShardJob,
        store: RunStore,
        run: ScoringRun,
        display: Progress | None,
    ) -> None:
        self._scorer, self._job, self._store = scorer, job, store
        self._run, self._display = run, display
        self._keys = KeyDigests()
        """The keys of the groups in all shards so far."""
        self._shown = Totals()
        """The totals on the display, also of the rows of shards that are not complete."""
        self._position = 0

    def score(self, shards: Iterator[Shard], workers: int, cluster: RayWorkers | None) -> None:
        """Score the shards that an earlier run has not scored, and append all to the output."""
        first = list(islice(shards, 2))
        shards = chain(first, shards)
        if cluster is not None and first:
            cluster.begin(self._job)
            self._append_parts(self._with_records(cluster.run), shards)
        elif workers == 1 or len(first) < 2:
            self._append_parts(self._score_here, shards)
        else:
            # The modules that start processes take time to import.
            from rag_rewards.scoring.workers import LocalWorkers

            with contextlib.closing(LocalWorkers(self._scorer, self._job, workers)) as pool:
                self._append_parts(self._with_records(pool.run), shards)

    def _append_parts(self, score: ScoreShards, shards: Iterator[Shard]) -> None:
        """Append all shards in order, although they are complete in any order.

        A shard is scored again if its groups also occur in earlier shards.
        """
        parts: dict[int, Part] = {}
        due = 0

        def tasks() -> Iterator[ShardTask]:
            for shard in shards:
                part = self._store.recorded(self._job, shard)
                if part is None:
                    yield ShardTask(shard)
                else:
                    self._show(part.totals)
                    parts[shard.index] = part

        for scored in chain(score(tasks()), [None]):
            if scored is not None:
                parts[scored.shard.index] = scored
            while due in parts:
                part = parts.pop(due)
                due += 1
                if repeated := list(filter(self._keys.__contains__, part.key_digests)):
                    part = next(score([ShardTask(part.shard, repeated)]))
                self._store.append(self._job, part)
                self._run.totals.merge(part.totals)
                if part.stopped_by:
                    self._run.stopped_by, self._run.partial = part.stopped_by, self._store.stop()
                    return
                self._keys.update(part.key_digests)
                self._position += part.shard.size

    def _score_here(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        """Score shards one after the other in this process. See `ScoreShards`."""
        for task in tasks:
            with self._store.writing(self._job, task.shard.index) as files:
                part = score_shard(
                    self._scorer,
                    self._job,
                    task,
                    files,
                    earlier=self._keys,
                    on_chunk=self._show,
                )
            if not part.stopped_by:
                self._store.record(part)
            yield part

    def _with_records(self, score: ScoreShards) -> ScoreShards:
        """Return a function that also shows and records each part, as `_score_here` does."""

        def recorded(part: Part) -> Part:
            self._show(part.totals)
            if not part.stopped_by:
                self._store.record(part)
            return part

        return lambda tasks: map(recorded, score(tasks))

    def _show(self, totals: Totals) -> None:
        if self._display is not None:
            self._shown.merge(totals)
            self._display.update(self._shown, self._position, self._run.usage)

"""Scoring of an input to a folder of part files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from rag_rewards.errors import OptionError
from rag_rewards.files.progress import Progress
from rag_rewards.files.sources import CHUNK_BYTES, is_splittable
from rag_rewards.files.storage import input_files, open_file
from rag_rewards.rows.line_groups import KeyDigests
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.executor import ClusterExecutor, Executor
from rag_rewards.scoring.files import InputFile
from rag_rewards.scoring.in_order import CompleteParts, parts_in_order
from rag_rewards.scoring.parts_folder import ManifestPart, PartsFolder
from rag_rewards.scoring.plan import plan_shards, shard_bytes, splittable_files
from rag_rewards.scoring.recipe_code import recipe_code
from rag_rewards.scoring.run_settings import RunSettings, settings_of
from rag_rewards.scoring.score import (
    Part,
    PartFiles,
    ShardJob,
    ShardTask,
    grouping_of,
    score_to_part,
)
from rag_rewards.scoring.score_options import OnOutput, ScoreOptions, ScoringRun

MAX_PARTS = 10_000
"""Number of parts above which they become larger. The names have five digits."""


def score_to_parts(
    scorer: Scorer,
    options: ScoreOptions,
    run: ScoringRun,
    display: Progress,
    on_output: OnOutput | None,
    cluster: ClusterExecutor | None = None,
) -> None:
    """Score an input to a folder of part files. `cluster` scores the shards on other machines.

    Raises UsageError if the input cannot be read in shards or has changed, if `resume` finds a run
    with other settings, or if the folder contains other files.
    """
    files = _files(options)
    code = recipe_code(scorer.spec)
    settings = RunSettings(options=settings_of(run.signature, code, options, "parts"), files=files)
    folder = PartsFolder(str(options.output), settings)
    with contextlib.closing(folder):
        if options.resume and (manifest := folder.resume()) is not None:
            run.totals, run.was_complete = manifest.totals, True
            return
        if not folder.has_begun:
            folder.start(_shard_bytes(files, options))
        job = ShardJob(
            files=files,
            folder=folder.records,
            output=folder.path,
            columns=options.columns,
            grouping=grouping_of(scorer, options),
            on_error=options.on_error,
        )
        shards = plan_shards(files, folder.shard_bytes, job.grouping, job.columns)
        entries: list[ManifestPart] = []
        with display, contextlib.ExitStack() as stack:
            keys = KeyDigests()
            first = list(islice(shards, 2))
            if cluster is not None and first:
                cluster.begin(job)
                executor: Executor = cluster
            elif options.workers == 1 or len(first) < 2:
                executor = _ThisProcess(scorer, job, keys)
            else:
                # The modules that start processes take time to import.
                from rag_rewards.scoring.local import LocalExecutor

                workers = LocalExecutor(scorer, job, options.workers)
                executor = stack.enter_context(contextlib.closing(workers))
            complete = CompleteParts(job, str(options.output), keys)
            position = 0
            for part in parts_in_order(executor, chain(first, shards), complete, keys):
                if on_output is not None:
                    _pass_rows(job, part, on_output)
                run.totals.merge(part.totals)
                if part.stopped_by:
                    run.stopped_by, run.partial = part.stopped_by, str(options.output)
                    return
                keys.update(part.key_digests)
                entries.append(ManifestPart.of(job, part))
                position += part.shard.size if part.shard is not None else 0
                display.update(run.totals, position, run.usage)
        for file in files:
            file.check()
        folder.finish(run.totals, entries)


def _files(options: ScoreOptions) -> list[InputFile]:
    """Return the input files. Raises UsageError if they cannot be read from any row."""
    paths = input_files(options.source)
    paths = [options.source] if paths is None else paths
    for path in paths:
        if not is_splittable(path):
            raise OptionError(
                "{file} is a stream or compressed, so that it has no shards: decompress it, or use "
                "{output_format} file",
                file=path,
            )
    return splittable_files(paths)


def _shard_bytes(files: list[InputFile], options: ScoreOptions) -> int:
    size = CHUNK_BYTES if options.models.is_set else shard_bytes(files, options.workers)
    return max(size, sum(file.size for file in files) // MAX_PARTS)


class _ThisProcess:
    """Scores shards one after the other in this process. See `Executor`.

    keys  digests of the keys of earlier groups, which the caller extends
    """

    def __init__(self, scorer: Scorer, job: ShardJob, keys: KeyDigests) -> None:
        self._scorer, self._job, self._keys = scorer, job, keys

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        for task in tasks:
            yield score_to_part(self._scorer, self._job, task, self._keys)


def _pass_rows(job: ShardJob, part: Part, on_output: OnOutput) -> None:
    """Pass the scored rows of a part in blocks that end with a row."""
    with open_file(PartFiles(job, part.index).rows) as handle:
        while lines := handle.readlines(1 << 20):
            on_output(b"".join(lines))

"""Scoring of the chunks of one reader, in input order."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

from rag_rewards.files.grouped_lines import read_groups
from rag_rewards.files.output import Output
from rag_rewards.files.progress import Progress
from rag_rewards.files.sinks import ErrorFile, Spool, open_output
from rag_rewards.files.sources import Source, chunks, group_chunks
from rag_rewards.rows import Chunk, ScoredChunk
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.score_options import OnOutput, ScoreOptions, ScoringRun


def read_chunks(scorer: Scorer, options: ScoreOptions, source: Source) -> Iterator[Chunk]:
    """Yield the rows of a source in chunks.

    They contain whole groups if the reward compares rollouts, or if a model can fail for a group.
    """
    if scorer.scope == "rollout":
        return chunks(source.lines, with_groups=options.models.is_set)
    return group_chunks(read_groups(source, options.group_size, options.sort))


def score_chunks(
    scorer: Scorer, chunks: Iterator[Chunk], workers: int
) -> Generator[ScoredChunk, None, None]:
    """Yield every chunk with its scores, in order."""
    if workers == 1:
        yield from map(scorer.score_rows, chunks)
        return
    # The modules that start processes take time to import.
    from rag_rewards.scoring.chunk_workers import score_in_workers

    yield from score_in_workers(scorer, chunks, workers)


def score_to_stream(
    scorer: Scorer,
    options: ScoreOptions,
    source: Source,
    run: ScoringRun,
    display: Progress,
    on_output: OnOutput | None,
) -> None:
    """Score a source to standard output, to a device, or only for `on_output`."""
    sink = _Sink(options)
    try:
        scored = score_chunks(scorer, read_chunks(scorer, options, source), options.workers)
        with display, contextlib.closing(scored):  # ends the workers also when writing fails
            for chunk in scored:
                if options.on_error == "stop" and chunk.errors:
                    run.stopped_by = chunk.first_error
                    chunk = chunk.before_error()
                sink.add(chunk)
                run.totals.merge(chunk.totals)
                if run.stopped_by:
                    return
                if on_output is not None:
                    on_output(chunk.output)
                display.update(run.totals, source.position(), run.usage)
        sink.commit()
    finally:
        sink.close()


class _Sink:
    """An output that is written directly. With `sort`, rows are written in input order."""

    def __init__(self, options: ScoreOptions) -> None:
        path = options.output
        self.output: Output | None = None if path is None else open_output(path)
        self.errors = ErrorFile(options.errors)
        self.spools = (Spool(), Spool()) if options.sort else None

    def add(self, chunk: ScoredChunk) -> None:
        if self.spools is None:
            self._write(chunk.output)
            for record in chunk.errors:
                self.errors.write(record)
            return
        rows, errors = self.spools
        start = 0
        for number, end in zip(chunk.numbers, chunk.ends, strict=True):
            rows.add(number, chunk.output[start:end])
            start = end
        for number, record in zip(chunk.error_numbers, chunk.errors, strict=True):
            errors.add(number, record)

    def _write(self, data: bytes) -> None:
        if self.output is not None:
            self.output.write(data)

    def commit(self) -> None:
        self._write_spooled()
        self.errors.close()
        if self.output is not None:
            self.output.commit()

    def close(self) -> None:
        """Write the scored rows and close the files. Errors were raised before."""
        with contextlib.suppress(OSError):
            self._write_spooled()
        with contextlib.suppress(OSError):
            self.errors.close()
        if self.output is not None:
            with contextlib.suppress(OSError):
                self.output.close()

    def _write_spooled(self) -> None:
        if self.spools is None:
            return
        (rows, errors), self.spools = self.spools, None
        for line in rows.lines():
            self._write(line)
        for record in errors.lines():
            self.errors.write(record)

"""Scoring of rows as they are read, without shards and without a journal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rag_rewards.files.output import ErrorFile, Output
from rag_rewards.files.sources import open_source
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.options import OnOutput, Progress, ScoreOptions, ScoringRun
from rag_rewards.scoring.shard import grouping_of, line_chunks


def open_output(path: str, *, resume: bool = False) -> Output:
    """Open an output for scored rows: Parquet when the name ends in `.parquet`, else JSON lines."""
    if path.endswith(".parquet"):
        from rag_rewards.files.parquet import ParquetOutput

        return ParquetOutput(path, resume=resume)
    return Output(path, resume=resume)


class Sink:
    """Where scored rows and rows in error are written: standard output, a device, or a function."""

    def __init__(self, options: ScoreOptions, on_output: OnOutput | None = None) -> None:
        self._output = None if options.output is None else open_output(options.output)
        self._errors = ErrorFile(options.errors)
        self._on_output = on_output

    def write(self, rows: bytes) -> None:
        """Write scored rows."""
        if self._output is not None:
            self._output.write(rows)
        if self._on_output is not None:
            self._on_output(rows)

    def write_error(self, record: bytes) -> None:
        """Write the record of a row in error."""
        self._errors.write(record)

    def commit(self) -> None:
        """Complete the output."""
        if self._output is not None:
            self._output.commit()

    def close(self) -> None:
        """Close the files. Errors were raised before."""
        for file in (self._errors, self._output):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()


def score_as_read(
    scorer: Scorer,
    options: ScoreOptions,
    run: ScoringRun,
    progress: Callable[[int | None], Progress] | None,
    on_output: OnOutput | None = None,
) -> None:
    """Score rows in the order in which they are read, and write them at once."""
    with (
        contextlib.closing(open_source(options.source, options.columns)) as source,
        contextlib.closing(Sink(options, on_output)) as sink,
    ):
        display = None if progress is None else progress(source.size)
        with display or contextlib.nullcontext():
            for chunk in map(
                scorer.score_rows, line_chunks(source.lines, grouping_of(scorer, options))
            ):
                if options.on_error == "stop" and chunk.errors:
                    run.stopped_by = chunk.first_error
                    chunk = chunk.before_error()
                sink.write(chunk.output)
                run.totals.merge(chunk.totals)
                if run.stopped_by:
                    return
                for record in chunk.errors:
                    sink.write_error(record)
                if display is not None:
                    display.update(run.totals, source.position(), run.usage)
        sink.commit()

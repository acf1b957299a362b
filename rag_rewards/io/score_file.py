"""Score a file of rows. Each input row becomes an output row, in input order."""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from rag_rewards.errors import OptionError, RagRewardsError
from rag_rewards.io.output import Output, partial_of, refuse_second_run
from rag_rewards.io.progress import NoProgress, Progress
from rag_rewards.io.sinks import ErrorFile, Spool, open_output
from rag_rewards.io.sources import (
    Source,
    check_grouping,
    chunks,
    group_chunks,
    open_source,
    read_groups,
)
from rag_rewards.loading import RecipeSource
from rag_rewards.model_options import ModelOptions
from rag_rewards.rows import Chunk, ErrorRecord, ScoredChunk, Totals
from rag_rewards.scorer import Scorer

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Judge
    from rag_rewards.evidence.usage import EvidenceUsage

OnOutput = Callable[[bytes], None]
"""A function that receives scored rows as JSON lines."""


class OutputError(RagRewardsError):
    """The output cannot be written any further."""


@dataclass(frozen=True)
class ScoreOptions:
    """The options of scoring a file.

    source         input file; "-" is standard input
    columns        columns of fields that have another name, as in `ColumnMap`
    output         output file; "-" is standard output; None writes no rows
    workers        number of scoring processes
    keep_evidence  whether scored rows contain the evidence of the models
    on_error       write rows in error to a file, or stop at the first one
    group_size     number of adjacent rows in a group; None groups rows by their keys
    sort           whether rows of one group may be anywhere in the file
    models         models that provide evidence
    """

    source: str
    output: str | None = "-"
    columns: str | None = None
    workers: int = 1
    keep_evidence: bool = False
    on_error: Literal["report", "stop"] = "report"
    group_size: int | None = None
    sort: bool = False
    models: ModelOptions = ModelOptions()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError("{workers} must be at least 1, found {value}", value=self.workers)
        if self.workers > 1 and self.models.is_set:
            raise OptionError("{workers} must be 1 when models are set: one process calls them")
        check_grouping(self.group_size, self.sort)

    @property
    def errors(self) -> str | None:
        """The file for rows in error; None is standard error."""
        return None if self.output in (None, "", "-") else f"{self.output}.errors.jsonl"


@dataclass
class ScoringRun:
    """The result of scoring a file.

    stopped_by  the first row in error, if the run stopped there; "" otherwise
    partial     the file with the scored rows of a run that did not complete; "" otherwise
    seconds     duration of the run
    """

    recipe: str
    equation: str
    signature: str
    totals: Totals = field(default_factory=Totals)
    usage: EvidenceUsage | None = None
    judge: Judge | None = None
    stopped_by: str = ""
    partial: str = ""
    seconds: float = 0.0


def score_file(
    recipe: RecipeSource,
    options: ScoreOptions,
    *,
    progress: Callable[[Source], Progress] = NoProgress,
    on_output: OnOutput | None = None,
) -> ScoringRun:
    """Score a file. The output has a partial name until it is complete.

    Raises UsageError before any row is scored, OutputError when writing the output fails.
    """
    _refuse_own_files(options)
    refuse_second_run(options.output or "-")
    with Scorer.load(
        recipe,
        models=options.models,
        keep_evidence=options.keep_evidence,
        for_parquet=options.output is not None and options.output.endswith(".parquet"),
    ) as scorer:
        return _score_source(scorer, options, progress, on_output)


def _score_source(
    scorer: Scorer,
    options: ScoreOptions,
    progress: Callable[[Source], Progress],
    on_output: OnOutput | None,
) -> ScoringRun:
    source = open_source(options.source, options.columns)
    reward = scorer.reward
    run = ScoringRun(reward.name, reward.equation, scorer.signature)
    run.usage = scorer.usage if scorer.has_models else None
    run.judge = scorer.models.judge
    start = time.perf_counter()
    display = progress(source)
    try:
        sink = _Sink(options)
    except RagRewardsError:
        source.close()
        raise
    try:
        with display:
            _score_all(scorer, options, source, sink, run, display, on_output)
        if not run.stopped_by:
            sink.commit()
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = f"; the rows scored so far are in {sink.partial}" if sink.partial else ""
        name = error.filename or options.output
        name = "standard output" if name in (None, "-") else name
        raise OutputError(f"cannot write {name}: {error.strerror}{hint}") from None
    finally:
        source.close()
        sink.close()
        run.partial = sink.partial
        run.seconds = time.perf_counter() - start
    return run


def _refuse_own_files(options: ScoreOptions) -> None:
    """Raise UsageError when the input is a file that this run would overwrite or remove."""
    for path in (partial_of(options.output or "-"), options.errors):
        if not (path and os.path.exists(path) and os.path.exists(options.source)):
            continue
        if os.path.samefile(path, options.source):
            raise OptionError(
                "writing {file} would overwrite the input {source}: rename the input, or choose "
                "another {output}",
                file=options.output,
                source=options.source,
            )


def _score_all(
    scorer: Scorer,
    options: ScoreOptions,
    source: Source,
    sink: _Sink,
    run: ScoringRun,
    display: Progress,
    on_output: OnOutput | None,
) -> None:
    scored = _score_chunks(scorer, _chunks(scorer, options, source), options.workers)
    with contextlib.closing(scored):  # ends the workers also when writing the output fails
        for chunk in scored:
            if options.on_error == "stop" and chunk.errors:
                _stop(chunk, sink, run)
                return
            sink.add(chunk)
            run.totals.merge(chunk.totals)
            if on_output is not None:
                on_output(chunk.output)
            display.update(run.totals, source.position(), run.usage)


def _score_chunks(
    scorer: Scorer, chunks: Iterator[Chunk], workers: int
) -> Generator[ScoredChunk, None, None]:
    """Yield every chunk with its scores, in order."""
    if workers == 1:
        yield from map(scorer.score_rows, chunks)
        return
    # The modules that start processes take time to import.
    from rag_rewards.io.pool import score_in_workers

    yield from score_in_workers(scorer, chunks, workers)


def _stop(chunk: ScoredChunk, sink: _Sink, run: ScoringRun) -> None:
    """Write the rows before the first error of a chunk."""
    first = min(chunk.error_numbers)
    rows = bisect_left(chunk.numbers, first) if chunk.numbers == sorted(chunk.numbers) else 0
    numbers, ends = chunk.numbers[:rows], chunk.ends[:rows]
    sink.add(ScoredChunk(output=chunk.output[: max(ends, default=0)], numbers=numbers, ends=ends))
    run.totals.rows += rows
    record = msgspec.json.decode(chunk.errors[0], type=ErrorRecord)
    run.stopped_by = describe_error(record)


def describe_error(record: ErrorRecord) -> str:
    """Return the record of a row in error as one line of text."""
    error = record.error
    path = f"{error['path']}: " if error["path"] else ""
    name = f" (id {record.id})" if record.id and record.id != str(record.line) else ""
    return f"line {record.line}{name}: {error['type']}: {path}{error['message']}"


def _chunks(scorer: Scorer, options: ScoreOptions, source: Source) -> Iterator[Chunk]:
    if scorer.scope == "rollout":
        return chunks(source.lines)
    return group_chunks(read_groups(source, options.group_size, options.sort))


class _Sink:
    """The output and the file of errors. With `sort`, rows are written in input order."""

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
        """Keep the scored rows and close the files. Errors were raised before."""
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

    @property
    def partial(self) -> str:
        """The file with the scored rows while the output is not complete; "" for none."""
        return str(self.output.partial or "") if self.output is not None else ""

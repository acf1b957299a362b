"""`rag-rewards score`: rows in, scored rows out, in order, nothing lost."""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from rag_rewards.errors import OptionError, RagRewardsError, UsageError
from rag_rewards.io.pool import score_chunks
from rag_rewards.io.sinks import (
    ErrorFile,
    Output,
    Spool,
    open_output,
    partial_of,
    refuse_second_run,
)
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
from rag_rewards.report.progress import Progress, judge_usage, no_progress, progress_bar
from rag_rewards.report.terminal import TableRow, table_rows
from rag_rewards.rows import Chunk, ErrorRecord, ScoredChunk, Totals
from rag_rewards.scorer import Scorer

if TYPE_CHECKING:
    from rag_rewards.evidence.gather import EvidenceUsage

ALL_SCORED, STOPPED, SOME_IN_ERROR = 0, 2, 3


class OutputError(RagRewardsError):
    """The output cannot be written any further."""


@dataclass(frozen=True)
class Options:
    """The options of `score` besides the recipe."""

    source: str
    output: str | None = None
    workers: int = 1
    keep_evidence: bool = False
    on_error: Literal["report", "stop"] = "report"
    group_size: int | None = None
    sort: bool = False
    progress: bool = False
    table: bool = False
    models: ModelOptions = ModelOptions()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError("{workers} must be at least 1, found {value}", value=self.workers)
        if self.workers > 1 and self.models.given:
            raise OptionError("{workers} must be 1 when models are set: one process asks them")
        check_grouping(self.group_size, self.sort)

    @property
    def rows_to(self) -> str | None:
        """Where the scored rows go; None where only a table is shown."""
        return self.output or (None if self.table else "-")

    @property
    def errors(self) -> str | None:
        """The file for rows in error; None is standard error."""
        return None if self.output in (None, "", "-") else f"{self.output}.errors.jsonl"


@dataclass
class Run:
    """The result of a run of `score`."""

    totals: Totals = field(default_factory=Totals)
    table: list[TableRow] = field(default_factory=list)
    recipe: str = ""
    equation: str = ""
    usage: EvidenceUsage | None = None
    judge_usage: str = ""
    signature: str = ""
    stopped_by: str = ""
    partial: str = ""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        if self.stopped_by:
            return STOPPED
        return SOME_IN_ERROR if self.totals.errors else ALL_SCORED


def score(recipe: RecipeSource, options: Options) -> Run:
    """Score a file. The output has a partial name until it is complete.

    Raises UsageError before anything is scored, OutputError when writing the output fails.
    """
    _refuse_own_files(options)
    path = options.rows_to
    refuse_second_run(path or "-")
    with Scorer.load(
        recipe,
        models=options.models,
        keep_evidence=options.keep_evidence,
        for_parquet=path is not None and path.endswith(".parquet"),
    ) as scorer:
        return _score_file(scorer, options)


def _score_file(scorer: Scorer, options: Options) -> Run:
    source = open_source(options.source)
    run = Run(recipe=scorer.reward.name, equation=scorer.reward.equation)
    run.signature = scorer.signature
    run.usage = scorer.usage if scorer.asks else None
    started = time.perf_counter()
    show = progress_bar(source) if options.progress else no_progress()
    try:
        sink = _Sink(options)
    except RagRewardsError:
        source.close()
        raise
    try:
        with show:
            _score_all(scorer, options, source, sink, run, show)
        if not run.stopped_by:
            sink.commit()
    except BrokenPipeError:
        raise
    except OSError as error:
        left = f"; the rows scored so far are in {sink.partial}" if sink.partial else ""
        where = error.filename or options.output
        where = "standard output" if where in (None, "-") else where
        raise OutputError(f"cannot write {where}: {error.strerror}{left}") from None
    finally:
        source.close()
        sink.close()
        run.partial = sink.partial
        run.seconds = time.perf_counter() - started
        run.judge_usage = judge_usage(scorer.models.judge)
    return run


def _refuse_own_files(options: Options) -> None:
    """The input must not be a file that this very run makes anew or removes."""
    for made in (partial_of(options.output or "-"), options.errors):
        if not (made and os.path.exists(made) and os.path.exists(options.source)):
            continue
        if os.path.samefile(made, options.source):
            raise UsageError(
                f"{options.source} would be overwritten on the way to {options.output}: "
                "rename it, or give another -o"
            )


def _score_all(
    scorer: Scorer, options: Options, source: Source, sink: _Sink, run: Run, show: Progress
) -> None:
    scored = score_chunks(scorer, _chunks(scorer, options, source), options.workers)
    with contextlib.closing(scored):  # workers end at once, also when the output fails
        for chunk in scored:
            if options.on_error == "stop" and chunk.errors:
                _stop(chunk, sink, run)
                return
            sink.take(chunk)
            run.totals.merge(chunk.totals)
            if options.table:
                run.table.extend(table_rows(chunk.output))
            show.update(run.totals, source.position(), run.usage)


def _stop(chunk: ScoredChunk, sink: _Sink, run: Run) -> None:
    """Keep the rows before the first error of a chunk."""
    first = min(chunk.error_numbers)
    keep = bisect_left(chunk.numbers, first) if chunk.numbers == sorted(chunk.numbers) else 0
    numbers, ends = chunk.numbers[:keep], chunk.ends[:keep]
    sink.take(ScoredChunk(output=chunk.output[: max(ends, default=0)], numbers=numbers, ends=ends))
    run.totals.rows += keep
    record = msgspec.json.decode(chunk.errors[0], type=ErrorRecord)
    run.stopped_by = describe(record)


def describe(record: ErrorRecord) -> str:
    """One line for people."""
    error = record.error
    where = f"{error['path']}: " if error["path"] else ""
    name = f" (id {record.id})" if record.id and record.id != str(record.line) else ""
    return f"line {record.line}{name}: {error['type']}: {where}{error['message']}"


def _chunks(scorer: Scorer, options: Options, source: Source) -> Iterator[Chunk]:
    if scorer.scope == "rollout":
        return chunks(source.lines)
    return group_chunks(read_groups(source, options.group_size, options.sort))


class _Sink:
    """The output and the errors file. Under --sort rows are brought back into input order."""

    def __init__(self, options: Options) -> None:
        path = options.rows_to
        self.output: Output | None = None if path is None else open_output(path)
        self.errors = ErrorFile(options.errors)
        self.spools = (Spool(), Spool()) if options.sort else None

    def take(self, result: ScoredChunk) -> None:
        if self.spools is None:
            self.write(result.output)
            for record in result.errors:
                self.errors.write(record)
            return
        rows, errors = self.spools
        start = 0
        for number, end in zip(result.numbers, result.ends, strict=True):
            rows.add(number, result.output[start:end])
            start = end
        for number, record in zip(result.error_numbers, result.errors, strict=True):
            errors.add(number, record)

    def write(self, data: bytes) -> None:
        if self.output is not None:
            self.output.write(data)

    def commit(self) -> None:
        self._in_order()
        self.errors.close()
        if self.output is not None:
            self.output.commit()

    def close(self) -> None:
        """Keep what was scored, close what is open; whatever is wrong has been said by then."""
        with contextlib.suppress(OSError):
            self._in_order()
        with contextlib.suppress(OSError):
            self.errors.close()
        if self.output is not None:
            with contextlib.suppress(OSError):
                self.output.close()

    def _in_order(self) -> None:
        if self.spools is None:
            return
        (rows, errors), self.spools = self.spools, None
        for line in rows.lines():
            self.write(line)
        for record in errors.lines():
            self.errors.write(record)

    @property
    def partial(self) -> str:
        """Where what was scored stands while the output is not whole; "" for none."""
        return str(self.output.partial or "") if self.output is not None else ""

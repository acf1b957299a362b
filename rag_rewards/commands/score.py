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

from rag_rewards.errors import RagRewardsError, UsageError
from rag_rewards.grading import Grader, ModelOptions
from rag_rewards.reading import (
    Source,
    chunks,
    group_chunks,
    groups_by_key,
    groups_by_size,
    open_source,
    sort_groups,
)
from rag_rewards.report.progress import Progress, no_progress, progress_bar
from rag_rewards.scoring import (
    Chunk,
    ErrorRecord,
    Plan,
    Result,
    Scorer,
    Tally,
    Told,
    signature_of,
)
from rag_rewards.workers import score_chunks
from rag_rewards.writing import ErrorFile, Output, Spool, open_output, partial_of

if TYPE_CHECKING:
    from rag_rewards.gathering import Usage

ALL_SCORED, STOPPED, SOME_IN_ERROR = 0, 2, 3


class OutputError(RagRewardsError):
    """The output cannot be written any further."""


@dataclass(frozen=True)
class Options:
    """What `score` was asked to do besides the plan."""

    source: str
    output: str = "-"
    workers: int = 1
    on_error: Literal["report", "stop"] = "report"
    group_size: int | None = None
    sort: bool = False
    progress: bool = False
    table: bool = False
    models: ModelOptions = ModelOptions()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"--workers is at least 1, found {self.workers}")
        if self.workers > 1 and self.models.given:
            raise UsageError("models are asked from one process: leave --workers out")
        if self.group_size is not None and self.group_size < 1:
            raise UsageError(f"--group-size is at least 1, found {self.group_size}")
        if self.group_size is not None and self.sort:
            raise UsageError("--group-size goes by position, --sort by key: give one of them")

    @property
    def errors(self) -> str | None:
        """Where the bad rows go; None is standard error."""
        return None if self.table or self.output == "-" else f"{self.output}.errors.jsonl"


@dataclass
class Run:
    """What came of a scoring."""

    tally: Tally = field(default_factory=Tally)
    told: list[Told] = field(default_factory=list)
    usage: Usage | None = None
    judged: str = ""
    signature: str = ""
    stopped_by: str = ""
    partial: str = ""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        if self.stopped_by:
            return STOPPED
        return SOME_IN_ERROR if self.tally.errors else ALL_SCORED


def score(plan: Plan, options: Options) -> Run:
    """Score a file. A regular output takes its name when it is whole, until then it is partial.

    Raises UsageError before anything is scored, OutputError when the output fails half-way.
    """
    _refuse_own_files(options)
    models = options.models
    asking = Grader(plan, models.load(), **models.asking) if models.given else None
    try:
        return _score_asking(plan, options, asking)
    finally:
        if asking is not None:
            asking.close()


def _score_asking(plan: Plan, options: Options, asking: Grader | None) -> Run:
    source = open_source(options.source)
    run = Run(usage=asking.usage if asking else None)
    run.signature = signature_of(plan.build(), asking.fingerprints if asking else {})
    started = time.perf_counter()
    show = progress_bar(source) if options.progress else no_progress()
    try:
        sink = _Sink(options)
    except RagRewardsError:
        source.close()
        raise
    try:
        with show:
            _score_all(plan, options, source, sink, run, show, asking)
        if not run.stopped_by:
            sink.commit()
    except BrokenPipeError:
        raise
    except OSError as error:
        left = f"; what was scored stands in {sink.partial}" if sink.partial else ""
        where = "standard output" if options.output == "-" else options.output
        where = error.filename or where
        raise OutputError(f"cannot write {where}: {error.strerror}{left}") from None
    finally:
        source.close()
        sink.close()
        run.partial = sink.partial
        run.seconds = time.perf_counter() - started
        run.judged = asking.judged() if asking else ""
    return run


def _refuse_own_files(options: Options) -> None:
    """The input must not be a file that this very run makes anew or removes."""
    for made in (partial_of(options.output), options.errors):
        if not (made and os.path.exists(made) and os.path.exists(options.source)):
            continue
        if os.path.samefile(made, options.source):
            raise UsageError(
                f"{options.source} would be overwritten on the way to {options.output}: "
                "rename it, or give another -o"
            )


def _score_all(
    plan: Plan,
    options: Options,
    source: Source,
    sink: _Sink,
    run: Run,
    show: Progress,
    asking: Grader | None,
) -> None:
    scorer = Scorer(plan, asking.gather, asking.fingerprints) if asking else None
    scored = score_chunks(plan, _chunks(plan, options, source), options.workers, scorer)
    with contextlib.closing(scored):  # workers end at once, also when the output fails
        for result in scored:
            if options.on_error == "stop" and result.errors:
                _stop(result, sink, run)
                return
            sink.take(result)
            run.tally.merge(result.tally)
            run.told.extend(result.told)
            show.update(run.tally, source.position(), run.usage)


def _stop(result: Result, sink: _Sink, run: Run) -> None:
    """Keep what stands before the first error of a chunk."""
    first = min(result.error_numbers)
    keep = bisect_left(result.numbers, first) if result.numbers == sorted(result.numbers) else 0
    numbers, ends = result.numbers[:keep], result.ends[:keep]
    sink.take(Result(output=result.output[: max(ends, default=0)], numbers=numbers, ends=ends))
    run.tally.rows += keep
    record = msgspec.json.decode(result.errors[0], type=ErrorRecord)
    run.stopped_by = describe(record)


def describe(record: ErrorRecord) -> str:
    """One line for people."""
    error = record.error
    where = f"{error['path']}: " if error["path"] else ""
    name = f" (id {record.id})" if record.id and record.id != str(record.line) else ""
    return f"line {record.line}{name}: {error['type']}: {where}{error['message']}"


def _chunks(plan: Plan, options: Options, source: Source) -> Iterator[Chunk]:
    if plan.build().scope == "rollout":
        return chunks(source.lines)
    if options.group_size is not None:
        return group_chunks(groups_by_size(source.lines, options.group_size))
    lines = sort_groups(source) if options.sort else source.lines
    return group_chunks(groups_by_key(lines))


class _Sink:
    """The output and the errors file. Under --sort rows are brought back into input order."""

    def __init__(self, options: Options) -> None:
        self.output: Output | None = None if options.table else open_output(options.output)
        self.errors = ErrorFile(options.errors)
        self.spools = (Spool(), Spool()) if options.sort else None

    def take(self, result: Result) -> None:
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

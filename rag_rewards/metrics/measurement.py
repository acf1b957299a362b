"""Measure the rows of a file with several metrics.

The file is read once. Memory holds the id and the group of each row, the fields by which it is
split, and a few numbers per metric.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeGuard, cast

import msgspec

from rag_rewards.errors import RolloutError, RowError, shorten
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import NO_KEY, positions_by_key
from rag_rewards.io.questions import QuestionRow
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.measured_run import ErrorCounter, MeasuredRun, Measurements
from rag_rewards.metrics.metric import GroupMetric, Metric, Parts, RowMetric
from rag_rewards.metrics.subsets import label_reader
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Chunk, ScoredRow, decode_line
from rag_rewards.rows.decisions import decided_as

Gather = Callable[[Sequence[ScoredRow]], Sequence["ScoredRow | RolloutError"]]


class MetricNeeds:
    """The needs of several metrics, for a gatherer."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def needs(self, rollout: Rollout) -> list[Need]:
        """Return the needs of all metrics that can measure the rollout, without repetitions."""
        needs: dict[Need, None] = {}
        for metric in self.metrics:
            try:
                needs.update(dict.fromkeys(metric.needs(rollout)))
            except RolloutError:
                continue
        return list(needs)


def measure(
    name: str,
    chunks: Iterable[Chunk],
    metrics: Sequence[Metric],
    *,
    by: Sequence[str] = (),
    gather: Gather | None = None,
) -> MeasuredRun:
    """Read the rows of a file and measure each with all metrics.

    `by` are the fields by which the rows are split. `gather` adds evidence to rows. Rows without a
    response are errors unless no metric reads the response.
    """
    decoder = _ROW if any(metric.reads_response for metric in metrics) else _QUESTION
    run = MeasuredRun(name, labels={label: [] for label in by})
    accumulators = [_accumulator(metric) for metric in metrics]
    readers = {field: label_reader(field) for field in by}
    for chunk in chunks:
        lines = list(_decode(chunk, run, decoder))
        rows = [row for _, _, row in lines]
        gathered = gather(rows) if gather else None
        first = len(run.ids)
        for number, line, row in lines:
            run.ids.append(str(row.id if row.id is not None else number))
            run.keys.append(row.key)
            run.truncated += row.finish_reason == "length"
            run.unscored += row.error is not None
            run.with_documents += bool(row.documents)
            if decision := decided_as(row.details or {}):
                run.decisions[decision] += 1
            for field_name, label_of in readers.items():
                run.labels[field_name].append(label_of(row, line))
        cache = AnswerCache()
        for accumulator in accumulators:
            _measure_chunk(accumulator, cache, run, first, rows, gathered)
    for accumulator in accumulators:
        run.measurements.append(accumulator.measurements(run))
        run.left_out.append(accumulator.errors.counts())
    return run


def _decode(
    chunk: Chunk, run: MeasuredRun, decoder: msgspec.json.Decoder[Any]
) -> Iterator[tuple[int, bytes, ScoredRow]]:
    for number, line in zip(chunk.numbers, chunk.lines, strict=True):
        run.rows += 1
        row = decode_line(line, decoder)
        try:
            if isinstance(row, RolloutError):
                raise row
            row.parsed  # noqa: B018 (messages without an assistant message are a row in error)
        except RolloutError as error:
            run.errors.add(error, f"line {number}")
            continue
        yield number, line, row


_ROW = msgspec.json.Decoder(ScoredRow)
_QUESTION = msgspec.json.Decoder(QuestionRow)


def _measure_chunk(
    accumulator: _RowAccumulator | _GroupAccumulator,
    cache: AnswerCache,
    run: MeasuredRun,
    first: int,
    rows: Sequence[ScoredRow],
    gathered: Sequence[ScoredRow | RolloutError] | None,
) -> None:
    metric = accumulator.metric
    gauge, is_group_metric = metric.gauge(cache), is_grouped(metric)
    for i, row in enumerate(rows):
        try:
            if is_group_metric and run.keys[first + i] is None:
                raise RowError(NO_KEY)
            mark = gauge(row if gathered is None else with_evidence(metric, row, gathered[i]))
        except RolloutError as error:
            accumulator.errors.add(error, f"row {shorten(run.ids[first + i], 60)}")
            continue
        accumulator.add(first + i, mark)


def with_evidence(metric: Metric, row: ScoredRow, gathered: ScoredRow | RolloutError) -> ScoredRow:
    """Return a row with gathered evidence. Raises its error if this metric needs the evidence."""
    if not isinstance(gathered, RolloutError):
        return gathered
    if all(need.is_met(row) for need in metric.needs(row)):
        return row
    raise gathered


# --- one metric --------------------------------------------------------------------------------


def is_grouped(metric: Metric) -> TypeGuard[GroupMetric]:
    """Return whether the units of a metric are groups."""
    return metric.unit == "group"


def _accumulator(metric: Metric) -> _RowAccumulator | _GroupAccumulator:
    if is_grouped(metric):
        return _GroupAccumulator(metric)
    return _RowAccumulator(cast(RowMetric, metric))


@dataclass
class _RowAccumulator:
    """A metric whose units are rows, with the numbers of the rows."""

    metric: RowMetric
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    rows: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[float] = field(default_factory=lambda: array("d"))

    def add(self, at: int, numbers: Sequence[float]) -> None:
        self.rows.append(at)
        self.numbers.extend(numbers)

    def measurements(self, run: MeasuredRun) -> Measurements:
        parts = self.metric.parts
        columns = {part: self.numbers[i :: len(parts)] for i, part in enumerate(parts)}
        return Measurements(self.rows, [run.prompts[at] for at in self.rows], columns)


@dataclass
class _GroupAccumulator:
    """A metric whose units are groups, with the marks of the rows."""

    metric: GroupMetric
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def add(self, at: int, mark: Any) -> None:
        self.marks.append((at, mark))

    def measurements(self, run: MeasuredRun) -> Measurements:
        members = positions_by_key(run.prompts[at] for at, _ in self.marks)
        parts_by_group: dict[int, Parts] = {}
        for group, positions in sorted(members.items()):
            try:
                parts_by_group[group] = self.metric.fold([self.marks[i][1] for i in positions])
            except RolloutError as error:
                self.errors.add(error, f"group {shorten(run.groups[group], 60)}", "group")
        names = dict.fromkeys(chain.from_iterable(parts_by_group.values()))
        columns: dict[str, Sequence[float]] = {
            name: [parts.get(name, 0.0) for parts in parts_by_group.values()] for name in names
        }
        groups = list(parts_by_group)
        return Measurements(groups, groups, columns)

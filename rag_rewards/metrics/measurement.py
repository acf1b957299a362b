"""Measure the rows of a file with several metrics.

The file is read once. Memory holds the id and the group of each row, the fields by which it is
split, and a few numbers per metric.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard, cast

import msgspec

from rag_rewards.errors import OptionError, RolloutError, RowError, UsageError, shorten
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import positions_by_key
from rag_rewards.metrics.metric import (
    AnswerCache,
    GroupMetric,
    Metric,
    Parts,
    RowMetric,
    Unit,
    folds,
)
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Chunk, QuestionRow, ScoredRow, decode_line
from rag_rewards.rows.column_map import read_columns
from rag_rewards.rows.decisions import decided_as
from rag_rewards.rows.line_groups import NO_KEY

NO_LABEL = "(none)"
MAX_LABELS = 200
"""Number of values of a field up to which it divides rows."""
CONFIDENCE = "confidence"
"""Name of the field with the mean token probability, which is computed from `logprobs.full`."""
Gather = Callable[[Sequence[ScoredRow]], Sequence["ScoredRow | RolloutError"]]


class ErrorCount(msgspec.Struct, kw_only=True):
    """A kind of error: how many rows (or groups) have it, and the first one."""

    type: str
    path: str
    count: int
    first: str
    unit: str = "row"


class ErrorCounter:
    """Counts errors by type and field."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], ErrorCount] = {}

    def add(self, error: RolloutError, where: str, unit: str = "row") -> None:
        """Count an error. Positions in lists are ignored: `nli[1]` and `nli[2]` are one field."""
        path = re.sub(r"\[\d+\]", "[]", error.path)
        key = (type(error).__name__, path or error.message, unit)
        count = self._counts.get(key)
        if count is None:
            field = f"{error.path}: " if path else ""
            first = f"{where}: {field}{error.message}"
            count = ErrorCount(type=key[0], path=path, count=0, first=first, unit=unit)
            self._counts[key] = count
        count.count += 1

    def counts(self) -> list[ErrorCount]:
        """Return the errors by type and field."""
        return list(self._counts.values())


@dataclass
class Measurements:
    """The parts of one metric as columns, with one number per unit.

    `units` are the positions of the units among the rows or groups of the run. `prompts` are the
    prompts of the units: units of the same prompt are not independent and are resampled together.
    """

    units: Sequence[int]
    prompts: Sequence[int]
    columns: Mapping[str, Sequence[float]]

    def __len__(self) -> int:
        return len(self.units)

    def subset(self, chosen: Sequence[int]) -> Measurements:
        """Return some of the units, given by their numbers from 0, in this order."""
        columns = {part: [values[i] for i in chosen] for part, values in self.columns.items()}
        units = [self.units[i] for i in chosen]
        return Measurements(units, [self.prompts[i] for i in chosen], columns)

    def by_prompt(self) -> tuple[int, Mapping[str, Sequence[float]]]:
        """Return the number of prompts, and the columns summed by prompt."""
        order = {prompt: i for i, prompt in enumerate(dict.fromkeys(self.prompts))}
        if len(order) == len(self.units):
            return len(order), self.columns
        places = [order[prompt] for prompt in self.prompts]
        columns: dict[str, Sequence[float]] = {}
        for part, values in self.columns.items():
            sums = [0.0] * len(order)
            for place, value in zip(places, values, strict=True):
                sums[place] += value
            columns[part] = sums
        return len(order), columns

    @property
    def sums(self) -> dict[str, float]:
        """The sum of each column. Raises UsageError if it is too large for a number."""
        sums = {}
        for part, values in self.columns.items():
            try:
                sums[part] = math.fsum(values)
            except OverflowError:
                raise UsageError(
                    f"the sum of a metric ({part}) is too large for a number: leave out the rows "
                    "with values near 1e308"
                ) from None
        return sums


@dataclass
class MeasuredRun:
    """A measured file of rows."""

    name: str
    rows: int = 0
    truncated: int = 0
    unscored: int = 0
    with_documents: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    """The counts of the decisions on answers that the rows state, see `rows.decisions`."""
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    ids: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=dict)
    measurements: list[Measurements] = field(default_factory=list)
    """One entry per metric."""
    left_out: list[list[ErrorCount]] = field(default_factory=list)
    """The errors of each metric."""

    @cached_property
    def groups(self) -> list[str]:
        """The keys of the groups in the order of their first row. Only valid after the last row."""
        return list(dict.fromkeys(key for key in self.keys if key is not None))

    @cached_property
    def prompts(self) -> list[int]:
        """The prompt of each row: the position of its group, or a number of its own."""
        place = {key: at for at, key in enumerate(self.groups)}
        return [-1 - i if key is None else place[key] for i, key in enumerate(self.keys)]

    def name_of(self, unit: Unit, at: int) -> str:
        """Return the id of a row or the key of a group."""
        return self.groups[at] if unit == "group" else self.ids[at]


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
    if folds(metric):
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
    """A metric that folds the marks of the rows of each unit, a group or a row."""

    metric: GroupMetric
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def add(self, at: int, mark: Any) -> None:
        self.marks.append((at, mark))

    def measurements(self, run: MeasuredRun) -> Measurements:
        by_row = not is_grouped(self.metric)
        members = positions_by_key(at if by_row else run.prompts[at] for at, _ in self.marks)
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
        units = list(parts_by_group)
        return Measurements(units, [run.prompts[at] for at in units] if by_row else units, columns)


# --- subsets -------------------------------------------------------------------------------------


def label_reader(name: str) -> Callable[[ScoredRow, bytes], str]:
    """Return a function that reads the value of a field from a row and its line, as text.

    `scores.judge` is the field `judge` of the field `scores`, unless the row has a field
    `scores.judge`. Raises OptionError for a name that no field can have.
    """
    decoder = msgspec.json.Decoder(_one_field(name))

    def label(row: ScoredRow, line: bytes) -> str:
        try:
            value = getattr(decoder.decode(line), "value")  # noqa: B009 (a generated struct)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return NO_LABEL  # the row decodes without this field
        if value is msgspec.UNSET and "." in name:
            value = read_columns(line, [name])[name]
        if value is msgspec.UNSET and name == CONFIDENCE:
            return confidence_bin(row)
        if value is None or value is msgspec.UNSET:
            return NO_LABEL
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return label


def _one_field(name: str) -> type[msgspec.Struct]:
    """Return a type for rows that decodes one field. OptionError for an invalid name."""
    if not name:
        raise OptionError("{by} requires the name of a field")
    try:
        value = ("value", Any, msgspec.UNSET)
        return msgspec.defstruct("OneField", [value], rename={"value": name})
    except ValueError:
        raise OptionError("{by}: {field!r} is not the name of a field", field=name) from None


def mean_probability(logprobs: Sequence[float]) -> float:
    """Return the confidence (1/T) Σ exp(log p_t). Range 0 to 1. Source: TruthRL, section 4.5.

    >>> mean_probability([0.0, math.log(0.5)])
    0.75
    """
    return math.fsum(map(math.exp, logprobs)) / len(logprobs)


def confidence_bin(row: Rollout) -> str:
    """Return the tenth of the row's confidence, such as 0.3-0.4, or `(none)` if it is unknown."""
    full = row.logprobs.full if row.logprobs else ()
    if not full or max(full) > 1e-3:  # log-probabilities are at most 0, except for rounding
        return NO_LABEL
    tenth = min(int(mean_probability(full) * 10), 9)
    return f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}"

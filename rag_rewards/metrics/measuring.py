"""Rows to what each metric found in them.

A run is read once. Of a row stays its id, its group, the fields it is split by, and a few numbers
per metric; the texts are gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeGuard, cast

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import NO_KEY, positions_by_key
from rag_rewards.metrics.metric import GroupMetric, Metric, Parts, RowMetric
from rag_rewards.metrics.reading import Common
from rag_rewards.metrics.sample import Faults, Run, Sample
from rag_rewards.metrics.splitting import labeller
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Chunk, ScoredRow, decode_line

Gather = Callable[[Sequence[ScoredRow]], Sequence["ScoredRow | RolloutError"]]


class Asking:
    """The needs of several metrics, for a gatherer. What one cannot tell costs no other its own."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def needs(self, rollout: Rollout) -> list[Need]:
        found: dict[Need, None] = {}
        for metric in self.metrics:
            try:
                found.update(dict.fromkeys(metric.needs(rollout)))
            except RolloutError:
                continue
        return list(found)


def measure(
    name: str,
    chunks: Iterable[Chunk],
    metrics: Sequence[Metric],
    *,
    by: Sequence[str] = (),
    gather: Gather | None = None,
) -> Run:
    """Read a run: what every metric finds in it, and what it cannot."""
    run = Run(name, labels={label: [] for label in by})
    work = [_at_work(metric) for metric in metrics]
    labelled = {label: labeller(label) for label in by}
    for chunk in chunks:
        read = list(_decoded(chunk, run))
        informed = gather([row for _, _, row in read]) if gather else None
        first = len(run.ids)
        for number, line, row in read:
            run.ids.append(str(row.id if row.id is not None else number))
            run.keys.append(row.key)
            run.truncated += row.finish_reason == "length"
            run.unscored += row.error is not None
            run.with_documents += bool(row.documents)
            for label, label_of in labelled.items():
                run.labels[label].append(label_of(row, line))
        common = Common()
        for one in work:
            _measure_chunk(one, common, run, first, [row for _, _, row in read], informed)
    for one in work:
        run.samples.append(one.sample(run))
        run.left_out.append(one.faults.all())
    return run


def _decoded(chunk: Chunk, run: Run) -> Iterator[tuple[int, bytes, ScoredRow]]:
    for number, line in zip(chunk.numbers, chunk.lines, strict=True):
        run.rows += 1
        row = decode_line(line, _ROW)
        try:
            if isinstance(row, RolloutError):
                raise row
            row.parsed  # noqa: B018 (messages without an assistant message are a row in error)
        except RolloutError as error:
            run.faults.add(error, f"line {number}")
            continue
        yield number, line, row


_ROW = msgspec.json.Decoder(ScoredRow)


def _measure_chunk(
    one: _Rows | _Groups,
    common: Common,
    run: Run,
    first: int,
    rows: Sequence[ScoredRow],
    informed: Sequence[ScoredRow | RolloutError] | None,
) -> None:
    gauge, grouped = one.metric.gauge(common), is_grouped(one.metric)
    for i, row in enumerate(rows):
        try:
            if grouped and run.keys[first + i] is None:
                raise RowError(NO_KEY)
            known = row if informed is None else _known(one.metric, row, informed[i])
            mark = gauge(known)
        except RolloutError as error:
            one.faults.add(error, f"row {short(run.ids[first + i])}")
            continue
        one.take(first + i, mark)


def _known(metric: Metric, row: ScoredRow, informed: ScoredRow | RolloutError) -> ScoredRow:
    """The row with what models said; their failure only where this metric needed them."""
    if not isinstance(informed, RolloutError):
        return informed
    if all(need.is_met(row) for need in metric.needs(row)):
        return row
    raise informed


# --- one metric at work ------------------------------------------------------------------------


def is_grouped(metric: Metric) -> TypeGuard[GroupMetric]:
    return metric.unit == "group"


def _at_work(metric: Metric) -> _Rows | _Groups:
    return _Groups(metric) if is_grouped(metric) else _Rows(cast(RowMetric, metric))


@dataclass
class _Rows:
    """A metric whose units are rows: their numbers, row after row."""

    metric: RowMetric
    faults: Faults = field(default_factory=Faults)
    at: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[float] = field(default_factory=lambda: array("d"))

    def take(self, at: int, numbers: Sequence[float]) -> None:
        self.at.append(at)
        self.numbers.extend(numbers)

    def sample(self, run: Run) -> Sample:
        parts = self.metric.parts
        columns = {part: self.numbers[i :: len(parts)] for i, part in enumerate(parts)}
        return Sample(self.at, [run.prompts[at] for at in self.at], columns)


@dataclass
class _Groups:
    """A metric whose units are groups: the marks of their rows, folded when all are read."""

    metric: GroupMetric
    faults: Faults = field(default_factory=Faults)
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def take(self, at: int, mark: Any) -> None:
        self.marks.append((at, mark))

    def sample(self, run: Run) -> Sample:
        members = positions_by_key(run.prompts[at] for at, _ in self.marks)
        folded: dict[int, Parts] = {}
        for group, positions in sorted(members.items()):
            try:
                folded[group] = self.metric.fold([self.marks[i][1] for i in positions])
            except RolloutError as error:
                self.faults.add(error, f"group {short(run.groups[group])}", "group")
        names = dict.fromkeys(chain.from_iterable(folded.values()))
        columns: dict[str, Sequence[float]] = {
            name: [parts.get(name, 0.0) for parts in folded.values()] for name in names
        }
        return Sample(list(folded), list(folded), columns)


def short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."

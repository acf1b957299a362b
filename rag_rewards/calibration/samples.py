"""One reading of the files: labels, scores and subsets of all rows as arrays.

Memory holds a few numbers per row: a label and a score for each column, the number of the prompt
and of each subset.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import isnan, nan
from typing import Any, Protocol

import msgspec

from rag_rewards.calibration.claims import claim_key, read_claim
from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.errors import DataError, RolloutError, UsageError, shorten
from rag_rewards.metrics.agreement import label_of
from rag_rewards.metrics.measurement import MAX_LABELS, NO_LABEL, ErrorCounter
from rag_rewards.rows import Chunk, ScoredRow, decode_line, line_id, line_key
from rag_rewards.rows.column_map import read_columns
from rag_rewards.rows.line_groups import key_digest
from rag_rewards.text.lengths import auto_length

_NEITHER, _WORD, _NUMBER = range(3)
"""Kinds of labels: 0, 1 or none; a boolean or a text; another number."""
_GRADE_EXPECTED = "expected a grade (a number), found {}: correct the label"
_LABEL_EXPECTED = (
    "expected a label yes or no, found the number {}: correct it, or set "
    "--label-range LOW:HIGH if the column has grades, or --label-threshold to the lowest number "
    "that means yes"
)
LENGTH = "length"
"""Name of the subsets by the length of the response."""
FILE = "file"
"""Name of the subsets by file."""

Result = float | None | RolloutError
"""A score, None for a row without a score, or the reason why the row has none."""


@dataclass(frozen=True)
class RowBatch:
    """The rows of a chunk that are JSON objects.

    columns   values of the columns that labels, scores and subsets read
    rollouts  the rows as rollouts, or the reason why a row is none
    chunk     the lines, with the groups of a recipe that compares rollouts
    """

    chunk: Chunk
    columns: Sequence[dict[str, Any]]
    rollouts: Sequence[ScoredRow | RolloutError]


class ScoreSource(Protocol):
    """A source of scores: a column, a metric, a recipe or an entailment model."""

    @property
    def name(self) -> str: ...
    def scores(self, batch: RowBatch) -> list[Result]:
        """Return the result of each row."""
        ...


@dataclass
class LabelColumn:
    """The labels of a column: a grade for each row, where no is 0 and yes is 1; NaN if missing.

    left_out   number of rows without a label in any column, which are not scored
    is_graded  whether the labels are grades, after `settle`
    kinds      the kind of each label: a word, a number other than 0 and 1, or neither
    first      place and text of the first label of each kind
    """

    name: str
    values: array[float] = field(default_factory=lambda: array("d"))
    left_out: int = 0
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    is_graded: bool = False
    kinds: bytearray = field(default_factory=bytearray)
    first: dict[int, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def grades(self) -> list[float]:
        """The labels that are not missing, after `settle`."""
        return [value for value in self.values if not isnan(value)]

    def add(self, label: bool | float | None, value: Any, place: Callable[[], str]) -> None:
        """Append the label of a row. `value` and `place` are for messages."""
        kind = _NEITHER
        if label is not None:
            kind = _WORD if isinstance(label, bool) else _NEITHER if label in (0, 1) else _NUMBER
        if kind and kind not in self.first:
            self.first[kind] = place(), shorten(repr(value), 60)
        self.kinds.append(kind)
        self.values.append(nan if label is None else float(label))

    def settle(self, is_graded: bool) -> None:
        """Decide whether the labels are grades, after all rows were read.

        They are if `is_graded`, or if most of them are numbers other than 0 and 1. A word among
        grades, or such a number among the labels yes and no, is an error of its row.
        """
        labels = sum(not isnan(value) for value in self.values)
        self.is_graded = is_graded or 2 * self.kinds.count(_NUMBER) > labels
        kind = _WORD if self.is_graded else _NUMBER
        place, text = self.first.get(kind, ("", ""))
        message = _GRADE_EXPECTED if self.is_graded else _LABEL_EXPECTED
        error = DataError(message.format(text), self.name)
        for row, other in enumerate(self.kinds):
            if other == kind:
                self.values[row] = nan
                self.errors.add(error, place)


@dataclass
class ScoreColumn:
    """The scores of a source: NaN for a row without a score. `missing` counts rows without one."""

    name: str
    values: array[float] = field(default_factory=lambda: array("d"))
    missing: int = 0
    errors: ErrorCounter = field(default_factory=ErrorCounter)


@dataclass
class Subsets:
    """The subset of each row: `codes` are positions in `names`."""

    names: dict[str, int] = field(default_factory=dict)
    codes: array[int] = field(default_factory=lambda: array("H"))

    def add(self, name: str) -> None:
        """Append the subset of a row."""
        self.codes.append(self.names.setdefault(name, len(self.names)))


@dataclass
class Samples:
    """The labels, scores and subsets of all rows. `errors` counts lines that are no rows."""

    labels: list[LabelColumn]
    scores: list[ScoreColumn]
    subsets: dict[str, Subsets]
    lines: int = 0
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    prompts: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.prompts)


class SampleReader:
    """Reads the rows of the files of `options` into `samples`."""

    def __init__(self, options: CalibrateOptions, sources: Sequence[ScoreSource]) -> None:
        names = (*options.label, *options.by, *options.column)
        self._columns = list(dict.fromkeys(names))
        self._sources = sources
        self._options = options
        self._prompts: dict[bytes, int] = {}
        subsets = [FILE] * (len(options.sources) > 1) + [*options.by, LENGTH]
        self.samples = Samples(
            [LabelColumn(name) for name in options.label],
            [ScoreColumn(source.name) for source in sources],
            {name: Subsets() for name in subsets},
        )

    def read(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Read the rows of a file. Raises UsageError if a column has too many values."""
        for chunk in chunks:
            batch = self._batch(chunk, name)
            self._add_rows(batch, name)
            for source, scores in zip(self._sources, self.samples.scores, strict=True):
                self._add_scores(scores, source.scores(batch), batch, name)

    def _place(self, name: str, number: int, line: bytes) -> str:
        """Return the place of a line for messages."""
        file = f"{name}, " if FILE in self.samples.subsets else ""
        own = line_id(line)
        return f"{file}line {number}" + (f" (id {shorten(own, 60)})" if own else "")

    def _batch(self, chunk: Chunk, name: str) -> RowBatch:
        """Return the rows of a chunk, and append their labels.

        Rows without any label are left out, unless a recipe compares them with others.
        """
        columns: list[dict[str, Any]] = []
        chosen: list[int] = []
        for at, line in enumerate(chunk.lines):
            self.samples.lines += 1
            place = partial(self._place, name, chunk.numbers[at], line)
            try:
                own = read_columns(line, self._columns)
            except RolloutError as error:
                self.samples.errors.add(error, place())
                continue
            if self._add_labels(own, place, keep=chunk.groups is not None):
                columns.append(own)
                chosen.append(at)
        if len(chosen) < len(chunk.lines):
            chunk = _chosen(chunk, chosen)
        rollouts = [decode_line(line, _ROW) for line in chunk.lines]
        return RowBatch(chunk, columns, rollouts)

    def _add_rows(self, batch: RowBatch, name: str) -> None:
        """Append the prompts and the subsets of rows."""
        samples = self.samples
        for row, line in enumerate(batch.chunk.lines):
            key = claim_key(line) if self._options.claims else line_key(line)
            # A row without a key is a prompt of its own.
            own = f"\0{name}\0{batch.chunk.numbers[row]}" if key is None else key
            samples.prompts.append(self._prompts.setdefault(key_digest(own), len(self._prompts)))
            values = {FILE: name, LENGTH: self._length(batch, row)}
            for column, subsets in samples.subsets.items():
                if column in self._options.by:
                    values[column] = _subset_name(batch.columns[row][column])
                subsets.add(values[column])
                if len(subsets.names) > MAX_LABELS:
                    raise UsageError(
                        f"{column!r} has more than {MAX_LABELS} values: choose another field "
                        "to divide the rows by"
                    )

    def _length(self, batch: RowBatch, row: int) -> str:
        """Return the range of the number of words of the claim, or of the visible response."""
        try:
            if self._options.claims:
                text = read_claim(batch.chunk.lines[row])[1]
            else:
                text = valid(batch.rollouts[row]).parsed.visible
            length = auto_length(text)
        except RolloutError:
            return NO_LABEL
        ends = self._options.lengths
        at = bisect_left(ends, length)
        low = ends[at - 1] + 1 if at else 0
        return f"{low}-{ends[at]}" if at < len(ends) else f"{low}+"

    def _add_labels(self, columns: dict[str, Any], place: Callable[[], str], keep: bool) -> bool:
        """Append the labels of a row, unless it has none. Return whether they were appended.

        `place` returns the place of the row for messages, `keep` is for rows without a label.
        """
        row_labels: list[bool | float | None] = []
        threshold = self._options.label_threshold
        for labels in self.samples.labels:
            try:
                label = label_of(columns[labels.name], threshold, labels.name)
            except RolloutError as error:
                labels.errors.add(error, place())
                label = None
            row_labels.append(label)
        is_labelled = keep or any(label is not None for label in row_labels)
        for labels, label in zip(self.samples.labels, row_labels, strict=True):
            if is_labelled:
                labels.add(label, columns[labels.name], place)
            else:
                labels.left_out += 1
        return is_labelled

    def _add_scores(
        self, scores: ScoreColumn, results: Sequence[Result], batch: RowBatch, name: str
    ) -> None:
        for row, result in enumerate(results):
            if isinstance(result, RolloutError):
                number, line = batch.chunk.numbers[row], batch.chunk.lines[row]
                scores.errors.add(result, self._place(name, number, line))
            elif result is None:
                scores.missing += 1
            scores.values.append(result if isinstance(result, (int, float)) else nan)


_ROW = msgspec.json.Decoder(ScoredRow)


def valid(row: ScoredRow | RolloutError) -> ScoredRow:
    """Return a row. Raises the error of a row that is none."""
    if isinstance(row, RolloutError):
        raise row
    return row


def _subset_name(value: Any) -> str:
    if value is None:
        return NO_LABEL
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _chosen(chunk: Chunk, good: Sequence[int]) -> Chunk:
    """Return some lines of a chunk. A group that loses a line has a problem."""
    lines = [chunk.lines[at] for at in good]
    numbers = [chunk.numbers[at] for at in good]
    if chunk.groups is None:
        return Chunk(lines=lines, numbers=numbers)
    rows = set(good)
    sizes, problems = [], []
    for group, problem in zip(chunk.groups, chunk.problems, strict=True):
        size = len(rows.intersection(group))
        if size:
            sizes.append(size)
            reason = "a row of this group cannot be decoded" if size < len(group) else ""
            problems.append(problem or reason)
    return Chunk(lines=lines, numbers=numbers, sizes=sizes, problems=problems)


def positions(samples: Samples, name: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows of each subset, ordered by name; `(none)` is last."""
    subsets = samples.subsets[name]
    rows: list[list[int]] = [[] for _ in subsets.names]
    for row, code in enumerate(subsets.codes):
        rows[code].append(row)
    for subset in sorted(subsets.names, key=_order):
        yield subset, rows[subsets.names[subset]]


def _order(name: str) -> tuple[bool, int, str]:
    """A sort key: names that begin with a number by the number, then the others."""
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    return name == NO_LABEL, int(digits[:18] or 10**18), name

"""Subsets of rows and groups by the values of a field, such as question type or confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.metrics.measured_run import MeasuredRun, Measurements
from rag_rewards.metrics.metric import Metric
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.nested_columns import read_columns

NO_LABEL = "(none)"
MIXED = "(mixed)"
CONFIDENCE = "confidence"
"""Name of the field with the mean token probability, which is computed from `logprobs.full`."""
MAX_LABELS = 200


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


def split(run: MeasuredRun, metrics: Sequence[Metric], field: str) -> dict[str, list[Measurements]]:
    """Return the measurements of a run for each value of a field, in the order of the values.

    A group belongs to a value if all its rows have it, otherwise to `(mixed)`. Without a row that
    could be read, there are no values. Raises UsageError if no row has the field, and if it has too
    many values.
    """
    labels = run.labels[field]
    if set(labels) == {NO_LABEL}:
        raise UsageError(f"{run.name}: no row has {field!r}: choose another field to split by")
    has_groups = any(metric.unit == "group" for metric in metrics)
    group_labels = _labels_of_groups(run, labels) if has_groups else []
    values = {*labels, *group_labels}
    if len(values) > MAX_LABELS:
        raise UsageError(
            f"{field!r} has {len(values):,} values: choose a field with at most {MAX_LABELS}"
        )
    subsets: dict[str, list[Measurements]] = {label: [] for label in sorted(values, key=_order)}
    for metric, measurements in zip(metrics, run.measurements, strict=True):
        own_labels = group_labels if metric.unit == "group" else labels
        members: dict[str, list[int]] = {label: [] for label in subsets}
        for i, unit in enumerate(measurements.units):
            members[own_labels[unit]].append(i)
        for label, chosen in members.items():
            subsets[label].append(measurements.subset(chosen))
    return subsets


def _labels_of_groups(run: MeasuredRun, labels: Sequence[str]) -> list[str]:
    group_labels: dict[str, str] = {}
    for key, label in zip(run.keys, labels, strict=True):
        if key is not None:
            group_labels[key] = label if group_labels.get(key, label) == label else MIXED
    return [group_labels[key] for key in run.groups]


def _order(label: str) -> tuple[int, float, str]:
    """A sort key: numbers by size, then texts, then `(mixed)` and `(none)`."""
    if label in (NO_LABEL, MIXED):
        return 2, 0.0, label
    try:
        number = float(label)
    except ValueError:
        return 1, 0.0, label
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)

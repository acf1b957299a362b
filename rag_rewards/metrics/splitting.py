"""Rows and groups by the values of a field: question type, hops, difficulty, confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.metrics.metric import Metric
from rag_rewards.metrics.sample import Run, Sample
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow

NO_LABEL = "(none)"
MIXED = "(mixed)"
CONFIDENCE = "confidence"
"""Rows by the mean probability of the response's tokens, from `logprobs.full`."""
MOST_LABELS = 200


def labeller(name: str) -> Callable[[ScoredRow, bytes], str]:
    """What a row is called when rows are split by a field."""
    decoder = msgspec.json.Decoder(_one_field(name))

    def label(row: ScoredRow, line: bytes) -> str:
        try:
            value = getattr(decoder.decode(line), "value")  # noqa: B009 (a struct made just now)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return NO_LABEL  # a field that nothing else reads, and that nobody can
        if value is msgspec.UNSET and name == CONFIDENCE:
            return confidence_bin(row)
        if value is None or value is msgspec.UNSET:
            return NO_LABEL
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return label


def _one_field(name: str) -> type[msgspec.Struct]:
    """A row of which one field is read. UsageError for what is no field's name."""
    if not name:
        raise OptionError("{by} requires the name of a field")
    try:
        value = ("value", Any, msgspec.UNSET)
        return msgspec.defstruct("OneField", [value], rename={"value": name})
    except ValueError:
        raise OptionError("{by}: {field!r} is not the name of a field", field=name) from None


def mean_probability(logprobs: Sequence[float]) -> float:
    """(1/T) Σ exp(log p_t): a response's confidence. Range 0 to 1. Source: TruthRL, section 4.5.

    >>> mean_probability([0.0, math.log(0.5)])
    0.75
    """
    return sum(map(math.exp, logprobs)) / len(logprobs)


def confidence_bin(row: Rollout) -> str:
    """Which tenth the row's confidence falls into; `(none)` without log-probabilities."""
    full = row.logprobs.full if row.logprobs else ()
    if not full or max(full) > 1e-3:  # above 0 beyond rounding: no log-probabilities
        return NO_LABEL
    tenth = min(int(mean_probability(full) * 10), 9)
    return f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}"


def split(run: Run, metrics: Sequence[Metric], by: str) -> dict[str, list[Sample]]:
    """The samples of a run for each value of a field, in the values' order.

    A group belongs to a value when all its rows have it, else to `(mixed)`. UsageError where no
    row has the field, or where it has too many values.
    """
    labels = run.labels[by]
    if set(labels) <= {NO_LABEL}:
        raise UsageError(f"{run.name}: no row has {by!r} to split by")
    of_groups = _labels_of_groups(run, labels) if any(m.unit == "group" for m in metrics) else []
    known = {*labels, *of_groups}
    if len(known) > MOST_LABELS:
        raise UsageError(f"{by!r} has {len(known):,} values; a table has at most {MOST_LABELS}")
    parted: dict[str, list[Sample]] = {label: [] for label in sorted(known, key=_in_order)}
    for metric, sample in zip(metrics, run.samples, strict=True):
        own = of_groups if metric.unit == "group" else labels
        chosen: dict[str, list[int]] = {label: [] for label in parted}
        for i, at in enumerate(sample.at):
            chosen[own[at]].append(i)
        for label, members in chosen.items():
            parted[label].append(sample.only(members))
    return parted


def _labels_of_groups(run: Run, labels: Sequence[str]) -> list[str]:
    found: dict[str, str] = {}
    for key, label in zip(run.keys, labels, strict=True):
        if key is not None:
            found[key] = label if found.get(key, label) == label else MIXED
    return [found[key] for key in run.groups]


def _in_order(label: str) -> tuple[int, float, str]:
    """Numbers by size, then texts; what is no value comes last."""
    if label in (NO_LABEL, MIXED):
        return 2, 0.0, label
    try:
        number = float(label)
    except ValueError:
        return 1, 0.0, label
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)

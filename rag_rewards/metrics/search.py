"""Metrics of search agents: the number of searches, and what each of them finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rag_rewards.errors import DataError, UsageError
from rag_rewards.metrics.metric import AnswerCache, Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rollout import Rollout, canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.gold_forms import contains_answer, normal_forms
from rag_rewards.text.normalize import squad
from rag_rewards.turns.dialects import DIALECTS
from rag_rewards.turns.trajectory import Reading, Trajectory, turn_counts
from rag_rewards.turns.turn import Document

MAX_INDEX = 5
"""Searches that have values of their own. Later searches count in the other values."""
Gold = Literal["auto", "supporting", "documents", "answers"]
"""What a search should find: the supporting documents, the texts of the gold documents, or the gold
answers; auto: the first of these that the row has."""


def new_shares(found: Sequence[frozenset[int]], size: int) -> tuple[list[float], list[float]]:
    """Return r_t = |G_t| / |G| and n_t = |G_t ∖ (G_1 ∪ … ∪ G_{t−1})| / |G| for each search.

    found  G_t, the parts of the gold data G that search t finds
    size   |G|

    >>> new_shares([frozenset({0}), frozenset({0, 1})], 2)
    ([0.5, 1.0], [0.5, 0.5])
    """
    earlier: set[int] = set()
    recalls, gains = [], []
    for parts in found:
        recalls.append(len(parts) / size)
        gains.append(len(parts - earlier) / size)
        earlier |= parts
    return recalls, gains


@dataclass(frozen=True, repr=False)
class Searches(MetricBase):
    """Mean number of searches of a rollout. Range at least 0.

    A search is a turn with a query and with results, which can be empty. Further values: `turns`,
    the mean number of turns; `search1`, `search2` …, the share of rollouts with at least this
    number of searches; `duplicates`, the share of queries that repeat an earlier query of the
    rollout after `squad`; `empty`, the share of turns with a query that got no document; and
    `malformed`, the share of malformed turns. `dialect` is that of the recipes.
    """

    dialect: str = "auto"

    name = "searches"
    parts = (
        *("searches", "rows", "turns", "queries", "repeated", "query_turns", "empty", "malformed"),
        *(f"search{t}" for t in range(1, MAX_INDEX + 1)),
    )
    main_ratio = ("searches", "rows")

    def __post_init__(self) -> None:
        _check_dialect(self.dialect)

    def gauge(self, cache: AnswerCache) -> Gauge:
        def measure(row: ScoredRow) -> tuple[float, ...]:
            counts = turn_counts(row.trajectory(Reading(self.dialect)))
            return (
                *(float(counts.searches), 1.0, float(counts.turns)),
                *(float(counts.queries), float(counts.repeated)),
                *(float(counts.query_turns), float(counts.empty), float(counts.malformed)),
                *(float(counts.searches >= t) for t in range(1, MAX_INDEX + 1)),
            )

        return measure

    def values(self, sums: Parts) -> Values:
        rows, turns = sums["rows"], sums["turns"]
        values = {
            "searches": ratio(sums["searches"], rows),
            "turns": ratio(turns, rows),
            "duplicates": ratio(sums["repeated"], sums["queries"]),
            "empty": ratio(sums["empty"], sums["query_turns"]),
            "malformed": ratio(sums["malformed"], turns),
        }
        for t in range(1, MAX_INDEX + 1):
            values[f"search{t}"] = ratio(sums[f"search{t}"], rows)
        return values


@dataclass(frozen=True, repr=False)
@check_choices
class SearchRecall(MetricBase):
    """Mean share of the gold data that the searches of a rollout find. Range 0 to 1.

    G is the gold data of the rollout, and G_t the part of it in the results of search t. The value
    is the mean of |G_1 ∪ … ∪ G_T| / |G|. Further values: `recallT`, the mean of r_t = |G_t| / |G|
    over the rollouts with at least t searches; `newT`, the mean of the share that search t finds
    first, over the same rollouts; and `per_search`, the mean of r_t over all searches.

    `gold=supporting`: G are the supporting documents. A result is one of them if it has the same
    id or, without ids, the same text after `squad`. `gold=documents`: G are the texts of the field
    `gold_documents`. A result is one of them if its text is the same after `squad`, with or without
    its title. `gold=answers`: G are the required answers, of which an alias must occur in a result
    as whole words, after `squad`; rows whose gold answers are only yes or no are counted as
    `closed` and excluded. `gold=auto`: supporting documents, else gold documents, else answers.
    `dialect` is that of the recipes.
    """

    gold: Gold = "auto"
    dialect: str = "auto"

    name = "search-recall"
    _numbers: ClassVar[range] = range(1, MAX_INDEX + 1)
    parts = (
        *("found", "rows", "closed", "recalls", "searches"),
        *(f"recall{t}" for t in range(1, MAX_INDEX + 1)),
        *(f"new{t}" for t in range(1, MAX_INDEX + 1)),
        *(f"search{t}" for t in range(1, MAX_INDEX + 1)),
    )
    main_ratio = ("found", "rows")

    def __post_init__(self) -> None:
        _check_dialect(self.dialect)

    def gauge(self, cache: AnswerCache) -> Gauge:
        def measure(row: ScoredRow) -> tuple[float, ...]:
            found = found_by_search(row, row.trajectory(Reading(self.dialect)), self.gold)
            if found is None:
                return (0.0, 0.0, 1.0, *[0.0] * (len(self.parts) - 3))
            recalls, gains = new_shares(*found)
            shown, first = _padded(recalls), _padded(gains)
            return (
                *(math.fsum(gains), 1.0, 0.0, math.fsum(recalls), float(len(recalls))),
                *(*shown, *first),
                *(float(len(recalls) >= t) for t in self._numbers),
            )

        return measure

    def values(self, sums: Parts) -> Values:
        values = {
            self.name: ratio(sums["found"], sums["rows"]),
            "per_search": ratio(sums["recalls"], sums["searches"]),
        }
        for t in self._numbers:
            if number := sums[f"search{t}"]:
                values[f"recall{t}"] = sums[f"recall{t}"] / number
                values[f"new{t}"] = sums[f"new{t}"] / number
        return values


def _padded(values: Sequence[float]) -> list[float]:
    return [*values, *[0.0] * MAX_INDEX][:MAX_INDEX]


def found_by_search(
    row: Rollout, run: Trajectory, gold: Gold
) -> tuple[list[frozenset[int]], int] | None:
    """Return the parts of the gold data that each search finds, and the number of parts.

    None if all gold answers are yes, no or empty. Raises DataError for a row without gold data.
    """
    searches = [turn.results or () for turn in run.turns if turn.is_search]
    if gold == "auto":
        gold = _gold_of(row)
    if gold in ("supporting", "documents"):
        wanted = _supporting_keys(row) if gold == "supporting" else _gold_texts(row)
        keys = [{key for result in results for key in _keys(result, gold)} for results in searches]
        return [
            frozenset(i for i, names in enumerate(wanted) if not names.isdisjoint(each))
            for each in keys
        ], len(wanted)
    forms = [normal_forms(aliases) for aliases in row.gold]
    forms = [aliases for aliases in forms if aliases]
    if not forms:
        return None
    texts = [[squad(result.titled_text) for result in results] for results in searches]
    return [
        frozenset(
            i
            for i, aliases in enumerate(forms)
            if any(contains_answer(text, aliases) for text in each)
        )
        for each in texts
    ], len(forms)


def _gold_of(row: Rollout) -> Gold:
    if row.supporting:
        return "supporting"
    return "documents" if row.gold_documents else "answers"


def _gold_texts(row: Rollout) -> list[set[str]]:
    """Return the key by which a result is each of the gold documents, without empty texts."""
    texts = dict.fromkeys(filter(None, map(squad, row.gold_documents or ())))
    if not texts:
        raise DataError("missing: the metric compares the results with its texts", "gold_documents")
    return [{f"text {text}"} for text in texts]


def _keys(result: Document, gold: Gold) -> set[str]:
    """Return the keys of a result, which are those of the documents that it equals."""
    if gold == "supporting":
        return {_key(result)}
    return {f"text {squad(result.text)}", f"text {squad(result.titled_text)}"}


def _supporting_keys(row: Rollout) -> list[set[str]]:
    """Return the keys by which a result is each of the supporting documents."""
    if not row.supporting:
        raise DataError("missing: the metric compares the results with it", "supporting")
    documents = dict(zip(row.labels, row.documents or (), strict=True))
    keys: dict[str, set[str]] = {}
    for reference in map(canonical, row.supporting):
        document = documents.get(row.label_of(reference) or "")
        names = {f"id {reference}"} if document is None else {_key(document)}
        keys[reference] = names | ({f"text {squad(document.text)}"} if document else set())
    return list(keys.values())


def _key(document: Document) -> str:
    if document.id is not None:
        return f"id {canonical(document.id)}"
    return f"text {squad(document.text)}"


def _check_dialect(dialect: str) -> None:
    if dialect != "auto" and dialect not in DIALECTS:
        names = ", ".join(("auto", *DIALECTS))
        raise UsageError(f"unknown dialect {dialect!r}: choose {names}")

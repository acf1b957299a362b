"""The reasons for the components of search agents, and how a rollout could increase them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rag_rewards.rows import ScoredRow

Reason = tuple[str, str]

_ORDER = {
    "r1-searcher": "<think> … (query, documents) … </think> <answer>…</answer>",
    "tools": "one tool call per turn, and a last turn without a call",
}
"""The form of a rollout by dialect; think and search tags for the others."""


def is_search_agent(row: ScoredRow) -> bool:
    """Return whether the recipe of a row reads turns."""
    details = row.details or {}
    return "dialect" in details and "searches" in details


def search_reason(row: ScoredRow, name: str, value: float) -> Reason | None:
    """Return the reason for a component of a search agent; None if the recipe reads no turns."""
    if name not in _REASONS or not is_search_agent(row):
        return None
    return _REASONS[name](row.details or {}, value)


def _format(details: Mapping[str, Any], value: float) -> Reason:
    form = _ORDER.get(details["dialect"], "<think>, then <search> or <answer>, in every turn")
    if value:
        return "the tags are in the order of the dialect", ""
    return "a tag is missing, repeated or misplaced, or there is other text", f"write {form}"


def _retrieval(details: Mapping[str, Any], value: float) -> Reason:
    if value:
        return "the results contain the gold answer", ""
    if not details["searches"]:
        return "there is no search", "search"
    return "no result contains the gold answer", "write queries that find the gold answer"


def _searched(details: Mapping[str, Any], value: float) -> Reason:
    number = details["searches"]
    return (f"searches: {number}", "") if value else ("there is no search", "search")


def _malformed(details: Mapping[str, Any], value: float) -> Reason:
    turns = details.get("turns") or ()
    names = [
        f"turn {t}: {', '.join(turn['malformed'])}"
        for t, turn in enumerate(turns, start=1)
        if turn.get("malformed")
    ]
    return "; ".join(names[:5]) or "no turn is malformed", ""


def _search_keys(details: Mapping[str, Any], value: float) -> Reason:
    return "mean F1 of the best query for each search key", "" if value >= 1 else "query each key"


def _gain(details: Mapping[str, Any], value: float) -> Reason:
    return "what the turns found that earlier turns had not found", ""


def _redundancy(details: Mapping[str, Any], value: float) -> Reason:
    change = "write queries that find other documents" if value else ""
    return "share of documents that an earlier turn had found, summed over the turns", change


def _info_gain(details: Mapping[str, Any], value: float) -> Reason:
    return "increase of the likelihood of the gold answer over the turns", ""


def _prior(details: Mapping[str, Any], value: float) -> Reason:
    return "likelihood of the gold answer before the first search", ""


def _posterior(details: Mapping[str, Any], value: float) -> Reason:
    return "likelihood of the gold answer before the last turn", ""


_REASONS: dict[str, Callable[[Mapping[str, Any], float], Reason]] = {
    "format": _format,
    "retrieval": _retrieval,
    "searched": _searched,
    "malformed": _malformed,
    "search_keys": _search_keys,
    "gain": _gain,
    "redundancy": _redundancy,
    "info_gain": _info_gain,
    "prior": _prior,
    "posterior": _posterior,
}

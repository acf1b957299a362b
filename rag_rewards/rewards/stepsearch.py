"""The parts of StepSearch's reward: search keys, information gain, redundancy and coverage."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import Literal

from rag_rewards.errors import DataError
from rag_rewards.rewards.answer import multiset_f1
from rag_rewards.text.normalize import squad

Assign = Literal["last", "best"]


def key_score(
    queries: Sequence[str], keys: Sequence[Sequence[str]], assign: Assign = "last"
) -> float:
    """Return the mean over the keys of the best F1 of a query to one of the aliases of a key.

    A query serves the key that it fits best, the first one of several. `last`: a later query of the
    same key replaces an earlier one; `best`: the greatest F1 counts. Range 0 to 1. Raises
    DataError without a key. Source: StepSearch, released code at 43215ba, qa_step.py (last).

    >>> key_score(["mayor of lyon", "jean"], [["mayor of lyon"], ["jean dupont birthplace"]])
    0.75
    """
    if not keys:
        raise DataError("contains no search key", "search_keys")
    tokens = [[squad(alias).split() for alias in aliases] for aliases in keys]
    matched = [0.0] * len(keys)
    for query in queries:
        words = squad(query).split()
        values = [
            max((multiset_f1(words, alias) for alias in aliases if alias), default=0.0)
            if words
            else 0.0
            for aliases in tokens
        ]
        best = max(range(len(keys)), key=values.__getitem__)
        if values[best]:
            matched[best] = values[best] if assign == "last" else max(matched[best], values[best])
    return math.fsum(matched) / len(keys)


def gains(similarities: Sequence[Sequence[Sequence[float]]], references: int) -> list[float]:
    """Return the information gain of each search.

    similarities  of each document of each search to each gold document
    references    number of gold documents

    gain_t = (1/n)·Σ_i max(c_i − m_i, 0), where c_i is the greatest similarity of a document of the
    search to the gold document i, and m_i is the greatest one of earlier searches. The sum of all
    gains is at most 1. Raises DataError without a gold document, or for a document without one
    similarity per gold document. Source: StepSearch, released code at 43215ba, qa_step.py.

    >>> [round(g, 6) for g in gains([[[0.6, 0.3]], [[0.5, 0.8], [0.1, 0.0]]], 2)]
    [0.45, 0.25]
    """
    if references < 1:
        raise DataError("contains no gold document", "gold_documents")
    for t, documents in enumerate(similarities):
        for i, values in enumerate(documents):
            if len(values) != references:
                raise DataError(
                    f"has {len(values)} values for {references} gold documents: give one for each",
                    f"similarities[{t}][{i}]",
                )
    reached = [0.0] * references
    result: list[float] = []
    for documents in similarities:
        current = [
            max((document[i] for document in documents), default=0.0) for i in range(references)
        ]
        rise = [max(now - before, 0.0) for now, before in zip(current, reached, strict=True)]
        result.append(math.fsum(rise) / references)
        reached = [max(pair) for pair in zip(current, reached, strict=True)]
    return result


def redundancies(searches: Sequence[Sequence[Hashable]]) -> list[float]:
    """Return the share of the documents of each search that an earlier result repeats.

    >>> redundancies([["d1", "d2"], ["d2", "d3"], []])
    [0.0, 0.5, 0.0]
    """
    seen: set[Hashable] = set()
    shares: list[float] = []
    for documents in searches:
        repeated = 0
        for document in documents:
            repeated += document in seen
            seen.add(document)
        shares.append(repeated / len(documents) if documents else 0.0)
    return shares


def coverage_rises(
    found: Sequence[Collection[Hashable]],
    gold: Collection[Hashable],
    of: Literal["turn", "all"] = "turn",
) -> list[float]:
    """Return how much each search raises the share of the gold documents that were found.

    found  ids of the results of each search
    of     `turn`: the share among the results of one search; `all`: among those of all searches so
           far. The rise is that of the running maximum, so that all rises sum to at most 1

    Raises DataError without a gold document. Source: InForage, qhqjhj00/InForage@fe5f0b1
    tools/llm_agent/generation.py (turn).

    >>> coverage_rises([{1}, {1}, {1, 2}], {1, 2}), coverage_rises([{1}, {2}], {1, 2})
    ([0.5, 0.0, 0.5], [0.5, 0.0])
    """
    wanted = set(gold)
    if not wanted:
        raise DataError("contains no document: name the gold documents", "supporting")
    together: set[Hashable] = set()
    best = 0.0
    rises: list[float] = []
    for ids in found:
        here = wanted.intersection(ids)
        together |= here
        share = len(here if of == "turn" else together) / len(wanted)
        rises.append(max(share - best, 0.0))
        best = max(best, share)
    return rises


def efficiency(turns: int, factor: float = 0.95) -> float:
    """Return factor^(T − 2) for T ≥ 4 turns, and 1 for fewer. Source: InForage, main_ppo.py.

    >>> efficiency(3), round(efficiency(4), 6)
    (1.0, 0.9025)
    """
    return factor ** (turns - 2) if turns >= 4 else 1.0

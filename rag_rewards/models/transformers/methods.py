"""The choice among the methods of scoring.

    tree    keys and values are stored once for a whole group
    shared  shared tokens run once, and branches continue from copies of the cache, which windows,
            recurrent layers and other kinds of attention need
    plain   each pair separately

All of them are exact. Before the first use, their values are compared with those of the whole
forward pass of this model, so that a family for which a method is wrong does not use it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from rag_rewards.errors import describe, shorten
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.transformers.forward import ModelForward
from rag_rewards.models.transformers.scoring import GroupScoring
from rag_rewards.models.transformers.tree import NotInTreeError


def choose_methods(
    forward: ModelForward, tolerance: float, only_plain: bool
) -> tuple[tuple[str, ...], str]:
    """Return the methods to try in order, and what differs from the usual ones.

    tolerance  maximum difference from the values of the whole forward pass, in nats per token

    Changes how `forward` computes logits, if the usual way gives other values.
    """
    check = _Check(forward, tolerance)
    if (reason := check.fault("plain")) and forward.vocabulary.slice:
        forward.vocabulary.use_whole_head()
        if not check.fault("plain"):
            note = f"whole vocabulary, since slices of the head failed their self-check: {reason}"
            return _sharing(check, only_plain, note)
    if reason:
        forward.whole_logits = True
        note = f"whole logits, since the head alone failed its self-check: {reason}"
        return ("plain",), note
    return _sharing(check, only_plain, "")


def _sharing(check: _Check, only_plain: bool, note: str) -> tuple[tuple[str, ...], str]:
    """Return the methods that share tokens as far as their values agree, and last the plain one."""
    if only_plain:
        return ("plain",), note
    faults = {method: check.fault(method) for method in ("tree", "shared")}
    notes = [note] if note else []
    if all(faults.values()):
        notes.append(f"sharing a cache failed its self-check: {faults['shared']}")
    elif faults["tree"] not in ("", _NOT_IN_TREE):
        notes.append(f"the tree failed its self-check: {faults['tree']}")
    return (*(method for method, fault in faults.items() if not fault), "plain"), "; ".join(notes)


_NOT_IN_TREE = "attention that the tree cannot express"
"""Fault of many families, which needs no warning."""


class _Check:
    """A small group, and its log-probabilities by the whole forward pass of the model."""

    def __init__(self, forward: ModelForward, tolerance: float) -> None:
        # Small sizes, so that contexts and rows are computed in several parts.
        self._scoring = GroupScoring(forward, token_budget=64, prefill=8, rows=4)
        self._tolerance = tolerance
        self._request = _probe_request(forward.causal)
        forward.whole_logits = True
        try:
            self._expected = self._scoring.plain(self._request)
        finally:
            forward.whole_logits = False

    def fault(self, method: str) -> str:
        """Return how the values of a method differ from the expected ones; "" if they do not."""
        try:
            (values,) = self._scoring.score(method, [self._request])
            largest = _largest_difference(values, self._expected)
        except NotInTreeError:
            return _NOT_IN_TREE
        except Exception as error:
            return shorten(describe(error), 200)
        return "" if largest <= self._tolerance else f"values differ by up to {largest:.3g} nats"


def _probe_request(causal: Any) -> ScoreRequest:
    """Return a small group of pseudo-random tokens: two contexts and responses with branches."""
    top = causal.config.get_text_config().vocab_size - 1
    numbers = [(i * 7919 + 104729) % max(top, 1) for i in range(64)]
    start, document, end = tuple(numbers[:7]), tuple(numbers[7:16]), tuple(numbers[16:24])
    responses = (tuple(numbers[30:36]), (*numbers[30:32], *numbers[40:45]), tuple(numbers[50:51]))
    return ScoreRequest((start + document + end, start + end), responses)


def _largest_difference(
    one: Mapping[Any, array[float]], other: Mapping[Any, array[float]]
) -> float:
    """Return the largest difference of two values of a pair; infinite for NaN."""
    pairs = [ab for pair in other for ab in zip(one[pair], other[pair], strict=True)]
    gaps = [abs(a - b) for a, b in pairs if a != b]  # not of two infinite values
    return max((gap if gap == gap else float("inf") for gap in gaps), default=0.0)

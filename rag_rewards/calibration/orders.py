"""Grades of a group in several orders: their spread, and the effect of the position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.judge_needs import GroupGrades, GroupGradesNeed
from rag_rewards.groups import Groups
from rag_rewards.metrics.agreement import Figure
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.metrics.metric import Parts, Values
from rag_rewards.rewards.group_judge import MAX_ORDERS
from rag_rewards.rollout import Rollout
from rag_rewards.scorer import Scorer


class OrderReport(msgspec.Struct, kw_only=True):
    """The grades of a group judge in several orders of the responses.

    texts          number of different responses with grades in two or more orders
    spread         mean of the greatest difference between the grades of a response
    position_bias  mean change of the grade of a response from the first position to the last: the
                   slope of grade on position, 0 to 1, within the responses
    """

    component: str
    texts: int
    spread: Figure
    position_bias: Figure


class TextOrders(NamedTuple):
    """One response: its row, the spread, and the sums Σ(p − p̄)(g − ḡ) and Σ(p − p̄)²."""

    row: int
    component: str
    spread: float
    slope: float
    squares: float


def orders_of(
    scorer: Scorer, rollouts: Sequence[Rollout | RolloutError], groups: Groups
) -> Iterator[TextOrders]:
    """Yield the different responses of each group with grades in two or more orders."""
    for group in groups:
        if not any(_has_orders(rollouts[i]) for i in group):
            continue
        members: dict[str, dict[int, GroupGradesNeed]] = {}
        for i in group:
            for need in _needs(scorer, rollouts[i]):
                members.setdefault(need.component, {})[i] = need
        for component, needs in members.items():
            yield from _group_orders(component, needs, rollouts)


def _group_orders(
    component: str, needs: Mapping[int, GroupGradesNeed], rollouts: Sequence[Any]
) -> Iterator[TextOrders]:
    group = GroupGrades(list(needs.values()))
    positions: list[dict[str, int]] = []
    rows = {need.question.responses[0]: i for i, need in needs.items()}
    for text, i in rows.items():
        grades = group.stored_orders(rollouts[i])[:MAX_ORDERS]
        if len(grades) < 2 or len(rows) < 2:
            continue
        positions += map(group.positions, range(len(positions), len(grades)))
        places = [own[text] / (len(rows) - 1) for own in positions[: len(grades)]]
        yield _text_orders(i, component, places, grades)


def _has_orders(rollout: Rollout | RolloutError) -> bool:
    verdicts = None if isinstance(rollout, RolloutError) else rollout.verdicts
    return any(isinstance(each, dict) and "orders" in each for each in (verdicts or {}).values())


def _needs(scorer: Scorer, rollout: Rollout | RolloutError) -> list[GroupGradesNeed]:
    if isinstance(rollout, RolloutError):
        return []
    try:
        return [n for n in scorer.reward.needs(rollout) if isinstance(n, GroupGradesNeed)]
    except RolloutError:
        return []


def _text_orders(
    row: int, component: str, places: Sequence[float], grades: Sequence[float]
) -> TextOrders:
    middle, mean = fsum(places) / len(places), fsum(grades) / len(grades)
    slope = fsum((p - middle) * (g - mean) for p, g in zip(places, grades, strict=True))
    squares = fsum((p - middle) ** 2 for p in places)
    return TextOrders(row, component, max(grades) - min(grades), slope, squares)


def order_reports(
    texts: Sequence[TextOrders], prompts: Sequence[int], resampling: Resampling
) -> list[OrderReport]:
    """Return one report for each component. `prompts` are those of the rows."""
    by_component: dict[str, list[TextOrders]] = {}
    for text in texts:
        by_component.setdefault(text.component, []).append(text)
    return [_report(name, own, prompts, resampling) for name, own in by_component.items()]


def _report(
    component: str, texts: Sequence[TextOrders], prompts: Sequence[int], resampling: Resampling
) -> OrderReport:
    order: dict[int, int] = {}
    for text in texts:
        order.setdefault(prompts[text.row], len(order))
    names = ("spread", "slope", "squares")
    columns = {name: [0.0] * len(order) for name in ("texts", *names)}
    for text in texts:
        at = order[prompts[text.row]]
        columns["texts"][at] += 1
        for name in names:
            columns[name][at] += getattr(text, name)
    values = _values({name: fsum(column) for name, column in columns.items()})
    ends = intervals_of([(_values, columns)], resampling)[0]
    figures = {
        name: Figure(None, reason="every response has the same position in all orders")
        if value is None
        else Figure(value, *(ends.get(name) or ()))
        for name, value in values.items()
    }
    return OrderReport(component=component, texts=len(texts), **figures)


def _values(sums: Parts) -> Values:
    return {
        "spread": sums["spread"] / sums["texts"] if sums["texts"] else None,
        "position_bias": sums["slope"] / sums["squares"] if sums["squares"] else None,
    }

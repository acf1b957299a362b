"""Groups with rewards of turns and advantages computed by hand, for the tests of all trainers.

Sources: the equations of the credit methods. The advantages are rounded to 4 to 6 decimals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rag_rewards import Rollout, Score, custom


@dataclass(frozen=True)
class TurnGroup:
    """A group: for each member the rewards of its turns, and the advantages of a method."""

    name: str
    method: str
    rewards: tuple[tuple[float, ...], ...]
    advantages: tuple[tuple[float, ...], ...]
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 6e-5


_IGPO = ((0.8, 1.1, 1.0), (-0.2, 0.0))
_STOP = ((0.3, 0.3, 1.0), (0.6, 1.0))

GROUPS = (
    TurnGroup(
        "igpo with two pools",
        "igpo",
        _IGPO,
        ((2.3794, 1.9596, 1.0), (-2.3794, -1.0)),
        {"norm": "separate"},
    ),
    TurnGroup("igpo with one pool", "igpo", _IGPO, ((2.3918, 1.9060, 0.8595), (-2.3918, -1.0090))),
    TurnGroup(
        "igpo with a discount",
        "igpo",
        _IGPO,
        ((2.2340, 1.9096, 1.0), (-2.3294, -1.0)),
        {"norm": "separate", "gamma": 0.95},
    ),
    TurnGroup(
        "igpo with a floor under the standard deviation of tiny gains",
        "igpo",
        ((0.0002, 1.0), (-0.0002, 1.0)),
        ((0.002, 0.0), (-0.002, 0.0)),
        {"norm": "separate", "std_floor": 0.1},
        1e-6,
    ),
    TurnGroup(
        "return", "return", _IGPO, ((1.55, 1.05, 0.5), (-1.55, -1.05)), {"scale": "none"}, 1e-6
    ),
    TurnGroup("return with scaling", "return", _IGPO, ((1.0, 0.6774, 0.3226), (-1.0, -0.6774))),
    TurnGroup(
        "return of equal sums",
        "return",
        _STOP,
        ((0.0, 0.15, 0.0), (0.0, -0.15)),
        {"scale": "none"},
        1e-6,
    ),
    TurnGroup("igpo of equal sums", "igpo", _STOP, ((-1.0201, 0.0638, 1.1476), (1.0201, 1.1476))),
    TurnGroup(
        "mt_grpo",
        "mt_grpo",
        ((0.5, 1.0), (0.0, 0.0)),
        ((1.413914, 0.707007), (-1.413914, -0.707007)),
        tolerance=1e-5,
    ),
)
GROUPS_BY_NAME = {group.name: group for group in GROUPS}


def _rewards_of_environment(rollout: Rollout) -> Score:
    entries = tuple(turn.reward for turn in rollout.steps())
    return Score(sum(entry or 0.0 for entry in entries), turns=entries)


ENVIRONMENT = custom("environment", _rewards_of_environment)
"""A recipe whose rewards of turns are those that the environment gave."""


def _half_per_search(rollout: Rollout) -> Score:
    *searches, last = rollout.steps()
    entries = (*(0.5 * turn.is_search for turn in searches), float(last.answer == "Seine"))
    return Score(sum(entries), turns=entries)


SEARCHES = custom("searches", _half_per_search)
"""A recipe that rewards each search with 0.5, and the answer Seine with 1."""


def _outcome_only(rollout: Rollout) -> Score:
    *searches, last = rollout.steps()
    value = float(last.answer == "Seine")
    return Score(value, turns=(*[None] * len(searches), value))


OUTCOME = custom("outcome", _outcome_only)
"""A recipe without a reward before the last turn."""

"""The numbers that a trainer gets for the rollouts of a batch: one reward each, and their means."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rag_rewards.groups import Groups
from rag_rewards.rollout import Score
from rag_rewards.rows.decisions import decisions_of, undecided_share
from rag_rewards.training.advantages import advantages_of_groups


def group_values(
    scores: Sequence[Score | None], groups: Groups, std_floor: float | None = None
) -> list[float]:
    """Return the reward of each rollout, or with `std_floor` the advantage of LEAR.

    An unscored rollout (None) gets the mean of its group.
    """
    values = [score.value if score else None for score in scores]
    if std_floor is not None:
        values = advantages_of_groups(values, groups, std_floor=std_floor)
    return with_group_means(values, groups)


def with_group_means(values: Sequence[float | None], groups: Groups) -> list[float]:
    """Return the values; a missing one is the mean of its group, or else of the batch.

    The advantage of an unscored rollout is then 0 in a trainer that subtracts the mean.

    >>> with_group_means([1.0, None, 3.0, 8.0], [[0, 1, 2], [3]])
    [1.0, 2.0, 3.0, 8.0]
    >>> with_group_means([1.0, 2.0, None], [])
    [1.0, 2.0, 1.5]
    """
    present = [value for value in values if value is not None]
    mean = fmean(present) if present else 0.0
    filled = [mean if value is None else value for value in values]
    for group in groups:
        scored = [value for i in group if (value := values[i]) is not None]
        for i in group:
            if values[i] is None and scored:
                filled[i] = fmean(scored)
    return filled


def component_metrics(name: str, score: Score) -> dict[str, float]:
    """Return the components that have a value, as `name/component`, and `name/undecided`."""
    values = {f"{name}/{key}": v for key, v in score.components.items() if v is not None}
    return values | undecided_metric(name, [score])


def undecided_metric(name: str, scores: Sequence[Score | None]) -> dict[str, float]:
    """Return the share of undecided answers as `name/undecided`; empty if no answer is decided.

    Answers with nothing in common with a gold answer do not count as undecided. For one score, the
    value is 1 or 0.

    >>> undecided_metric("arena", [Score(0.0, details={"decision": "wrong"}), None])
    {'arena/undecided': 0.0}
    """
    share = undecided_share(decisions_of(scores))
    return {} if share is None else {f"{name}/undecided": share}


def component_means(
    name: str, components: Sequence[str], scores: Sequence[Score | None]
) -> dict[str, float]:
    """Return the mean of each component as `name/component`, and the number of unscored rollouts.

    A component without any value is left out. `name/undecided` is the share of undecided answers.
    """
    means = {}
    for component in components:
        present = [
            value
            for score in scores
            if score is not None and (value := score.components.get(component)) is not None
        ]
        if present:
            means[f"{name}/{component}"] = fmean(present)
    means[f"{name}/not_scored"] = float(sum(score is None for score in scores))
    return means | undecided_metric(name, scores)

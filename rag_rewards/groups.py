"""Groups: the rollouts of one prompt, which are compared with each other.

A group of a batch is a sequence of positions. An error of one member can be an error of all of
them, see `fail_groups`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from rag_rewards.errors import BackendError, GroupError, RolloutError, UsageError
from rag_rewards.rollout import Rollout, ScoreOrError, with_row_id

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Rollout)
T = TypeVar("T")

Groups = Sequence[Sequence[int]]
"""The positions of the members of each group."""
Scope = Literal["rollout", "group"]
"""Whether a reward scores single rollouts, or compares the rollouts of a group."""


def rows_of(rows: Iterable[Any], kinds: tuple[type, ...] = (Rollout, RolloutError)) -> list[Any]:
    """Return rollouts and errors in their places as a list. Raises UsageError for other objects."""
    kind = type(rows).__name__
    if not isinstance(rows, (Rollout, str)):
        checked = list(rows)
        if all(issubclass(each, kinds) for each in set(map(type, checked))):
            return checked
        other = next(each for each in checked if not isinstance(each, kinds))
        kind += f" of {type(other).__name__}"
    raise UsageError(
        f"a recipe scores a list of rollouts, found {kind}: use rag_rewards.score(data, recipe) "
        "for mappings and data frames, and put one rollout into a list"
    )


def groups_of(rows: Sequence[Rollout | RolloutError], groups: Groups | None = None) -> Groups:
    """Return the groups of a batch; by default, rollouts with equal keys form a group.

    Raises UsageError unless each position is in one group.
    """
    if groups is None:
        return group_by_key(rows)
    check_groups(groups, len(rows))
    return groups


def positions_by_key(keys: Iterable[K]) -> dict[K, list[int]]:
    """Return the positions of each key, in order of first appearance.

    >>> positions_by_key("aba")
    {'a': [0, 2], 'b': [1]}
    """
    positions: dict[K, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    return positions


def group_by_key(rows: Iterable[Rollout | RolloutError]) -> list[list[int]]:
    """Return the groups of a batch: rollouts with equal keys, in order of first appearance.

    A rollout without a key, or a row that cannot be decoded, forms a group by itself.

    >>> rows = [Rollout(response="a", group="g"), Rollout(response="b"),
    ...         Rollout(response="c", group="g")]
    >>> group_by_key(rows)
    [[0, 2], [1]]
    """
    keys: Iterable[str | int] = (
        position if isinstance(row, RolloutError) or row.key is None else row.key
        for position, row in enumerate(rows)
    )
    return list(positions_by_key(keys).values())


def group_by_position(count: int, size: int) -> list[range]:
    """Return groups of `size` consecutive positions.

    Raises GroupError if `count` is not a multiple of `size`.

    >>> group_by_position(4, 2)
    [range(0, 2), range(2, 4)]
    """
    if count % size:
        raise GroupError(
            f"the number of rollouts ({count}) is not a multiple of the group size ({size}): "
            "complete the groups, or set another group size"
        )
    return [range(start, start + size) for start in range(0, count, size)]


def singletons(count: int) -> list[range]:
    """Return one group for each position, for a reward that compares no rollouts."""
    return [range(position, position + 1) for position in range(count)]


def check_groups(groups: Groups, count: int) -> None:
    """Raise UsageError unless each position of a batch of `count` rollouts is in one group.

    >>> check_groups([[0, 2], [1]], 3)
    """
    places: Counter[int] = Counter(position for group in groups for position in group)
    expected = dict.fromkeys(range(count))
    if places.total() == count and places.keys() == expected.keys():
        return
    outside = [position for position in places if position not in expected]
    repeated = [position for position, times in places.items() if times > 1]
    if outside:
        fault = f"position {outside[0]!r} is not in the batch of {count} rollouts"
    elif repeated:
        fault = f"position {repeated[0]} is in a group more than once, or in several groups"
    else:
        fault = f"position {next(i for i in expected if i not in places)} is in no group"
    raise UsageError(f"groups: {fault}: put each position from 0 to {count - 1} into one group")


def renumber(groups: Groups, positions: Iterable[int]) -> list[list[int]]:
    """Return the groups after a selection of the rollouts at some positions.

    Members outside the selection are removed, and so are groups without other members.

    >>> renumber([[0, 1], [2]], [1, 2])
    [[0], [1]]
    """
    new = {old: position for position, old in enumerate(positions)}
    renumbered = ([new[i] for i in group if i in new] for group in groups)
    return [group for group in renumbered if group]


_REASONS: dict[Scope, str] = {
    "group": "the group contains a row in error",
    "rollout": "a model or server failed on the group",
}


def fail_groups(
    results: Sequence[T | RolloutError],
    groups: Groups,
    rollouts: Sequence[Any] = (),
    *,
    scope: Scope = "group",
) -> list[T | RolloutError]:
    """Return the results, with a GroupError for each member of a group that contains an error.

    If a reward compares rollouts (`scope` is `group`), any error is an error of all members.
    Otherwise, only the failure of a model or server (BackendError) is, because the rollouts that
    need no model would be compared without the others. A member with an error of its own keeps it.
    The new errors contain the ids of `rollouts`.

    >>> down = BackendError("no connection", "verdicts.outcome")
    >>> print(fail_groups([down, 1.0], [[0, 1]], scope="rollout")[1])
    a model or server failed on the group (verdicts.outcome: no connection)
    """
    failed = list(results)
    kind = RolloutError if scope == "group" else BackendError
    if not any(isinstance(result, kind) for result in results):
        return failed
    for group in groups:
        cause = next((results[i] for i in group if isinstance(results[i], kind)), None)
        for i in group if cause is not None else ():
            if not isinstance(results[i], RolloutError):
                error = GroupError(f"{_REASONS[scope]} ({cause})")
                failed[i] = with_row_id(error, rollouts[i]) if rollouts else error
    return failed


def scorable(
    rows: Sequence[R | RolloutError], groups: Groups, scope: Scope
) -> tuple[list[R | RolloutError], list[R], Groups]:
    """Return the rows with the errors of groups, the rollouts among them, and their groups.

    The groups contain positions among these rollouts.
    """
    whole = fail_groups(rows, groups, rows, scope=scope)
    good = {i: row for i, row in enumerate(whole) if not isinstance(row, RolloutError)}
    within = groups if len(good) == len(whole) else renumber(groups, good)
    return whole, list(good.values()), within


def with_results(
    rows: Sequence[Any | RolloutError], results: Iterable[T]
) -> list[T | RolloutError]:
    """Return the errors among the rows in their places, and the results of the other rows."""
    others = iter(results)
    return [row if isinstance(row, RolloutError) else next(others) for row in rows]


def score_whole_groups(
    rows: Sequence[Rollout | RolloutError],
    groups: Groups,
    scope: Scope,
    score: Callable[[list[Rollout], Groups], Iterable[ScoreOrError | None]],
) -> list[ScoreOrError]:
    """Return a score or an error for each row, with the errors of groups.

    `score` is called with the rollouts of groups without an error. It returns None for a rollout
    that cannot be scored because of an error of another member.
    """
    whole, rollouts, within = scorable(rows, groups, scope)
    results = with_results(whole, score(rollouts, within))
    failed = fail_groups(results, groups, rows, scope=scope)
    return [result for result in failed if result is not None]


def first_error(results: Iterable[object]) -> RolloutError | None:
    """Return the first error among the results of a group, or None."""
    return next((result for result in results if isinstance(result, RolloutError)), None)


def raise_errors(results: Iterable[T | RolloutError]) -> list[T]:
    """Return the results. Raises the first error among them."""
    values: list[Any] = list(results)
    if any(issubclass(kind, RolloutError) for kind in set(map(type, values))):
        raise next(value for value in values if isinstance(value, RolloutError))
    return values

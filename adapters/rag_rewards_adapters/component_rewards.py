"""Components as separate rewards, for trainers that normalize each reward by itself (GDPO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rag_rewards.errors import UsageError
from rag_rewards.groups import Groups
from rag_rewards.settings import did_you_mean
from rag_rewards.training.advantages import mean_std

Column = list[float | None]

_BINARY_DIGITS = 16
"""Binary digits of equal values. The 24 digits of float32 contain the sum of 256 of them."""


class SharedPass:
    """One scoring pass for several reward functions, each of which returns one component.

    A trainer calls them one after another with the same list of completions. The first call
    scores it, and the others take their values.
    """

    def __init__(self) -> None:
        self._completions: object = None
        self._columns: dict[str, Column] = {}

    def take(
        self, name: str, completions: object, score: Callable[[], Mapping[str, Column]]
    ) -> Column:
        """Return the values of a component. Each of them can be taken once."""
        if completions is not self._completions or name not in self._columns:
            self._completions, self._columns = completions, dict(score())
        values = self._columns.pop(name)
        if not self._columns:
            self._completions = None
        return values

    def __reduce__(self) -> tuple[type[SharedPass], tuple[()]]:
        return SharedPass, ()


def check_components(
    components: Sequence[str], names: Sequence[str], std_floor: float | None = None
) -> tuple[str, ...]:
    """Return the components. Raises UsageError for none, an unknown one, and `std_floor`."""
    if std_floor is not None:
        raise UsageError("std_floor and components would normalize twice: remove one")
    if not components:
        raise UsageError(f"no component is given: name some of {', '.join(names)}")
    for name in components:
        if name not in names:
            raise UsageError(f"no component {name!r}{did_you_mean(name, names)}")
    if len(set(components)) < len(components):
        raise UsageError(f"components {', '.join(components)}: name each of them once")
    return tuple(components)


def exactly_equal(values: Sequence[float | None], groups: Groups) -> Column:
    """Return values in which the equal values of a group have a standard deviation of exactly 0.

    Trainers compute in float32. There, the mean of equal values can differ from them by a rounding
    error, which a division by the standard deviation turns into an advantage: ms-swift 4.6 gives
    eight rewards of 0.1 the advantage −0.29. The values of such a group are rounded to multiples of
    2^-16, or of 2^(e - 16) for values from 2^(e - 1) to 2^e, so that the sum of 256 of them has no
    rounding error. Other groups do not change.

    >>> exactly_equal([0.1, 0.1, 0.1, 0.2], [[0, 1], [2, 3]])
    [0.100006103515625, 0.100006103515625, 0.1, 0.2]
    """
    result = list(values)
    for group in groups:
        present = [value for i in group if (value := values[i]) is not None]
        if present and not mean_std(present)[1]:
            value_of_all = _rounded(present[0])
            for i in group:
                result[i] = None if values[i] is None else value_of_all
    return result


def _rounded(value: float) -> float:
    scale = _BINARY_DIGITS - max(math.frexp(value)[1], 0)
    return math.ldexp(round(math.ldexp(value, scale)), -scale)


def share_without_signal(columns: Mapping[str, Column], groups: Groups) -> float:
    """Return the share of groups in which no component differs.

    >>> share_without_signal({"a": [1.0, 1.0, 0.0, 1.0]}, [[0, 1], [2, 3]])
    0.5
    """
    count = 0
    for group in groups:
        columns_of_group = [[column[i] for i in group] for column in columns.values()]
        present = [[v for v in column if v is not None] for column in columns_of_group]
        count += not any(mean_std(values)[1] for values in present if values)
    return count / len(groups) if groups else 0.0

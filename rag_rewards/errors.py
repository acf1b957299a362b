"""Everything this package raises on purpose.

    RagRewardsError
    ├── UsageError            arguments that cannot be used
    │   ├── SettingError      unknown or ill-typed setting of a recipe
    │   ├── UnknownRecipeError
    │   └── MissingExtraError an optional dependency is not installed; the message names the extra
    └── RolloutError          one rollout cannot be scored; carries the path of the fault
        ├── RowError          the row does not decode
        ├── DataError         a field that the recipe needs is missing or contradictory
        ├── EvidenceError     evidence of a wrong length, not a number, or impossible
        ├── GroupError        a group is torn, short, or contains a broken row
        └── BackendError      a model, judge or server gave no answer

What a model wrote is never an error: malformed output is data and gets its defined reward.
"""

from __future__ import annotations


class RagRewardsError(Exception):
    """Root of the tree."""


class UsageError(RagRewardsError):
    """The call, not the data, is wrong."""


class SettingError(UsageError):
    """A setting that the recipe does not have, or a value that it cannot take."""


class UnknownRecipeError(UsageError):
    """No recipe of that name."""


class MissingExtraError(UsageError):
    """An optional dependency is missing.

    >>> str(MissingExtraError("pyarrow", extra="parquet"))
    'pyarrow is not installed: pip install "rag-rewards[parquet]"'
    """

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(f'{package} is not installed: pip install "rag-rewards[{extra}]"')


class RolloutError(RagRewardsError):
    """One rollout cannot be scored.

    `path` is the field at fault, in the row's own names (`documents[2].text`); `row` is the
    rollout's id where it is known, filled in by whoever knows it.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.row: str | None = None

    def __str__(self) -> str:
        where = f"row {self.row}: " if self.row is not None else ""
        return where + (f"{self.path}: {self.message}" if self.path else self.message)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message, self.path), {"row": self.row})


class RowError(RolloutError):
    """The row does not decode."""


class DataError(RolloutError):
    """A field that the recipe needs is missing or contradictory."""


class EvidenceError(RolloutError):
    """Evidence that cannot be: wrong length, not finite, a positive log-probability."""


class GroupError(RolloutError):
    """A group that is torn, short, or has a broken member."""


class BackendError(RolloutError):
    """A model, a judge or a server gave no answer; nothing was scored in its place."""

"""Everything this package raises on purpose.

    RagRewardsError
    ├── UsageError            arguments that cannot be used
    │   ├── OptionError       an option that cannot be used; named as in the caller's interface
    │   ├── SettingError      unknown or ill-typed setting of a recipe
    │   ├── UnknownRecipeError
    │   ├── SignatureError    text that is not a signature, or one that cannot be used here
    │   └── MissingExtraError an optional dependency is not installed; the message names the extra
    └── RolloutError          one rollout cannot be scored; carries the path of the fault
        ├── RowError          the row does not decode
        ├── DataError         a field that the recipe needs is missing or contradictory
        ├── EvidenceError     evidence of a wrong length, not a number, or impossible
        ├── GroupError        a group is torn, short, or contains a broken row
        ├── BackendError      a model, judge or server gave no answer
        └── ScoringError      the code of a reward raised an exception on this rollout

What a model wrote is never an error: malformed output is data and gets its defined reward.

Exceptions of other kinds that reach the scoring of a rollout (a panic of a native library, an
exception of one's own reward function) become its ScoringError, so that one rollout cannot end
a run. A UsageError and the exceptions that end or cancel a run pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import Formatter


class RagRewardsError(Exception):
    """Root of the tree."""


class UsageError(RagRewardsError):
    """The call, not the data, is wrong."""


class OptionError(UsageError):
    """An option that cannot be used.

    The same option has different names in Python and on the command line, so the message is a
    template: a placeholder with a value is filled in, any other stands for an option's name.

    >>> error = OptionError("{judge} requires {judge_model}, found {value!r}", value=None)
    >>> str(error)
    'judge requires judge_model, found None'
    >>> error.message(lambda name: "--" + name.replace("_", "-"))
    '--judge requires --judge-model, found None'
    """

    def __init__(self, template: str, **values: object) -> None:
        super().__init__(template, values)
        self.template = template
        self.values = values

    def message(self, name_of: Callable[[str], str]) -> str:
        """Return the message with the names that options have in the caller's interface."""
        names = (name for _, name, _, _ in Formatter().parse(self.template) if name)
        options = {name: name_of(name) for name in names if name not in self.values}
        return self.template.format(**options, **self.values)

    def __str__(self) -> str:
        return self.message(str)

    def __reduce__(self) -> tuple[object, ...]:
        return (_option_error, (self.template, self.values))


def _option_error(template: str, values: dict[str, object]) -> OptionError:
    return OptionError(template, **values)


class SettingError(UsageError):
    """A setting that the recipe does not have, or a value that it cannot take."""


class UnknownRecipeError(UsageError):
    """No recipe of that name."""


class SignatureError(UsageError):
    """Text that is not a signature, or a signature that this version cannot use."""


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


class ScoringError(RolloutError):
    """The code of a reward raised an exception on this rollout.

    The message names the exception; `__cause__` is the exception itself.
    """


@contextmanager
def scoring_errors() -> Iterator[None]:
    """Raise a ScoringError in place of any exception of the code that scores a rollout.

    Errors of this package and the exceptions that end or cancel a run pass through unchanged.

    >>> with scoring_errors():
    ...     1 / 0
    Traceback (most recent call last):
    rag_rewards.errors.ScoringError: ZeroDivisionError: division by zero
    """
    try:
        yield
    except RagRewardsError:
        raise
    except BaseException as error:
        if is_control_flow(error):
            raise
        raise ScoringError(describe(error)) from error


def describe(error: BaseException) -> str:
    """Return an exception's type and message on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def is_control_flow(error: BaseException) -> bool:
    """Return whether an exception ends or cancels a run, so that nothing may replace it."""
    if isinstance(error, Exception):
        return False
    from asyncio import CancelledError  # imported here because few runs need it

    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError))

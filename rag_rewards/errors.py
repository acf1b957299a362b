"""The exceptions of this package, and texts of rows in messages.

    RagRewardsError
    ├── UsageError            an argument is invalid
    │   ├── OptionError       an option is invalid; named as in the interface of the caller
    │   ├── SettingError      a setting of a recipe, reward or metric is unknown or invalid
    │   ├── UnknownRecipeError  there is no recipe of this name
    │   ├── SignatureError    a signature cannot be parsed or used
    │   └── MissingExtraError an optional dependency is not installed; the message names the extra
    └── RolloutError          one rollout cannot be scored; has the path of the field at fault
        ├── RowError          the row cannot be decoded
        ├── DataError         a field that the recipe needs is missing or contradictory
        ├── EvidenceError     evidence has a wrong length or impossible values
        ├── GroupError        a group is incomplete, or contains a row in error
        ├── BackendError      a model, judge or server returned no result
        └── ScoringError      the code of a reward raised an exception

A malformed response of a model is not an error. It is data and gets the reward that the recipe
defines for it.

Any other exception while a rollout is scored, such as one of your own reward function, becomes its
ScoringError, so that one rollout cannot end a run. A UsageError and the exceptions that end or
cancel a run pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import Formatter
from typing import Any


class RagRewardsError(Exception):
    """Base of all exceptions of this package."""


class UsageError(RagRewardsError):
    """An argument of the call is invalid."""


class OptionError(UsageError):
    """An option is invalid.

    An option has different names in Python and on the command line, so that the message is a
    template. A placeholder without a value is the name of an option.

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


def cannot_resume(path: object, reason: str) -> OptionError:
    """Return the error for an output whose earlier run cannot continue.

    >>> str(cannot_resume("scored.jsonl", "the input has changed"))
    'cannot resume scored.jsonl: the input has changed: start again without resume'
    """
    return OptionError(
        "cannot resume {path}: {reason}: start again without {resume}", path=path, reason=reason
    )


class SettingError(UsageError, ValueError):
    """A setting of a recipe, reward or metric is unknown or has an invalid value.

    So is an argument of a plain function, such as `training.credit.igpo`.
    """


def check_choice(argument: str, value: object, choices: Any) -> None:
    """Raise SettingError for an argument that is not one of its choices, a type `Literal`.

    >>> from typing import Literal
    >>> check_choice("norm", "pooled", Literal["joint", "separate"])
    Traceback (most recent call last):
    rag_rewards.errors.SettingError: norm: expected one of joint, separate, found 'pooled'
    """
    if value not in choices.__args__:
        names = ", ".join(map(str, choices.__args__))
        raise SettingError(f"{argument}: expected one of {names}, found {value!r}")


class UnknownRecipeError(UsageError):
    """There is no recipe of this name."""


class SignatureError(UsageError):
    """A text is not a signature, or this version cannot use the signature."""


class MissingExtraError(UsageError):
    """An optional dependency is not installed.

    >>> str(MissingExtraError("pyarrow", extra="parquet"))
    'pyarrow is not installed: pip install "rag-rewards[parquet]"'
    """

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(f'{package} is not installed: pip install "rag-rewards[{extra}]"')


@contextmanager
def needs_extra(extra: str, package: str = "") -> Iterator[None]:
    """Raise MissingExtraError if an import of the block fails. `package` is the name on PyPI."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package or error.name or extra, extra=extra) from error


class RolloutError(RagRewardsError):
    """One rollout cannot be scored.

    message  what is wrong
    path     the field at fault, as in `documents[2].text`; "" if no single field is
    row      id of the rollout; None if it is unknown
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
    """The row cannot be decoded."""


class DataError(RolloutError):
    """A field that the recipe needs is missing or contradictory."""


class EvidenceError(RolloutError):
    """Evidence has a wrong length or impossible values, such as positive log-probabilities."""


class GroupError(RolloutError):
    """A group is incomplete, or contains a row in error."""


class BackendError(RolloutError):
    """A model, judge or server returned no result, so that the rollout is unscored."""


class ScoringError(RolloutError):
    """The code of a reward raised an exception on this rollout.

    The message contains the exception, which is also the `__cause__`.
    """


@contextmanager
def scoring_errors() -> Iterator[None]:
    """Convert an exception of the code that scores a rollout to a ScoringError.

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


_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
_SURROGATES = range(0xD800, 0xE000)  # a stream of UTF-8 does not accept them
_HIDDEN = (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *_SURROGATES)
_VISIBLE = _CONTROLS | dict.fromkeys(_HIDDEN, "\ufffd")


def shorten(text: str, length: int) -> str:
    """Return a text on one line, cut to a number of characters.

    >>> shorten("one  two three", 9)
    'one two …'
    """
    line = " ".join(text[: 4 * length].split())  # a response can have megabytes
    return line if len(line) <= length else line[: length - 1] + "…"


def plain(text: str) -> str:
    """Return text with visible characters in place of controls and of lone surrogates.

    >>> plain("red: \\x1b[31m")
    'red: ␛[31m'
    """
    return text.translate(_VISIBLE)

"""The properties of all fuzz tests: own errors only, finite rewards, no mutation, equal results."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rag_rewards.errors import RagRewardsError, RolloutError, ScoringError
from rag_rewards.rollout import Score, ScoreOrError

T = TypeVar("T")


def outcome(call: Callable[[], T]) -> T | str:
    """Return the result of a call, or its error as text if it is an error of this package.

    A ScoringError is a fault of the code of a reward, so that its cause is raised.
    """
    try:
        return call()
    except ScoringError as error:
        raise (error.__cause__ or error) from None
    except RagRewardsError as error:
        return described(error)


def described(error: RagRewardsError) -> str:
    """Return the type and the message of an error. The message must not be empty."""
    message = str(error)
    assert message.strip(), f"{type(error).__name__} without a message"
    return f"{type(error).__name__}: {message}"


def same_twice(call: Callable[[], Any]) -> Any:
    """Return the outcome of a call whose second outcome must be equal."""
    first, second = outcome(call), outcome(call)
    assert repr(first) == repr(second), "the same input has two outcomes"
    return first


@contextmanager
def unchanged(*values: Any) -> Iterator[None]:
    """Fail if the block changes one of these values."""
    before = repr(copy.deepcopy(values))
    yield
    assert repr(values) == before, "the input was changed"


def check_results(results: Iterable[ScoreOrError]) -> None:
    """Fail for a number that is not finite, for a score without a reason, and for own faults."""
    for result in results:
        if isinstance(result, ScoringError):
            raise (result.__cause__ or result) from None
        if isinstance(result, RolloutError):
            described(result)
            continue
        assert isinstance(result, Score)
        numbers = [result.value, result.correct, *result.components.values()]
        assert all(number is None or math.isfinite(number) for number in numbers), result


def check_finite(value: Any) -> None:
    """Fail if a value of JSON contains a number that is not finite."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_finite(item)
    elif isinstance(value, float):
        assert math.isfinite(value)

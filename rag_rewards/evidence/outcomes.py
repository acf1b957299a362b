"""The evidence and the errors of a batch of rollouts, while their models are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rag_rewards.errors import (
    BackendError,
    DataError,
    EvidenceError,
    GroupError,
    RolloutError,
    RowError,
    ScoringError,
    UsageError,
    describe,
    is_control_flow,
    scoring_errors,
)
from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import Evidence, Rollout

R = TypeVar("R", bound=Rollout)
N = TypeVar("N", bound=Need)

NeedsByRollout = Mapping[int, Sequence[Need]]
"""Position of a rollout → its needs."""

_ERROR_TYPES = (RowError, DataError, EvidenceError, GroupError, BackendError, ScoringError)
"""Types of the errors of rollouts. Backends raise subtypes of BackendError."""


class HasNeeds(Protocol):
    """An object that declares its needs: a reward, a recipe or a curriculum."""

    def needs(self, rollout: Rollout) -> Sequence[Need]: ...


class Outcomes:
    """The new evidence of each rollout, and the first error of each."""

    def __init__(self, count: int) -> None:
        self.evidence: list[dict[str, Any]] = [{} for _ in range(count)]
        self.errors: dict[int, RolloutError] = {}

    def fail(self, i: int, error: BaseException, path: str = "") -> None:
        """Record an exception as the error of rollout `i`, unless it already has one.

        `path` is the field of the row that the error concerns, if the error does not name one.
        """
        if isinstance(error, RolloutError):
            kind = type(error) if type(error) in _ERROR_TYPES else BackendError
            row_error = kind(error.message, error.path or path)
        else:
            row_error = BackendError(describe(error), path)
        row_error.__cause__ = error.with_traceback(None)  # its frames can keep tensors alive
        self.errors.setdefault(i, row_error)

    @contextmanager
    def failing(self, i: int) -> Iterator[None]:
        """Record an exception of this block as the error of rollout `i`.

        A UsageError concerns the whole call, and is raised.
        """
        try:
            yield
        except UsageError:
            raise
        except BaseException as error:
            if is_control_flow(error):
                raise
            self.fail(i, error)

    def result(self, i: int, rollout: R) -> R | RolloutError:
        """Return rollout `i` with its new evidence, or its error."""
        if (error := self.errors.get(i)) is not None:
            error.row = str(rollout.id) if rollout.id is not None else None
            return error
        evidence = self.evidence[i]
        return rollout.with_evidence(Evidence(**evidence)) if evidence else rollout


def unmet_needs(reward: HasNeeds, rollouts: Sequence[Rollout]) -> dict[int, list[Need]]:
    """Return the needs of each rollout that its evidence does not meet.

    A rollout whose needs raise an error has none: scoring raises the same error.
    """
    needs: dict[int, list[Need]] = {}
    for i, rollout in enumerate(rollouts):
        try:
            with scoring_errors():
                needs[i] = [need for need in reward.needs(rollout) if not need.is_met(rollout)]
        except RolloutError:
            continue
    return needs


def further_needs(
    reward: HasNeeds,
    rollouts: Sequence[Rollout],
    earlier: NeedsByRollout,
    answered: Iterable[int],
) -> dict[int, list[Need]]:
    """Return the needs that new evidence raised, without rollouts that have none.

    rollouts  the rollouts with their new evidence
    earlier   the needs before it, which are not requested again
    answered  positions of the rollouts with new evidence
    """
    positions = list(answered)
    unmet = unmet_needs(reward, [rollouts[i] for i in positions])
    further: dict[int, list[Need]] = {}
    for at, own in unmet.items():
        i = positions[at]
        known = set(earlier[i])
        if new := [need for need in own if need not in known]:
            further[i] = new
    return further


def needs_of_type(needs: NeedsByRollout, kind: type[N]) -> dict[int, list[N]]:
    """Return the needs of one type, without rollouts that have none."""
    of_type: dict[int, list[N]] = {}
    for i, own in needs.items():
        for need in own:
            if isinstance(need, kind):
                of_type.setdefault(i, []).append(need)
    return of_type


async def call_model(call: Callable[[], Awaitable[Sequence[Any]]], count: int) -> list[Any]:
    """Return the results of a call for `count` requests.

    If the call raises an exception, or returns another number of results, the error is the result
    of each request. Without requests, nothing is called.
    """
    if not count:
        return []
    try:
        results = await call()
    except BaseException as error:
        if is_control_flow(error):
            raise
        return [error] * count
    if len(results) != count:
        return [
            BackendError(f"the model returned {len(results)} answers to {count} questions")
        ] * count
    return list(results)

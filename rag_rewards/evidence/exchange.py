"""The exchange with a model: requests out, results to the rollouts that need them.

Each different request is sent once. A result is stored as evidence of its rollouts, and an error is
the error of these rollouts alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, TypeVar

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
)
from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import (
    Evidence,
    LogProbs,
    MaskedAnswers,
    MaskedLogProbs,
    Rollout,
    TurnLogProbs,
)

R = TypeVar("R", bound=Rollout)

_ERROR_TYPES = (RowError, DataError, EvidenceError, GroupError, BackendError, ScoringError)
"""Types of the errors of rollouts. Backends raise subtypes of BackendError."""


@dataclass(frozen=True)
class Job:
    """Requests to a model, and the place of their result.

    requests  requests whose results are combined
    rollouts  positions of the rollouts that are in error if the result is an error
    store     function that receives a result
    path      field of the row that an error concerns
    combine   function that returns one result, or an error, from those of the requests
    """

    requests: Sequence[Any]
    rollouts: Sequence[int]
    store: Callable[[Any], None]
    path: str = ""
    combine: Callable[[Sequence[Any]], Any] = itemgetter(0)


async def exchange(
    call: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]],
    jobs: Sequence[Job],
    outcomes: Outcomes,
) -> list[Any]:
    """Send the different requests of jobs in one call, and return the results of the model.

    call      function that returns a result or an exception for each request
    jobs      jobs, which receive their results
    outcomes  receives the errors
    """
    requests = list(dict.fromkeys(request for job in jobs for request in job.requests))
    results = await call_model(lambda: call(requests), len(requests))
    result_of = dict(zip(requests, results, strict=True))
    for job in jobs:
        result = job.combine([result_of[request] for request in job.requests])
        if isinstance(result, BaseException):
            for i in job.rollouts:
                outcomes.fail(i, result, job.path)
        else:
            job.store(result)
    return results


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
            BackendError(f"the model returned {len(results)} answers to {count} requests")
        ] * count
    return list(results)


class NewEvidence:
    """Evidence that is added to the evidence of one rollout."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._fields: dict[str, dict[Any, Any]] = {}

    def add(self, need: Need, result: Any) -> None:
        """Add the result of a need."""
        name = need.field_name
        if name not in self._fields:
            self._fields[name] = _parts(getattr(self._rollout, name))
        self._fields[name].update(need.parts(result))

    @property
    def evidence(self) -> Evidence:
        """The fields with new evidence, each with the earlier evidence of the rollout."""
        fields: dict[str, Any] = {}
        for name, parts in self._fields.items():
            if name in _STRUCTS:
                fields[name] = _STRUCTS[name](**parts)
            else:
                fields[name] = tuple(parts.values()) if name in _LISTS else parts
        return Evidence(**fields)


_LISTS = ("nli", "similarity")
_STRUCTS = {
    "logprobs": LogProbs,
    "masked_answers": MaskedAnswers,
    "masked_logprobs": MaskedLogProbs,
    "turn_logprobs": TurnLogProbs,
}


def _parts(value: Any) -> dict[Any, Any]:
    """Return the parts of a field of evidence by key; the key of a list entry is its position."""
    if value is None or isinstance(value, dict):
        return dict(value or {})
    if isinstance(value, tuple):
        return dict(enumerate(value))
    return {name: getattr(value, name) for name in value.__struct_fields__}


class Outcomes:
    """The new evidence of each rollout of a batch, and the first error of each."""

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        self.errors: dict[int, RolloutError] = {}
        self.rollouts = rollouts
        self._new: dict[int, NewEvidence] = {}

    def store(self, i: int, need: Need, result: Any) -> None:
        """Add the result of a need to the evidence of rollout `i`."""
        self._new.setdefault(i, NewEvidence(self.rollouts[i])).add(need, result)

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
        new = self._new.get(i)
        return rollout if new is None else rollout.with_evidence(new.evidence)


@dataclass
class EvidenceUsage:
    """The work of the models so far, after equal requests were merged.

    groups     number of scored groups
    computed   number of tokens that a policy was run on for log-probabilities
    reused     number of further tokens that separate scoring of each pair would have run
    generated  number of generated tokens
    pairs      number of text pairs for entailment and similarity
    verdicts   number of questions to the judge
    seconds    seconds of all calls of `gather`
    path       method of the last log-probabilities, see `ScoreAnswer.path`
    """

    groups: int = 0
    computed: int = 0
    reused: int = 0
    generated: int = 0
    pairs: int = 0
    verdicts: int = 0
    seconds: float = 0.0
    path: str = ""

    @property
    def reuse(self) -> float:
        """Share of the tokens of separate scoring that no model was run on, 0 to 1."""
        total = self.computed + self.reused
        return self.reused / total if total else 0.0

    def add(self, other: EvidenceUsage) -> None:
        """Add the work of other calls."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.path = other.path or self.path

    def __str__(self) -> str:
        """Return the work in a few words, or "" if there was none."""
        parts = []
        if self.computed:
            rate = self.computed / max(self.seconds, 1e-9)
            parts.append(f"{self.computed:,} tokens, {rate:,.0f}/s, {self.reuse:.0%} reused")
        if self.path not in ("", "tree", "shared"):
            parts.append(self.path)
        if self.generated:
            parts.append(f"{self.generated:,} tokens generated")
        if self.pairs:
            parts.append(f"{self.pairs:,} pairs")
        if self.verdicts:
            parts.append(f"{self.verdicts:,} verdicts")
        return " · ".join(parts)


_COUNTERS = tuple(field.name for field in fields(EvidenceUsage) if field.name != "path")

"""Checks of policy backends: a self-check before the first use, and invariants of every call.

Wrong values are worse than a failure. Zeros, values of the neighboring token and uninitialized
memory all look like log-probabilities. `selfcheck` detects them with requests whose answers must
be consistent for every model:

- the split of a sequence into context and response does not change the value of a token;
- a repeated request has the same values, also after other requests;
- the value of a token depends on this token and on the context, but not on later tokens;
- the probabilities of different next tokens sum to at most 1.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rag_rewards.errors import BackendError, RagRewardsError
from rag_rewards.evidence.protocols import Policy, ScoreAnswer, ScoreRequest

Pair = tuple[int, int]

ROUNDING = 1e-4
"""Rounding error by which a log-probability can exceed 0."""

_LENGTH = 160
"""Length of a checked sequence: more than one block of a usual prefix cache (16 to 128)."""
_VARIANTS = 8
_CHANGED = 2
_SPLITS = (9, 17, 33, 65, 129)
_NEXT = 24
_TEXT = (
    "The bridge over the river was built in 1932 by two engineers from Lyon; it has seven arches, "
    "and every spring the water rises to the third of them. How long is it, who paid for it, and "
    "why do the maps of that time not show any road to the north?"
)


def checked_arrays(
    values: Mapping[Pair, Sequence[float]], lengths: Mapping[Pair, int], source: str
) -> dict[Pair, array[float]]:
    """Return the log-probabilities of each (context, response) pair, in nats, as float32 arrays.

    values   log-probabilities by pair
    lengths  number of tokens of the response by pair
    source   name of the backend, for messages

    Raises BackendError unless exactly the pairs of `lengths` have values, with one value per token
    of the response, and all values are finite and at most 0. Rounding errors of up to 1e-4 above 0
    are clipped.
    """
    if values.keys() != lengths.keys():
        raise BackendError(
            f"{source}: expected values for the pairs {sorted(lengths)}, found {sorted(values)}"
        )
    return {
        pair: _checked(values[pair], length, f"{source}: pair {pair}")
        for pair, length in lengths.items()
    }


def _checked(values: Sequence[float], length: int, source: str) -> array[float]:
    if len(values) != length:
        raise BackendError(
            f"{source}: expected {length} log-probabilities, one per token of the response, found "
            f"{len(values)}" + (_EMPTY if not values else "")
        )
    try:
        logprobs = array("f", values)
    except (TypeError, ValueError):
        invalid = next(value for value in values if not isinstance(value, float | int))
        raise BackendError(f"{source}: expected log-probabilities, found {invalid!r}") from None
    if not logprobs:
        return logprobs
    # A sum of NaN or infinite values is not finite; finite float32 values cannot overflow float64.
    if not math.isfinite(sum(logprobs)):
        position = _first_infinite(logprobs)
        raise BackendError(f"{source}: a log-probability is not finite: {position}")
    highest = max(logprobs)
    if highest > ROUNDING:
        position = f"token {logprobs.index(highest)} of the response"
        raise BackendError(f"{source}: a log-probability is above 0: {highest:.6g} at {position}")
    return logprobs if highest <= 0 else array("f", [min(value, 0.0) for value in logprobs])


_EMPTY = "; usually a server that does not return the log-probabilities of a prompt"


def _first_infinite(values: array[float]) -> str:
    position = next(i for i, value in enumerate(values) if not math.isfinite(value))
    return f"{values[position]} at token {position} of the response"


# --- the check ---------------------------------------------------------------------------------


async def selfcheck(policy: Policy, *, seed: int | None = None) -> None:
    """Check that the log-probabilities of a policy can be those of a language model.

    policy  the policy; only its method `score` is called, with about 45 sequences of up to 160
            tokens
    seed    seed of the random tokens; by default they are new in each call, so that no server has
            them in its cache

    Values that must be equal can differ by the rounding errors of the precision: in float32 by 1e-3
    nats per token on average and by 5e-3 at most (values with and without a cache differed by
    2e-5), in other precisions by 0.1 and 0.5 (in bfloat16, they differed by 0.02 on average).
    Values that must differ have to differ by three times the observed noise.

    Raises BackendError with the failed check, the expected and the observed values, and the usual
    cause.
    """
    random_ = random.Random(seed)  # noqa: S311 (any tokens will do)
    check = _Check(policy)
    probes = _Probes.draw(policy, random_)
    cold = await check.scores(probes.early)
    check.vary(cold)
    other = await check.scores(probes.elsewhere)
    warm = await check.scores(probes.early)
    check.same("repeated", warm, cold, "the same request again", _REPEATED)
    late = await check.scores(probes.late)
    check.same(
        "suffix", late, cold[-len(late) :], "the same tokens after a longer context", _SUFFIX
    )
    warm = await check.scores(probes.early)
    check.same("repeated", warm, cold, "the same request a third time", _REPEATED)
    check.differ("context", other, cold, "another context", _CONTEXT)
    inside = await _check_tokens(check, probes)
    await _check_group(check, probes, cold, other)
    await _check_next(check, probes, inside)


async def agree(policy: Policy, reference: Policy, *, seed: int | None = None) -> None:
    """Check that a policy has the same values as a reference.

    The requests are sent to the policy twice, so that the second time its cache is filled. The
    tolerances are those of `selfcheck`. Raises BackendError.
    """
    check = _Check(policy)
    probes = _Probes.draw(policy, random.Random(seed))  # noqa: S311
    for request in (probes.group, probes.following, probes.splits):
        expected = await _Check(reference).answer(request)
        for _ in range(2):
            answer = await check.answer(request)
            for pair, values in expected.items():
                what = f"pair {pair} here and by {reference.fingerprint}"
                check.same("agreement", answer[pair], values, what, _DISAGREE)


async def _check_group(
    check: _Check, probes: _Probes, first: array[float], second: array[float]
) -> None:
    """Check that a pair has the same values in a group as in a request of its own."""
    answer = await check.answer(probes.group)
    check.same("group", answer[1, 0], second, "the same pair within a group", _GROUP)
    check.same("group", answer[0, 0], first, "the same pair within a group", _GROUP)
    check.same("group", answer[0, 2], first, "an equal response within the group", _GROUP)
    shared = len(first) - 1
    check.same("group", answer[0, 1], first[:shared], "the beginning of the response alone", _GROUP)


async def _check_tokens(check: _Check, probes: _Probes) -> array[float]:
    """Check that a value belongs to its own token, and return the values of the varied token.

    If all values of a sequence are shifted by one, they do not depend on its split. Only other
    tokens reveal the shift.
    """
    rows = [answer[0, 0] for answer in await check.answers(probes.variants)]
    spreads = [_spread([row[i] for row in rows]) for i in range(_CHANGED + 1)]
    check.unchanged("causal", max(spreads[:-1]), _EARLY)
    check.changed("own token", spreads[-1], max(spreads[:-1]), _LATE)
    return array("f", [row[_CHANGED] for row in rows])


async def _check_next(check: _Check, probes: _Probes, inside: array[float]) -> None:
    """Check the first token of a response, and the sum of the probabilities of next tokens."""
    answer = await check.answer(probes.following)
    following = array("f", [answer[0, i][0] for i in range(len(answer))])
    what = "the same tokens right after the context"
    check.same("first token", following[: len(inside)], inside, what, _FIRST)
    check.probabilities(following)


_REPEATED = (
    "values that are not kept per request: uninitialized memory in the cached part of a prompt, "
    "the values of another request, or weights that changed in between"
)
_SUFFIX = (
    "values that are taken from the wrong positions, or uninitialized memory in the cached part "
    "of a prompt"
)
_CONTEXT = "the context being ignored or cut off, or the values of another request being returned"
_GROUP = "the values of another pair being returned, or answers in the wrong order"
_EARLY = (
    "values shifted by one: a token's value is returned with the token before it (a leading null "
    "dropped twice, or dropped by the server already), or attention that is not causal"
)
_LATE = (
    "values shifted by one: a token's value is returned with the token after it (the leading null "
    "that was not dropped)"
)
_FIRST = "a wrong position at the boundary of context and response"
_DISAGREE = (
    "other weights, another precision, or uninitialized memory in the cached part of a prompt"
)
_SUM = "logarithms to another base than e, or log-probabilities that are not normalized"
_ZEROS = "a server that does not return the log-probabilities of a prompt"


@dataclass(frozen=True)
class _Probes:
    """Requests whose answers must be consistent."""

    early: ScoreRequest
    late: ScoreRequest
    elsewhere: ScoreRequest
    group: ScoreRequest
    variants: list[ScoreRequest]
    """Responses that differ in the token at `_CHANGED`, one per request."""
    following: ScoreRequest
    """These and further tokens, each as a response to the tokens before it."""
    splits: ScoreRequest
    """Responses that begin one token after a cache block, for all usual block sizes."""

    @classmethod
    def draw(cls, policy: Policy, random_: random.Random) -> _Probes:
        alphabet = _alphabet(policy)
        length = min(_LENGTH, policy.max_length - 8 if policy.max_length else _LENGTH)
        if length < 16:
            raise BackendError(
                f"{policy.fingerprint}: max_length {policy.max_length} is too short for the "
                "self-check, which needs at least 24 tokens"
            )
        sequence = tuple(random_.choices(alphabet, k=length))
        early, late = length // 16, length - 6
        context, response = sequence[:early], sequence[early:]
        # The other context has another token at each position, so that no value agrees by chance.
        other = tuple(random_.choice([t for t in alphabet if t != token]) for token in context)
        another_end = random_.choice([t for t in alphabet if t != response[-1]])
        responses = (response, (*response[:-1], another_end), response)
        tokens = random_.sample(alphabet, min(_NEXT, len(alphabet)))
        splits = [split for split in _SPLITS if split + _VARIANTS <= length]
        begin, last = sequence[late : late + _CHANGED], sequence[-1]
        return cls(
            early=ScoreRequest((context,), (response,)),
            late=ScoreRequest((sequence[:late],), (sequence[late:],)),
            elsewhere=ScoreRequest((other,), (response,)),
            group=ScoreRequest((context, other), responses, ((1, 0), (0, 1), (0, 2), (0, 0))),
            variants=[
                ScoreRequest((sequence[:late],), ((*begin, token, last),))
                for token in tokens[:_VARIANTS]
            ],
            splits=ScoreRequest(
                tuple(sequence[:split] for split in splits),
                tuple(sequence[split : split + _VARIANTS] for split in splits),
                tuple((i, i) for i in range(len(splits))),
            ),
            following=ScoreRequest((sequence[:late] + begin,), tuple((token,) for token in tokens)),
        )


def _alphabet(policy: Policy) -> list[int]:
    """Return ordinary tokens of the policy's vocabulary; low ids if it has no tokenizer."""
    try:
        tokens = sorted(set(policy.tokenizer.encode(_TEXT, add_special_tokens=False)))
    except RagRewardsError:
        tokens = []
    return tokens if len(tokens) >= _VARIANTS else list(range(3, 3 + _NEXT))


@dataclass
class _Check:
    """The comparisons of a policy's values, and the largest noise of equal values so far."""

    policy: Policy
    noise: float = 0.0
    mean: float = field(init=False)
    largest: float = field(init=False)

    def __post_init__(self) -> None:
        exact = self.policy.capabilities.precision in ("float32", "float64")
        self.mean, self.largest = (1e-3, 5e-3) if exact else (0.1, 0.5)

    @cached_property
    def _source(self) -> str:
        """The beginning of errors. It is read once, since a fingerprint can read all weights."""
        return f"{self.policy.fingerprint}: selfcheck failed"

    async def answer(self, request: ScoreRequest) -> dict[Pair, array[float]]:
        """Return the policy's answer to one request, with the invariants of a call."""
        return (await self.answers([request]))[0]

    async def answers(self, requests: Sequence[ScoreRequest]) -> list[dict[Pair, array[float]]]:
        """Return the policy's answers to several requests in one call."""
        answers = await self.policy.score(requests)
        if len(answers) != len(requests):
            expected = f"{len(requests)} answers to as many requests, found {len(answers)}"
            raise self._error("answers", expected, "lost answers")
        return [self._checked(*pair) for pair in zip(requests, answers, strict=True)]

    def _checked(
        self, request: ScoreRequest, answer: ScoreAnswer | Exception
    ) -> dict[Pair, array[float]]:
        if isinstance(answer, Exception):
            raise BackendError(f"{self._source}: {answer}") from answer
        lengths = {(c, r): len(request.responses[r]) for c, r in request.wanted()}
        return checked_arrays(answer.logprobs, lengths, self._source)

    async def scores(self, request: ScoreRequest) -> array[float]:
        """Return the values of a request for one pair."""
        return (await self.answer(request))[0, 0]

    def vary(self, values: array[float]) -> None:
        """Check that values are neither all zero nor all equal."""
        if max(abs(value) for value in values) < 1e-6:
            raise self._error("zeros", f"log-probabilities, found {len(values)} zeros", _ZEROS)
        if _spread(values) < 1e-6:
            raise self._error(
                "constant",
                f"values that differ, found {len(values)} times {values[0]:.6g}",
                "a placeholder instead of log-probabilities",
            )

    def same(
        self, check: str, actual: array[float], expected: array[float], what: str, cause: str
    ) -> None:
        """Check that values are equal, up to the length of `expected`."""
        gaps = [abs(a - b) for a, b in zip(actual, expected, strict=False)]
        mean, largest = sum(gaps) / len(gaps), max(gaps)
        if mean > self.mean or largest > self.largest:
            position = gaps.index(largest)
            raise self._error(
                check,
                f"{what} to have the same values within {self.mean:g} on average and "
                f"{self.largest:g} at most, found {mean:.3g} and {largest:.3g} (token {position}: "
                f"{expected[position]:.6g}, then {actual[position]:.6g})",
                cause,
            )
        self.noise = max(self.noise, mean)

    def differ(
        self, check: str, actual: array[float], expected: array[float], what: str, cause: str
    ) -> None:
        """Check that values differ."""
        mean = sum(abs(a - b) for a, b in zip(actual, expected, strict=True)) / len(expected)
        if mean <= max(1e-5, 3 * self.noise):
            raise self._error(
                check, f"{what} to change the values, found a mean change of {mean:.3g}", cause
            )

    def unchanged(self, check: str, spread: float, cause: str) -> None:
        """Check that tokens before a changed token keep their values."""
        if spread > self.largest:
            raise self._error(
                check,
                "the value of a token not to depend on later tokens, found a change of "
                f"{spread:.3g}",
                cause,
            )

    def changed(self, check: str, spread: float, before: float, cause: str) -> None:
        """Check that a changed token has another value."""
        if spread <= max(1e-5, 3 * before):
            raise self._error(
                check,
                f"the value of a token to depend on this token, found a change of {spread:.3g}, "
                f"and of {before:.3g} for the tokens before it",
                cause,
            )

    def probabilities(self, values: Sequence[float]) -> None:
        """Check that the probabilities of different tokens at one position sum to at most 1."""
        total, most = sum(map(math.exp, values)), math.exp(self.mean) + 1e-4
        if total > most:
            raise self._error(
                "probabilities",
                f"the probabilities of {len(values)} next tokens to sum to at most {most:.4g}, "
                f"found {total:.4g}",
                _SUM,
            )

    def _error(self, check: str, expected: str, cause: str) -> BackendError:
        return BackendError(f"{self._source}: {check}: expected {expected}; usually {cause}")


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)

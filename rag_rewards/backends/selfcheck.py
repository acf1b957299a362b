"""What every policy backend must prove before its values are believed, and after every call.

A server that lies is worse than one that fails: zeros, values that belong to the token beside
them, or memory that nobody initialised, all look like log-probabilities. `selfcheck` finds them
with questions whose answers must agree with each other, whatever the model is:

- where a sequence is split into context and response changes no token's value;
- asking again, after other questions, changes no value;
- a token's value changes with that token and with the context, and not with what follows it;
- the probabilities of different next tokens sum to no more than 1.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rag_rewards.errors import BackendError, RagRewardsError
from rag_rewards.evidence.protocols import Policy, ScoreAnswer, ScoreRequest

Pair = tuple[int, int]

ROUNDING = 1e-4
"""A log-probability may be this far above 0: a logit less its own logsumexp, rounded."""

_LENGTH = 160
"""Tokens of a checked sequence: more than one block of any usual prefix cache (16 to 128)."""
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
    values: Mapping[Pair, Sequence[float]], lengths: Mapping[Pair, int], who: str
) -> dict[Pair, array[float]]:
    """The values of each (context, response) pair as float32 nats, after the invariants of a call.

    Every pair of `lengths` has its values and no other pair has; there are as many as the response
    has tokens; all are finite and at most 0 (rounding up to 1e-4 above it is clipped). `who` names
    the backend in the message. Raises BackendError.
    """
    if values.keys() != lengths.keys():
        raise BackendError(
            f"{who}: expected values for the pairs {sorted(lengths)}, found {sorted(values)}"
        )
    return {pair: _checked(values[pair], lengths[pair], f"{who}: pair {pair}") for pair in lengths}


def _checked(values: Sequence[float], length: int, who: str) -> array[float]:
    if len(values) != length:
        raise BackendError(
            f"{who}: expected {length} log-probabilities, one per token of the response, found "
            f"{len(values)}" + (_EMPTY if not values else "")
        )
    try:
        known = array("f", values)
    except (TypeError, ValueError):
        found = next(value for value in values if not isinstance(value, float | int))
        raise BackendError(f"{who}: expected log-probabilities, found {found!r}") from None
    if not known:
        return known
    # NaN and infinities survive a sum; float32 values cannot overflow one in float64.
    if not math.isfinite(sum(known)):
        raise BackendError(f"{who}: a log-probability is not finite: {_first_infinite(known)}")
    highest = max(known)
    if highest > ROUNDING:
        raise BackendError(f"{who}: a log-probability is above 0: {highest:.6g} at {_at(known)}")
    return known if highest <= 0 else array("f", [min(value, 0.0) for value in known])


_EMPTY = "; usually a server that does not return the log-probabilities of a prompt"


def _first_infinite(values: array[float]) -> str:
    position = next(i for i, value in enumerate(values) if not math.isfinite(value))
    return f"{values[position]} at token {position} of the response"


def _at(values: array[float]) -> str:
    return f"token {values.index(max(values))} of the response"


# --- the check ---------------------------------------------------------------------------------


async def selfcheck(policy: Policy, *, seed: int | None = None) -> None:
    """Refuse a policy whose log-probabilities cannot be those of a language model.

    About 45 sequences of up to 160 tokens, through `policy.score` alone. The tokens are drawn at
    random, anew each time, so that nothing of them is in a server's cache at first; `seed` fixes
    the draw. Values that must be equal may differ by what the policy's precision costs: in float32
    by 1e-3 per token on average and 5e-3 at most (cached and naive forwards were 2e-5 apart), in
    any other precision by 0.1 and 0.5 (in bfloat16 they were 0.02 apart on average). Values that
    must differ have to differ by three times the noise seen on the way.

    Raises BackendError that says which check failed, what was expected and found, and what that
    usually means.
    """
    random_ = random.Random(seed)  # noqa: S311 (any tokens will do)
    check = _Check(policy)
    questions = _Questions.draw(policy, random_)
    cold = await check.scores(questions.early)
    check.looks_like_values(cold)
    other = await check.scores(questions.elsewhere)
    warm = await check.scores(questions.early)
    check.same("repeated", warm, cold, "the same question asked again", _REPEATED)
    late = await check.scores(questions.late)
    check.same(
        "suffix", late, cold[-len(late) :], "the same tokens after a longer context", _SUFFIX
    )
    warm = await check.scores(questions.early)
    check.same("repeated", warm, cold, "the same question asked a third time", _REPEATED)
    check.differ("context", other, cold, "another context", _CONTEXT)
    inside = await _check_tokens(check, questions)
    await _check_group(check, questions, cold, other)
    await _check_next(check, questions, inside)


async def agree(policy: Policy, reference: Policy, *, seed: int | None = None) -> None:
    """Refuse a policy that gives other values than a reference, both asked for the same group.

    Twice, so that what the first time leaves in a cache is met the second time. Tolerances as in
    `selfcheck`. Raises BackendError.
    """
    check = _Check(policy)
    questions = _Questions.draw(policy, random.Random(seed))  # noqa: S311
    for request in (questions.group, questions.following, questions.splits):
        expected = await _Check(reference).answer(request)
        for _ in range(2):
            found = await check.answer(request)
            for pair, values in expected.items():
                what = f"pair {pair} here and by {reference.fingerprint}"
                check.same("agreement", found[pair], values, what, _DISAGREE)


async def _check_group(
    check: _Check, questions: _Questions, first: array[float], second: array[float]
) -> None:
    """One request for several pairs gives each pair the values that it has alone."""
    answer = await check.answer(questions.group)
    check.same("group", answer[1, 0], second, "the same pair within a group", _GROUP)
    check.same("group", answer[0, 0], first, "the same pair within a group", _GROUP)
    check.same("group", answer[0, 2], first, "an equal response within the group", _GROUP)
    shared = len(first) - 1
    check.same("group", answer[0, 1], first[:shared], "the beginning of the response alone", _GROUP)


async def _check_tokens(check: _Check, questions: _Questions) -> array[float]:
    """A value belongs to its own token; gives the values of the token that was varied.

    Values shifted by one all along a sequence agree wherever it is split: only other tokens show
    whose values they are.
    """
    rows = [answer[0, 0] for answer in await check.answers(questions.variants)]
    spreads = [_spread([row[i] for row in rows]) for i in range(_CHANGED + 1)]
    check.unmoved("causal", max(spreads[:-1]), _EARLY)
    check.moved("own token", spreads[-1], max(spreads[:-1]), _LATE)
    return array("f", [row[_CHANGED] for row in rows])


async def _check_next(check: _Check, questions: _Questions, inside: array[float]) -> None:
    """The first token of a response is like any other, and next tokens share a probability of 1."""
    answer = await check.answer(questions.following)
    following = array("f", [answer[0, i][0] for i in range(len(answer))])
    what = "the same tokens right behind the context"
    check.same("first token", following[: len(inside)], inside, what, _FIRST)
    check.probabilities(following)


_REPEATED = (
    "values that are not kept per request: uninitialised memory in the cached part of a prompt, "
    "the values of another request, or weights that changed in between"
)
_SUFFIX = (
    "values that are taken from the wrong positions, or uninitialised memory in the cached part "
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
    "other weights, another precision, or uninitialised memory in the cached part of a prompt"
)
_SUM = "logarithms to another base than e, or log-probabilities that are not normalised"
_ZEROS = "a server that does not return the log-probabilities of a prompt"


@dataclass(frozen=True)
class _Questions:
    """Requests whose answers must agree with each other."""

    early: ScoreRequest
    late: ScoreRequest
    elsewhere: ScoreRequest
    group: ScoreRequest
    variants: list[ScoreRequest]
    """Responses that differ in the token at `_CHANGED`, each in a request of its own."""
    following: ScoreRequest
    """Those tokens and more, each as a response behind what was before it."""
    splits: ScoreRequest
    """Responses that begin right behind a block of a cache, whatever its usual size."""

    @classmethod
    def draw(cls, policy: Policy, random_: random.Random) -> _Questions:
        alphabet = _alphabet(policy)
        length = min(_LENGTH, policy.max_length - 8 if policy.max_length else _LENGTH)
        if length < 16:
            raise BackendError(
                f"{policy.fingerprint}: max_length {policy.max_length} is too short to check: at "
                "least 24 are needed"
            )
        sequence = tuple(random_.choices(alphabet, k=length))
        early, late = length // 16, length - 6
        context, response = sequence[:early], sequence[early:]
        # No token of the other context is that of this one: nothing may agree by chance.
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
    """Ordinary tokens of the policy's vocabulary; low ids where it has no tokenizer to ask."""
    try:
        known = sorted(set(policy.tokenizer.encode(_TEXT, add_special_tokens=False)))
    except RagRewardsError:
        known = []
    return known if len(known) >= _VARIANTS else list(range(3, 3 + _NEXT))


@dataclass
class _Check:
    """Compares what a policy says, and remembers how far equal values were apart."""

    policy: Policy
    noise: float = 0.0
    mean: float = field(init=False)
    largest: float = field(init=False)

    def __post_init__(self) -> None:
        exact = self.policy.capabilities.precision in ("float32", "float64")
        self.mean, self.largest = (1e-3, 5e-3) if exact else (0.1, 0.5)

    async def answer(self, request: ScoreRequest) -> dict[Pair, array[float]]:
        """The policy's answer to one request, with the invariants of a call."""
        return (await self.answers([request]))[0]

    async def answers(self, requests: Sequence[ScoreRequest]) -> list[dict[Pair, array[float]]]:
        """The policy's answers to several requests in one call."""
        answers = await self.policy.score(requests)
        if len(answers) != len(requests):
            expected = f"{len(requests)} answers to as many requests, found {len(answers)}"
            raise self._refusal("answers", expected, "answers that were lost")
        return [self._checked(*both) for both in zip(requests, answers, strict=True)]

    def _checked(
        self, request: ScoreRequest, answer: ScoreAnswer | Exception
    ) -> dict[Pair, array[float]]:
        who = f"{self.policy.fingerprint}: selfcheck failed"
        if isinstance(answer, Exception):
            raise BackendError(f"{who}: {answer}") from answer
        lengths = {(c, r): len(request.responses[r]) for c, r in request.wanted()}
        return checked_arrays(answer.logprobs, lengths, who)

    async def scores(self, request: ScoreRequest) -> array[float]:
        """The values of a request for one pair."""
        return (await self.answer(request))[0, 0]

    def looks_like_values(self, values: array[float]) -> None:
        """Not all zeros, not all the same."""
        if max(abs(value) for value in values) < 1e-6:
            raise self._refusal("zeros", f"log-probabilities, found {len(values)} zeros", _ZEROS)
        if _spread(values) < 1e-6:
            raise self._refusal(
                "constant",
                f"values that differ, found {len(values)} times {values[0]:.6g}",
                "a placeholder in place of log-probabilities",
            )

    def same(
        self, check: str, found: array[float], expected: array[float], what: str, means: str
    ) -> None:
        """Values that must be equal, as far as `expected` goes."""
        gaps = [abs(a - b) for a, b in zip(found, expected, strict=False)]
        mean, largest = sum(gaps) / len(gaps), max(gaps)
        if mean > self.mean or largest > self.largest:
            at = gaps.index(largest)
            raise self._refusal(
                check,
                f"{what} to have the same values within {self.mean:g} on average and "
                f"{self.largest:g} at most, found {mean:.3g} and {largest:.3g} (token {at}: "
                f"{expected[at]:.6g}, then {found[at]:.6g})",
                means,
            )
        self.noise = max(self.noise, mean)

    def differ(
        self, check: str, found: array[float], expected: array[float], what: str, means: str
    ) -> None:
        """Values that must not be equal."""
        mean = sum(abs(a - b) for a, b in zip(found, expected, strict=True)) / len(expected)
        if mean <= max(1e-5, 3 * self.noise):
            raise self._refusal(
                check, f"{what} to give other values, found them {mean:.3g} apart", means
            )

    def unmoved(self, check: str, spread: float, means: str) -> None:
        """Tokens before a changed one keep their values."""
        if spread > self.largest:
            raise self._refusal(
                check,
                "a token's value not to depend on the tokens after it, found it to move by "
                f"{spread:.3g}",
                means,
            )

    def moved(self, check: str, spread: float, before: float, means: str) -> None:
        """A changed token changes its own value."""
        if spread <= max(1e-5, 3 * before):
            raise self._refusal(
                check,
                f"a token's value to depend on that token, found it to move by {spread:.3g}, and "
                f"the values before it by {before:.3g}",
                means,
            )

    def probabilities(self, values: Sequence[float]) -> None:
        """Different tokens in one place: their probabilities sum to 1 at most."""
        total, most = sum(map(math.exp, values)), math.exp(self.mean) + 1e-4
        if total > most:
            raise self._refusal(
                "probabilities",
                f"the probabilities of {len(values)} next tokens to sum to {most:.4g} at most, "
                f"found {total:.4g}",
                _SUM,
            )

    def _refusal(self, check: str, expected: str, means: str) -> BackendError:
        who = f"{self.policy.fingerprint}: selfcheck failed"
        return BackendError(f"{who}: {check}: expected {expected}; usually {means}")


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)

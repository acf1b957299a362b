"""A monitor of likelihood displacement: right responses become less likely while training.

A trainer makes right responses more likely in comparison with wrong ones. The probability of both
can fall at the same time, because they have most of their tokens in common. The responses that a
step samples do not show this, because they come from the policy of that step. The monitor keeps
right responses of the first steps, and the policy of later steps scores them again.

For N kept responses y_i with T_i tokens of the policy, sampled by π_i for the prompts x_i, the
displacement under the current policy π is, in nats per token:

    Δ(π) = 1/N Σ_i 1/T_i Σ_t [log π(y_it | x_i, y_i,<t) − log π_i(y_it | x_i, y_i,<t)]

Sources: Razin et al. 2024 (arXiv 2410.08847), who define likelihood displacement as
log π(y⁺|x) < log π_0(y⁺|x); Deng et al. 2025 (arXiv 2512.04220), who find it in GRPO for search
agents before training collapses. They compare sums over the tokens. The mean over the tokens is
used here, so that long responses do not outweigh short ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Policy, ScoreAnswer, ScoreRequest, TokenIds
from rag_rewards.rollout import Score

log = logging.getLogger("rag_rewards")

METRICS = ("right_logprob", "right_logprob_change")
"""The mean log-probability of the kept responses, and the displacement, in nats per token."""
LIMIT = 16
"""The number of responses that a process keeps, of as many prompts."""
THRESHOLD = -0.5
"""The displacement, in nats per token, below which a warning is logged once.

The geometric mean of the probabilities of the tokens is then below 61 % of its first value. The
papers state no threshold.
"""


@dataclass(frozen=True)
class RightResponse:
    """A right response, as token ids. `mask` is 1 for the tokens of the policy."""

    prompt: TokenIds
    response: TokenIds
    mask: TokenIds

    @classmethod
    def of(
        cls, prompt: Sequence[int], response: Sequence[int], mask: Sequence[int]
    ) -> RightResponse:
        return cls(tuple(prompt), tuple(response), tuple(mask))


@dataclass(frozen=True)
class Likelihood:
    """The mean log-probability of the tokens of a kept response, and its change, in nats."""

    logprob: float
    change: float


class DisplacementMonitor:
    """Keeps right responses of the first steps, and scores them again every `every` steps.

    Several tasks of one event loop can call `step` at the same time.
    """

    @classmethod
    def of(cls, every: Any) -> DisplacementMonitor | None:
        """Return the monitor of the setting `displacement_every`, None for 0.

        Raises UsageError for another value than a whole number of steps.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise UsageError(
                f"displacement_every={every!r}: set a whole number of steps, or 0 for never"
            )
        return cls(every) if every else None

    def __init__(self, every: int) -> None:
        self.every = every
        self._next = every
        self._kept: dict[RightResponse, float] = {}
        self._prompts: set[TokenIds] = set()
        self._is_checked = False
        self._failure: UsageError | None = None
        self._lock = asyncio.Lock()
        self._has_warned = False

    async def step(
        self, policy: Policy, step: int, responses: Sequence[RightResponse]
    ) -> list[Likelihood]:
        """Keep responses that the policy has sampled, and return the likelihoods of older ones.

        policy     the policy in training with its weights at this step
        step       number of updates so far
        responses  right responses of this step, of which one is kept for each prompt

        The result is empty unless `every` steps have passed since the last measurement. A response
        that the policy cannot score is left out, with a warning, and another one of its prompt can
        be kept. The first call checks the policy. If the check fails, this call and all later ones
        raise UsageError.
        """
        if self._failure is not None:
            raise self._failure
        is_due = step >= self._next
        if is_due:
            self._next = (step // self.every + 1) * self.every
        old = dict(self._kept) if is_due else {}
        new = [each for each in responses if self._reserve(each)]
        if not old and not new:
            return []
        try:
            await self._check(policy)
            values = await _mean_logprobs(policy, [*old, *new])
            self._kept |= {each: values[each] for each in new if each in values}
        finally:
            self._prompts -= {each.prompt for each in new if each not in self._kept}
        return [
            Likelihood(values[each], values[each] - first)
            for each, first in old.items()
            if each in values
        ]

    def metrics(self, likelihoods: Sequence[Likelihood]) -> dict[str, float]:
        """Return the means by the names of METRICS, or nothing without a likelihood.

        Logs a warning once if the mean change is below THRESHOLD.
        """
        if not likelihoods:
            return {}
        change = fmean(each.change for each in likelihoods)
        if change < THRESHOLD and not self._has_warned:
            self._has_warned = True
            log.warning(
                "likelihood displacement: the log-probability of %d right responses of the first "
                "steps has changed by %.2f nats per token (threshold %s); increase the KL penalty, "
                "or lower the learning rate or the weight of negative advantages",
                len(likelihoods),
                change,
                THRESHOLD,
            )
        means = fmean(each.logprob for each in likelihoods), change
        return dict(zip(METRICS, means, strict=True))

    async def _check(self, policy: Policy) -> None:
        """Run the self-check of the policy once. Tasks at the same time wait for it."""
        async with self._lock:
            if self._failure is None and not self._is_checked:
                try:
                    await policy.selfcheck()
                except BackendError as error:
                    self._failure = UsageError(
                        f"displacement_every: the policy fails its self-check: {error}; correct "
                        "the policy, or set displacement_every=0"
                    )
                self._is_checked = True
        if self._failure is not None:
            raise self._failure

    def _reserve(self, response: RightResponse) -> bool:
        """Return whether a response is to be kept: the first one of its prompt, up to LIMIT."""
        is_new = response.prompt not in self._prompts and any(response.mask)
        if is_new and len(self._prompts) < LIMIT:
            self._prompts.add(response.prompt)
            return True
        return False


def right_positions(scores: Sequence[Score | None]) -> list[int]:
    """Return the positions of the right responses of a group.

    A response is right if `correct` of its score is 1. Without `correct`, it is right if its reward
    is above the mean of the group.

    >>> right_positions([Score(3.0, correct=0.0), Score(1.0, correct=1.0), None])
    [1]
    >>> right_positions([Score(3.0), Score(1.0), None])
    [0]
    """
    scored = {i: score for i, score in enumerate(scores) if score is not None}
    if any(score.correct is not None for score in scored.values()):
        return [i for i, score in scored.items() if score.correct == 1.0]
    values = {i: score.value for i, score in scored.items() if score.value is not None}
    mean = fmean(values.values()) if values else 0.0
    return [i for i, value in values.items() if value > mean]


async def _mean_logprobs(
    policy: Policy, responses: Sequence[RightResponse]
) -> dict[RightResponse, float]:
    """Return the mean log-probability of the tokens of each response that can be scored."""
    requests = [ScoreRequest((each.prompt,), (each.response,)) for each in responses]
    answers: Sequence[ScoreAnswer | Exception]
    try:
        answers = await policy.score(requests)
    except BackendError as error:
        answers = [error] * len(requests)
    values = {}
    for each, answer in zip(responses, answers, strict=True):
        if isinstance(answer, ScoreAnswer):
            pairs = zip(answer.logprobs[0, 0], each.mask, strict=True)
            values[each] = fmean(value for value, is_sampled in pairs if is_sampled)
    if errors := [answer for answer in answers if isinstance(answer, Exception)]:
        log.warning(
            "%d of %d right responses have no likelihood: %s", len(errors), len(answers), errors[0]
        )
    return values

"""The state of the calls of a judge: what simultaneous calls share, and what each call has."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_rewards.evidence.protocols import EntityQuestion, JudgeQuestion
from rag_rewards.models.openai.chat import FinalFailure
from rag_rewards.models.verdict_cache import BackgroundCache, Entry

if TYPE_CHECKING:
    import httpx

Question = JudgeQuestion | EntityQuestion
_MAX_FAILURES = 32
"""Number of consecutive questions without a verdict after which no further question is sent."""


@dataclass
class SharedState:
    """State of the simultaneous calls on one event loop.

    It ends with the last of them. Calls that start after it is abandoned have another one.

    slots      limit of simultaneous requests
    cache      the cache of verdicts, if there is one
    idle       HTTP clients without a request
    calls      number of calls in progress
    answers    number of requests with a verdict
    failures   number of consecutive questions without a verdict
    abandoned  reason why no further question is sent
    """

    slots: asyncio.Semaphore
    cache: BackgroundCache | None
    idle: list[httpx.AsyncClient] = field(default_factory=list)
    calls: int = 0
    answers: int = 0
    failures: int = 0
    abandoned: str | None = None

    def add_answer(self) -> None:
        """Count a request with a verdict."""
        self.answers += 1
        self.failures = 0

    def add_failure(self, failure: FinalFailure) -> None:
        """Count a question without a verdict."""
        self.failures += 1
        if self.abandoned is None and failure.affects_all:
            self.abandoned = str(failure)
        elif self.abandoned is None and self.failures >= _MAX_FAILURES:
            self.abandoned = (
                f"{self.failures} questions in a row had no verdict; the last failure: {failure}"
            )


@dataclass
class Call:
    """One call of `judge`: its deadline, the cache keys of its votes, and the cached votes.

    `deadline` and `not_before` are times of the monotonic clock. No request of the call is sent
    before `not_before`, because of a Retry-After. Other calls ask the server again: its wait can be
    longer than their deadlines, and than its failure.
    """

    shared: SharedState
    deadline: float = math.inf
    not_before: float = 0.0
    keys: dict[Question, list[bytes]] = field(default_factory=dict)
    cached: dict[bytes, Entry] = field(default_factory=dict)

"""The four protocols that models stand behind, and what travels over them.

Rewards never see a model: they say what they need, the gatherer asks, and the answers are evidence
on the rollout. Methods are coroutines, so that servers and local models are asked the same way.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

TokenIds = tuple[int, ...]


# --- a policy ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capabilities:
    """What a policy backend can honour."""

    exact: bool = True
    """Log-probabilities are those of the whole context, not of an approximation."""
    reuses_prefixes: bool = False
    generates: bool = True
    precision: str = "float32"


@dataclass(frozen=True)
class ScoreRequest:
    """A group to score: every response after every context, as token ids.

    A group, because only a group lets an engine share work: `contexts` begin alike (the full
    one first, then each with a document left out), and `responses` follow the same contexts.
    `pairs` names (context, response) positions; None is all of them.
    """

    contexts: tuple[TokenIds, ...]
    responses: tuple[TokenIds, ...]
    pairs: tuple[tuple[int, int], ...] | None = None

    def wanted(self) -> tuple[tuple[int, int], ...]:
        """The pairs to answer, in order."""
        if self.pairs is not None:
            return self.pairs
        return tuple((c, r) for c in range(len(self.contexts)) for r in range(len(self.responses)))


@dataclass(frozen=True)
class ScoreAnswer:
    """Token log-probabilities of a group, in nats, as float32: one array per pair asked for.

    `path` says how they were computed, `computed` and `reused` count tokens: a token that a
    model was run on, and one that naive scoring would have run it on again.
    """

    logprobs: dict[tuple[int, int], array[float]]
    path: str
    computed: int = 0
    reused: int = 0
    weight_version: str | int | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """Continue a prompt. `temperature` 0 is greedy; text ends before the first of `stop`."""

    prompt: TokenIds
    max_tokens: int = 64
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class GenerateAnswer:
    """What was generated. `finish_reason` is "stop" or "length"."""

    text: str
    token_ids: TokenIds
    finish_reason: str = "stop"
    weight_version: str | int | None = None


@runtime_checkable
class Tokenizer(Protocol):
    """The part of a transformers tokenizer that contexts are made with."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@runtime_checkable
class Policy(Protocol):
    """A language model that scores and generates from token ids.

    Results come in the order of the requests, one each: an answer, or the BackendError that this
    request alone hit. What breaks all of them is raised.
    """

    @property
    def fingerprint(self) -> str:
        """Which weights, in which precision: part of a recipe's signature."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def max_length(self) -> int | None:
        """Tokens that a prompt and a response may have together; None where it is not known."""
        ...

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]: ...
    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]: ...
    async def selfcheck(self) -> None:
        """Refuse (BackendError) a backend that gives other values than it should."""
        ...

    async def close(self) -> None: ...


# --- entailment and similarity -----------------------------------------------------------------


@runtime_checkable
class EntailmentModel(Protocol):
    """P(premise entails hypothesis), 0 to 1, for (premise, hypothesis) pairs."""

    @property
    def fingerprint(self) -> str: ...
    async def entail(self, pairs: Sequence[tuple[str, str]]) -> list[float]: ...
    async def close(self) -> None: ...


@runtime_checkable
class SimilarityModel(Protocol):
    """Similarity, −1 to 1, of (text, reference) pairs."""

    @property
    def fingerprint(self) -> str: ...
    async def similarity(self, pairs: Sequence[tuple[str, str]]) -> list[float]: ...
    async def close(self) -> None: ...


# --- a judge -----------------------------------------------------------------------------------

JudgeKind = Literal["accuracy", "outcome", "reasoning"]


@dataclass(frozen=True)
class JudgeQuestion:
    """One thing to ask a judge, answered by 0 or 1.

    accuracy   does `response` (an extracted answer) agree with any of `gold`?   (ARENA)
    outcome    is `response` (an extracted answer) right, given the one `gold`?  (TruthRL)
    reasoning  is the reasoning in `response` (a whole response) sound?          (TruthRL)
    """

    kind: JudgeKind
    question: str
    response: str
    gold: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    query_time: str | None = None


@runtime_checkable
class Judge(Protocol):
    """Answers questions with 0 or 1; a question that got no verdict with its error, never a 0."""

    @property
    def fingerprint(self) -> str: ...
    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]: ...
    async def close(self) -> None: ...


# --- all together ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Models:
    """Whom to ask. What is None cannot be asked: needs of that kind stay open."""

    policy: Policy | None = None
    entailment: EntailmentModel | None = None
    judge: Judge | None = None
    similarity: SimilarityModel | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """Which models, for the signature."""
        pairs = (
            ("policy", self.policy),
            ("nli", self.entailment),
            ("judge", self.judge),
            ("similarity", self.similarity),
        )
        return {name: model.fingerprint for name, model in pairs if model is not None}

    async def close(self) -> None:
        for model in (self.policy, self.entailment, self.judge, self.similarity):
            if model is not None:
                await model.close()

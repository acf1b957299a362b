"""The protocols of the four kinds of models, with their requests and answers.

Rewards never call a model: they declare needs, and the gatherer calls the models and adds the
answers to the rollouts as evidence. The methods are coroutines, so that servers and local models
are called in the same way.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rag_rewards.errors import BackendError, UsageError, shorten

TokenIds = tuple[int, ...]
"""A sequence of token ids."""
TextPair = tuple[str, str]
"""A premise and a hypothesis, or a text and a reference."""


# --- a policy ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a policy backend."""

    precision: str = "float32"
    """Precision of the model, such as "bfloat16", or "unknown"."""
    is_live: bool = False
    """Whether the weights are those that generate the rollouts, also after a training step."""


@dataclass(frozen=True)
class ScoreRequest:
    """A group to score: responses after contexts, as token ids.

    contexts   contexts with a common prefix: the full one first, then those without a document
    responses  responses to these contexts
    pairs      (context, response) positions to score; None for all pairs

    The request contains a whole group, so that an engine can share work between its sequences.
    """

    contexts: tuple[TokenIds, ...]
    responses: tuple[TokenIds, ...]
    pairs: tuple[tuple[int, int], ...] | None = None

    def wanted(self) -> tuple[tuple[int, int], ...]:
        """Return the (context, response) positions to score, in order."""
        if self.pairs is not None:
            return self.pairs
        return tuple((c, r) for c in range(len(self.contexts)) for r in range(len(self.responses)))


@dataclass(frozen=True)
class ScoreAnswer:
    """Token log-probabilities of a group.

    logprobs        one float32 array per requested pair, in nats, with one value per token of the
                    response
    path            method of the computation, such as "shared", "plain" or "vllm"
    computed        number of tokens that the model was run on
    reused          number of further tokens that separate scoring of each pair would have run
    weight_version  version of the weights, None if unknown
    """

    logprobs: dict[tuple[int, int], array[float]]
    path: str
    computed: int = 0
    reused: int = 0
    weight_version: str | int | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """A prompt to continue.

    prompt       token ids of the prompt
    max_tokens   maximum number of generated tokens
    temperature  sampling temperature; 0 for greedy decoding
    stop         strings that end the text; the text does not contain them
    seed         seed of sampling
    top_p        sample from the most likely tokens whose total probability is at least this value
    """

    prompt: TokenIds
    max_tokens: int = 64
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    top_p: float = 1.0


@dataclass(frozen=True)
class GenerateAnswer:
    """A continuation of a prompt. `finish_reason` is "stop" or "length"."""

    text: str
    token_ids: TokenIds
    finish_reason: str = "stop"
    weight_version: str | int | None = None


@runtime_checkable
class Tokenizer(Protocol):
    """The methods of a transformers tokenizer that prompts require."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@runtime_checkable
class Policy(Protocol):
    """A language model that scores and generates from token ids.

    The results have the order of the requests: an answer, or the BackendError of this request. An
    error that affects all requests is raised.
    """

    @property
    def fingerprint(self) -> str:
        """The weights and their precision, as part of the signature."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of context and response, None if unknown."""
        ...

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]: ...
    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]: ...
    async def selfcheck(self) -> None:
        """Raise BackendError if the values of the policy cannot be correct."""
        ...

    async def close(self) -> None: ...


# --- entailment and similarity -----------------------------------------------------------------


@runtime_checkable
class EntailmentModel(Protocol):
    """A model of the probability, 0 to 1, that a premise entails a hypothesis.

    The results have the order of the pairs: a probability, or the BackendError of this pair. An
    error that affects all pairs is raised.
    """

    @property
    def fingerprint(self) -> str: ...
    async def entail(self, pairs: Sequence[TextPair]) -> Sequence[float | Exception]: ...
    async def close(self) -> None: ...


@runtime_checkable
class ContradictionModel(EntailmentModel, Protocol):
    """An entailment model that also gives the probability, 0 to 1, of a contradiction."""

    async def entail_and_contradict(
        self, pairs: Sequence[TextPair]
    ) -> Sequence[tuple[float, float] | Exception]:
        """Return the probabilities of entailment and of contradiction, or the error, by pair."""
        ...


@runtime_checkable
class SimilarityModel(Protocol):
    """A model of the similarity, −1 to 1, of a text to a reference.

    The results are as those of an `EntailmentModel`.
    """

    @property
    def fingerprint(self) -> str: ...
    async def similarity(self, pairs: Sequence[TextPair]) -> Sequence[float | Exception]: ...
    async def close(self) -> None: ...


# --- a judge -----------------------------------------------------------------------------------

JudgeKind = Literal[
    "accuracy",
    "outcome",
    "reasoning",
    "supported",
    "consistent",
    "criteria",
    "group",
    "support",
    "needless",
]
"""The kinds of questions for which this package has instructions."""


@dataclass(frozen=True)
class Grade:
    """The form of an answer that is a whole number g: its value is (g − low)/(high − low).

    >>> Grade(0, 4).value("3"), Grade(0, 4).value("5")
    (0.75, None)
    """

    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1000:
            raise UsageError(
                f"a grade must be from low to high, 0 ≤ low < high ≤ 1000, found {self.low} and "
                f"{self.high}"
            )

    @property
    def answers(self) -> str:
        """The possible answers, for the instructions of a judge."""
        if self.high - self.low == 1:
            return f"{self.high} or {self.low}"
        return f"a whole number from {self.low} (worst) to {self.high} (best)"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def value(self, answer: str) -> float | None:
        """Return the value, 0 to 1, of an answer as text; None if it is not of this form."""
        if not (answer.isascii() and answer.isdigit() and len(answer) <= 4):
            return None
        grade = int(answer)
        if str(grade) != answer or not self.low <= grade <= self.high:
            return None
        return grade if self == BINARY else (grade - self.low) / (self.high - self.low)


_LABEL = re.compile(r"[\w'/-]+(?: [\w'/-]+)*")


@dataclass(frozen=True)
class Choice:
    """The form of an answer that is one of these labels, which have values from 0 to 1.

    >>> Choice((("supported", 1), ("partly", 0.5), ("no", 0))).value("partly")
    0.5
    """

    labels: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.labels]
        if len(set(names)) < max(len(names), 2):
            raise UsageError(f"a choice requires two or more different labels, found {names}")
        if not all(_LABEL.fullmatch(name) for name in names):
            raise UsageError(
                f"the labels of a choice must be words without quotation marks, found {names}"
            )
        if not all(0 <= value <= 1 for _, value in self.labels):
            raise UsageError(f"the values of labels must be from 0 to 1, found {self.labels}")

    @property
    def answers(self) -> str:
        """The possible answers, for the instructions of a judge."""
        return "one of " + ", ".join(f'"{name}"' for name, _ in self.labels)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        return {"type": "string", "enum": [name for name, _ in self.labels]}

    def value(self, answer: str) -> float | None:
        """Return the value, 0 to 1, of a label; None for another text."""
        return dict(self.labels).get(answer)


AnswerForm = Grade | Choice
BINARY = Grade(0, 1)
Verdict = float | tuple[float, ...]
"""The answer of a judge, 0 to 1; for several criteria or responses, one for each."""


@dataclass(frozen=True)
class JudgeQuestion:
    """A question to a judge, whose answer is 0 or 1, or a grade.

    accuracy   does `response` (an extracted answer) agree with any of `gold`?      (ARENA)
    outcome    is `response` (an extracted answer) correct, given the one `gold`?   (TruthRL)
    reasoning  is the reasoning in `response` (a whole response) sound?             (TruthRL)
    supported  do the `documents` support the claim `response`?                     (CaRR)
    consistent do the `documents` contradict nothing in `response`?                 (Binary RAR)
    criteria   does `response` meet each of the `criteria`?
    group      how good is each of `responses`, compared with the others?
    support    how far do the `documents` support the claim `response`?             (DR Tulu)
    needless   does the claim `response` of the text in `documents` need no citation? (DR Tulu)

    kind       one of these, or another name for a question with an own `task`
    form       form of the answer, or of each answer to a question with criteria or responses
    task       instructions of the judge; "" for those of the kind
    swapped    ask with the texts in another order: `response` before `documents` and `gold`, and
               these, the criteria and the responses in reverse order. The verdict, which has the
               order of the question, must be the same
    """

    kind: str
    question: str
    response: str
    gold: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    query_time: str | None = None
    swapped: bool = False
    form: AnswerForm = BINARY
    criteria: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    task: str = ""

    @property
    def items(self) -> int:
        """The number of answers to a question with criteria or responses, else 0."""
        return len(self.criteria) or len(self.responses)

    @property
    def is_graded(self) -> bool:
        """Whether the verdict is a grade, or one for each item, in place of 0 or 1."""
        return bool(self.items) or self.form != BINARY

    def check(self, verdict: Any) -> None:
        """Raise BackendError for a verdict that is not of this form."""
        values = verdict if self.items else (verdict,)
        is_valid = isinstance(values, (tuple, list)) and len(values) == (self.items or 1)
        if is_valid and self.form == BINARY:
            is_valid, allowed = all(value in (0, 1) for value in values), "0 or 1"
        else:
            allowed = "from 0 to 1"
            is_valid = is_valid and all(
                isinstance(value, (int, float)) and 0 <= value <= 1 for value in values
            )
        if not is_valid:
            what = f"{self.items} verdicts must be" if self.items else "a verdict must be"
            raise BackendError(
                f"{what} {allowed}, found {shorten(repr(verdict), 99)}: "
                f"{self.kind} question {shorten(self.question, 60)!r}"
            )


@runtime_checkable
class Judge(Protocol):
    """A model that answers questions.

    The verdict is a value from 0 to 1 (0 or 1 for a binary form), or, for a question with criteria
    or responses, one value for each. The result of a question without a verdict is its error,
    never 0.
    """

    @property
    def fingerprint(self) -> str: ...
    async def judge(self, questions: Sequence[JudgeQuestion]) -> Sequence[Verdict | Exception]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class EntityQuestion:
    """A question to a judge for texts of a response: names for placeholders (CaRR), or its claims.

    question      question that the response answers
    response      final text of the response
    rubrics       statements with the placeholders as words: "E0 was born in E1."
    placeholders  placeholders, such as "E0", each once
    kind          names: the names for the placeholders; claims: the claims of the response, one
                  for each placeholder, None for the placeholders after the last claim
    """

    question: str
    response: str
    rubrics: tuple[str, ...]
    placeholders: tuple[str, ...]
    kind: Literal["names", "claims"] = "names"


Entities = Mapping[str, str | None]
"""The name of each placeholder, None if the response states no name."""


@runtime_checkable
class EntityJudge(Judge, Protocol):
    """A judge that also reads names from a response.

    The result of a question without a readable output is its error, never a missing name.
    """

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]: ...


NO_ENTITIES = "the judge cannot read names: give it a method entities, or add the field entities"
"""The error of a question for names to a judge that is no `EntityJudge`."""

# --- all together ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Models:
    """The available models. A need whose model is `None` stays unmet.

    generator  model that writes generated answers; None for the policy
    """

    policy: Policy | None = None
    entailment: EntailmentModel | None = None
    judge: Judge | None = None
    similarity: SimilarityModel | None = None
    generator: Policy | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the models by kind, for the signature."""
        pairs = (
            ("policy", self.policy),
            ("generator", self.generator),
            ("nli", self.entailment),
            ("judge", self.judge),
            ("similarity", self.similarity),
        )
        return {name: model.fingerprint for name, model in pairs if model is not None}

    def of_kind(self, kind: str) -> Any:
        """Return the model of a kind, or None. Without a generator, the policy generates answers.

        >>> Models().of_kind("generator") is None
        True
        """
        model = getattr(self, kind)
        return self.policy if model is None and kind == "generator" else model

    async def close(self) -> None:
        """Close all models."""
        for model in (self.policy, self.generator, self.entailment, self.judge, self.similarity):
            if model is not None:
                await model.close()

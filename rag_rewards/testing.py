"""Test doubles of the four kinds of models. Their outputs come from a table or from a function.

A request without an entry in the table raises a BackendError that shows the request, so that a
test states every model output that it uses. `requests` contains the requests so far.

>>> import asyncio
>>> nli = TableEntailment({("Paris is in France.", "Paris is French."): 0.9})
>>> asyncio.run(nli.entail([("Paris is in France.", "Paris is French.")]))
[0.9]
>>> asyncio.run(nli.entail([("Paris is in France.", "Rome is French.")]))
Traceback (most recent call last):
    ...
rag_rewards.errors.BackendError: not in the table: ('Paris is in France.', 'Rome is French.')
>>> nli.requests
[('Paris is in France.', 'Paris is French.'), ('Paris is in France.', 'Rome is French.')]
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    Entities,
    EntityQuestion,
    GenerateAnswer,
    GenerateRequest,
    JudgeQuestion,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
    Verdict,
)

Answer = TypeVar("Answer")
Pair = tuple[str, str]


class _PairTable:
    """A model of pairs of texts, from a table by pair or from a function of both texts."""

    def __init__(
        self,
        table: Mapping[Pair, float | Exception] | Callable[[str, str], float | None],
        *,
        fingerprint: str = "table",
    ) -> None:
        self.table = table
        self.fingerprint = fingerprint
        self.requests: list[Pair] = []
        self.closed = False

    def _outputs(self, pairs: Sequence[Pair]) -> list[float]:
        self.requests.extend(pairs)
        outputs = []
        for pair in pairs:
            output = _look_up(self.table, pair, *pair)
            if isinstance(output, Exception):
                raise output
            outputs.append(output)
        return outputs

    async def close(self) -> None:
        self.closed = True


class TableEntailment(_PairTable):
    """An entailment model from a table by (premise, hypothesis), or from a function of both.

    An exception in the table is raised. A function returns None for an unknown pair.

    >>> import asyncio
    >>> nli = TableEntailment(lambda premise, hypothesis: float(hypothesis in premise))
    >>> asyncio.run(nli.entail([("a b c", "b"), ("a b c", "d")]))
    [1.0, 0.0]
    """

    async def entail(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the probabilities, 0 to 1, in the order of the pairs.

        Raises BackendError for a pair that is not in the table.
        """
        return self._outputs(pairs)


class TableContradiction(_PairTable):
    """An entailment model with contradictions, from a table by (premise, hypothesis).

    The table, or a function of both texts, contains the probability of a contradiction. That of an
    entailment is the rest.

    >>> import asyncio
    >>> nli = TableContradiction({("Paris is in France.", "Paris is in Italy."): 0.75})
    >>> asyncio.run(nli.entail_and_contradict([("Paris is in France.", "Paris is in Italy.")]))
    [(0.25, 0.75)]
    """

    async def entail(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the probabilities of an entailment, 0 to 1, in the order of the pairs."""
        return [1 - value for value in self._outputs(pairs)]

    async def entail_and_contradict(self, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
        """Return the probabilities of an entailment and of a contradiction.

        Raises BackendError for a pair that is not in the table.
        """
        return [(1 - value, value) for value in self._outputs(pairs)]


class TableSimilarity(_PairTable):
    """A similarity model from a table by (text, reference), or from a function of both.

    An exception in the table is raised. A function returns None for an unknown pair.

    >>> import asyncio
    >>> similarity = TableSimilarity({("I cannot tell.", "I do not know."): 0.8})
    >>> asyncio.run(similarity.similarity([("I cannot tell.", "I do not know.")]))
    [0.8]
    """

    async def similarity(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the similarities, 0 to 1, in the order of the pairs.

        Raises BackendError for a pair that is not in the table.
        """
        return self._outputs(pairs)


class TableJudge:
    """A judge from a table by JudgeQuestion, or from a function of a question.

    An exception in the table, or one that the function returns, is the result of its question.
    `entities` is a table by EntityQuestion, or a function of such a question.

    >>> import asyncio
    >>> judge = TableJudge(lambda question: int(question.response in question.gold))
    >>> question = JudgeQuestion("accuracy", "Capital of France?", "Paris", gold=("Paris",))
    >>> asyncio.run(judge.judge([question]))
    [1]
    """

    def __init__(
        self,
        table: Mapping[JudgeQuestion, Verdict | Exception]
        | Callable[[JudgeQuestion], Verdict | Exception | None],
        *,
        entities: Mapping[EntityQuestion, Entities | Exception]
        | Callable[[EntityQuestion], Entities | Exception | None]
        | None = None,
        fingerprint: str = "table",
    ) -> None:
        self.table = table
        self.names = {} if entities is None else entities
        self.fingerprint = fingerprint
        self.requests: list[JudgeQuestion | EntityQuestion] = []
        self.closed = False

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[Verdict | Exception]:
        """Return a verdict or an exception for each question.

        Raises BackendError for a question that is not in the table.
        """
        self.requests.extend(questions)
        return [self._verdict(question) for question in questions]

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        """Return the names or an exception for each question.

        Raises BackendError for a question that is not in the table.
        """
        self.requests.extend(questions)
        return [_look_up(self.names, question, question) for question in questions]

    def _verdict(self, question: JudgeQuestion) -> Verdict | Exception:
        verdict: Any = _look_up(self.table, question, question)
        if isinstance(verdict, Exception):
            return verdict
        question.check(verdict)
        return tuple(verdict) if question.items else verdict

    async def close(self) -> None:
        self.closed = True


class TablePolicy:
    """A policy whose log-probabilities and continuations come from tables or functions.

    logprobs  by (context ids, response ids): one value per response token, in nats
    texts     by prompt ids: the continuation, as text or as a GenerateAnswer. A text ends before
              a stop and after `max_tokens`

    Ids are tuples. An exception in a table, or one that a function returns, is the result of its
    request. `scored` and `generated` are the numbers of scored pairs and of prompts.

    >>> import asyncio
    >>> policy = TablePolicy(
    ...     logprobs=lambda context, response: [-float(len(context))] * len(response),
    ...     texts={(1, 2): "Paris</answer>, I think"},
    ... )
    >>> group = ScoreRequest(contexts=((1, 2), (1,)), responses=((7, 8),))
    >>> [answer] = asyncio.run(policy.score([group]))
    >>> answer.logprobs[1, 0].tolist()
    [-1.0, -1.0]
    >>> [answer] = asyncio.run(policy.generate([GenerateRequest((1, 2), stop=("</answer>",))]))
    >>> answer.text, answer.finish_reason
    ('Paris', 'stop')
    """

    def __init__(
        self,
        logprobs: Mapping[tuple[TokenIds, TokenIds], Sequence[float] | Exception]
        | Callable[[TokenIds, TokenIds], Sequence[float] | Exception | None]
        | None = None,
        texts: Mapping[TokenIds, str | GenerateAnswer | Exception]
        | Callable[[TokenIds], str | GenerateAnswer | Exception | None]
        | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        fingerprint: str = "table",
        capabilities: Capabilities | None = None,
        max_length: int | None = None,
        weight_version: str | int | None = None,
    ) -> None:
        self.logprobs = {} if logprobs is None else logprobs
        self.texts = {} if texts is None else texts
        self.tokenizer: Tokenizer = CodePoints() if tokenizer is None else tokenizer
        self.fingerprint = fingerprint
        self.capabilities = Capabilities() if capabilities is None else capabilities
        self.max_length = max_length
        self.weight_version = weight_version
        self.requests: list[ScoreRequest | GenerateRequest] = []
        self.scored = 0
        self.generated = 0
        self.closed = False

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return log-probabilities. Raises BackendError for a pair that is not in the table."""
        self.requests.extend(requests)
        return [self._score(request) for request in requests]

    def _score(self, request: ScoreRequest) -> ScoreAnswer | Exception:
        values: dict[tuple[int, int], array[float]] = {}
        computed = 0
        for c, r in request.wanted():
            context, response = request.contexts[c], request.responses[r]
            self.scored += 1
            logprobs = _look_up(self.logprobs, (context, response), context, response)
            if isinstance(logprobs, Exception):
                return logprobs
            if len(logprobs) != len(response):
                raise BackendError(
                    f"{len(logprobs)} log-probabilities for a response of {len(response)} tokens: "
                    f"{(context, response)}"
                )
            values[c, r] = array("f", logprobs)
            computed += len(context) + len(response)
        return ScoreAnswer(values, "table", computed, weight_version=self.weight_version)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return continuations. Raises BackendError for a prompt that is not in the table."""
        self.requests.extend(requests)
        return [self._generate(request) for request in requests]

    def _generate(self, request: GenerateRequest) -> GenerateAnswer | Exception:
        self.generated += 1
        answer = _look_up(self.texts, request.prompt, request.prompt)
        if not isinstance(answer, str):
            return answer
        text, reason = _before(answer, request.stop), "stop"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) > request.max_tokens:
            ids, reason = ids[: request.max_tokens], "length"
            text = self.tokenizer.decode(ids)
        return GenerateAnswer(text, tuple(ids), reason, self.weight_version)

    async def selfcheck(self) -> None:
        """Do nothing: a table needs no check."""

    async def close(self) -> None:
        self.closed = True


class CodePoints:
    """A tokenizer whose tokens are code points. A chat becomes lines of "role: content".

    >>> CodePoints().encode("hé")
    [104, 233]
    >>> chat = [{"role": "user", "content": "hi"}]
    >>> CodePoints().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    'user: hi\\nassistant: '
    """

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the code points of a text. There are no special tokens."""
        return [ord(char) for char in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of code points."""
        return "".join(chr(i) for i in token_ids)

    def apply_chat_template(
        self,
        conversation: Iterable[Mapping[str, str]],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        return_dict: bool = False,
        **_: Any,
    ) -> Any:
        """Return a chat as text, as ids, or as a mapping with `input_ids`."""
        text = "".join(f"{turn['role']}: {turn['content']}\n" for turn in conversation)
        if continue_final_message:
            text = text.removesuffix("\n")
        if add_generation_prompt:
            text += "assistant: "
        if not tokenize:
            return text
        ids = self.encode(text)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)} if return_dict else ids


# --- looking up --------------------------------------------------------------------------------


def _look_up(
    table: Mapping[Any, Answer] | Callable[..., Answer | None], key: Any, *arguments: Any
) -> Answer:
    """Return the output for a request. Raises BackendError if there is none."""
    output = table(*arguments) if callable(table) else table.get(key)
    if output is None:
        raise BackendError(f"not in the table: {key!r}")
    return output


def _before(text: str, stops: Iterable[str]) -> str:
    """Return a text up to the first stop in it."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]

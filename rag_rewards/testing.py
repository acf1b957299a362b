"""Doubles of the four models, for your own tests: answers from a table, or from a function.

What is not in the table is a BackendError that prints the question, never a default: a test
that passes has said everything that was asked. `asked` records the calls. No torch.

>>> import asyncio
>>> nli = TableEntailment({("Paris is in France.", "Paris is French."): 0.9})
>>> asyncio.run(nli.entail([("Paris is in France.", "Paris is French.")]))
[0.9]
>>> asyncio.run(nli.entail([("Paris is in France.", "Rome is French.")]))
Traceback (most recent call last):
    ...
rag_rewards.errors.BackendError: not in the table: ('Paris is in France.', 'Rome is French.')
>>> nli.asked
[('Paris is in France.', 'Paris is French.'), ('Paris is in France.', 'Rome is French.')]
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    JudgeQuestion,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)

Answer = TypeVar("Answer")
Pair = tuple[str, str]


class TableEntailment:
    """Entailment from a table of (premise, hypothesis), or a function of both.

    An exception in the table, or from the function, is raised; None is "not in the table".

    >>> import asyncio
    >>> nli = TableEntailment(lambda premise, hypothesis: float(hypothesis in premise))
    >>> asyncio.run(nli.entail([("a b c", "b"), ("a b c", "d")]))
    [1.0, 0.0]
    """

    def __init__(
        self,
        table: Mapping[Pair, float | Exception] | Callable[[str, str], float | None],
        *,
        fingerprint: str = "table",
    ) -> None:
        self.table = table
        self.fingerprint = fingerprint
        self.asked: list[Pair] = []
        self.closed = False

    async def entail(self, pairs: Sequence[Pair]) -> list[float]:
        """Probabilities, in the order of the pairs. BackendError for one not in the table."""
        self.asked.extend(pairs)
        return [_raised(_look_up(self.table, pair, *pair)) for pair in pairs]

    async def close(self) -> None:
        self.closed = True


class TableSimilarity:
    """Similarity from a table of (text, reference), or a function of both.

    An exception in the table, or from the function, is raised; None is "not in the table".

    >>> import asyncio
    >>> similarity = TableSimilarity({("I cannot tell.", "I do not know."): 0.8})
    >>> asyncio.run(similarity.similarity([("I cannot tell.", "I do not know.")]))
    [0.8]
    """

    def __init__(
        self,
        table: Mapping[Pair, float | Exception] | Callable[[str, str], float | None],
        *,
        fingerprint: str = "table",
    ) -> None:
        self.table = table
        self.fingerprint = fingerprint
        self.asked: list[Pair] = []
        self.closed = False

    async def similarity(self, pairs: Sequence[Pair]) -> list[float]:
        """Similarities, in the order of the pairs. BackendError for one not in the table."""
        self.asked.extend(pairs)
        return [_raised(_look_up(self.table, pair, *pair)) for pair in pairs]

    async def close(self) -> None:
        self.closed = True


class TableJudge:
    """Verdicts from a table of JudgeQuestion, or a function of one.

    An exception in the table, or returned by the function, is what this question alone gets.

    >>> import asyncio
    >>> judge = TableJudge(lambda asked: int(asked.response in asked.gold))
    >>> question = JudgeQuestion("accuracy", "Capital of France?", "Paris", gold=("Paris",))
    >>> asyncio.run(judge.judge([question]))
    [1]
    """

    def __init__(
        self,
        table: Mapping[JudgeQuestion, int | Exception]
        | Callable[[JudgeQuestion], int | Exception | None],
        *,
        fingerprint: str = "table",
    ) -> None:
        self.table = table
        self.fingerprint = fingerprint
        self.asked: list[JudgeQuestion] = []
        self.closed = False

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]:
        """0, 1 or an exception for each question. BackendError for one not in the table."""
        self.asked.extend(questions)
        return [self._verdict(question) for question in questions]

    def _verdict(self, question: JudgeQuestion) -> int | Exception:
        found = _look_up(self.table, question, question)
        if not isinstance(found, Exception) and found not in (0, 1):
            raise BackendError(f"a verdict is 0 or 1, the table has {found!r}: {question}")
        return found

    async def close(self) -> None:
        self.closed = True


class TablePolicy:
    """A policy whose log-probabilities and continuations are in tables, or made by functions.

    logprobs  of (context ids, response ids): one value per response token
    texts     of prompt ids: the continuation, as text or as a GenerateAnswer. A text is cut
              where a policy would: before a stop, and after `max_tokens`

    Ids are tuples. An exception in a table, or returned by a function, is what that request
    alone gets. `scored` and `generated` count pairs and prompts.

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
        self.asked: list[ScoreRequest | GenerateRequest] = []
        self.scored = 0
        self.generated = 0
        self.closed = False

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Log-probabilities of groups. BackendError for a pair that is not in the table."""
        self.asked.extend(requests)
        return [self._score(request) for request in requests]

    def _score(self, request: ScoreRequest) -> ScoreAnswer | Exception:
        values: dict[tuple[int, int], array[float]] = {}
        computed = 0
        for c, r in request.wanted():
            context, response = request.contexts[c], request.responses[r]
            self.scored += 1
            found = _look_up(self.logprobs, (context, response), context, response)
            if isinstance(found, Exception):
                return found
            if len(found) != len(response):
                raise BackendError(
                    f"{len(found)} log-probabilities for a response of {len(response)} tokens: "
                    f"{(context, response)}"
                )
            values[c, r] = array("f", found)
            computed += len(context) + len(response)
        return ScoreAnswer(values, "table", computed, weight_version=self.weight_version)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Continuations. BackendError for a prompt that is not in the table."""
        self.asked.extend(requests)
        return [self._generate(request) for request in requests]

    def _generate(self, request: GenerateRequest) -> GenerateAnswer | Exception:
        self.generated += 1
        found = _look_up(self.texts, request.prompt, request.prompt)
        if not isinstance(found, str):
            return found
        text, reason = _before(found, request.stop), "stop"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) > request.max_tokens:
            ids, reason = ids[: request.max_tokens], "length"
            text = self.tokenizer.decode(ids)
        return GenerateAnswer(text, tuple(ids), reason, self.weight_version)

    async def selfcheck(self) -> None:
        """A table is what it is."""

    async def close(self) -> None:
        self.closed = True


class CodePoints:
    """A tokenizer of one token per character, its code point; chats as "role: content" lines.

    >>> CodePoints().encode("hé")
    [104, 233]
    >>> chat = [{"role": "user", "content": "hi"}]
    >>> CodePoints().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    'user: hi\\nassistant: '
    """

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Code points. There are no special tokens."""
        return [ord(char) for char in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of code points."""
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
        """A chat as text (`tokenize=False`), as ids, or as ids under "input_ids"."""
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
    """The answer to a question. BackendError that prints it where there is none."""
    found = table(*arguments) if callable(table) else table.get(key)
    if found is None:
        raise BackendError(f"not in the table: {key!r}")
    return found


def _raised(found: float | Exception) -> float:
    if isinstance(found, Exception):
        raise found
    return found


def _before(text: str, stops: Iterable[str]) -> str:
    """A text up to the first of its stops."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]

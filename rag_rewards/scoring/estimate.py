"""The requests and tokens that scoring a file would need, without a call of a model.

Test doubles answer in place of the models, so that equal requests are merged as in a run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import (
    EntityQuestion,
    GenerateAnswer,
    GenerateRequest,
    Judge,
    JudgeQuestion,
    Models,
    ScoreAnswer,
    ScoreRequest,
    Tokenizer,
    Verdict,
)
from rag_rewards.files.grouped_lines import read_groups
from rag_rewards.files.sources import chunks, group_chunks, open_source
from rag_rewards.loading import RecipeSource, RecipeSpec
from rag_rewards.models.checked_judge import CheckedJudge, planted
from rag_rewards.models.judge_prompts import entity_messages, judge_messages, read_templates
from rag_rewards.models.local_models import resolve_tokenizer
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rows import Chunk
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.scoring.options import EstimateOptions, ScoreOptions
from rag_rewards.testing import (
    CodePoints,
    TableContradiction,
    TableJudge,
    TablePolicy,
    TableSimilarity,
)

CHARACTERS_PER_TOKEN = 4
_EXPLANATION = "x" * 100
"""The length of a short sentence, which a judge writes before its score."""
_NAME = "x" * 20
"""The length of a name that a judge reads."""
_CODE = "0" * 16


class Work(msgspec.Struct):
    """The requests to one kind of model, with their tokens.

    requests  questions, pairs of texts, or groups of responses and prompts to continue
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Estimate(msgspec.Struct, kw_only=True):
    """The work of models for a file.

    rows, errors  number of rows, and of those that cannot be scored, whatever a model answers
    work          the work by kind of model
    cost          cost of the tokens of the judge; None without prices
    exact         whether the tokens of the policy are those of its tokenizer
    """

    rows: int
    errors: int
    work: dict[str, Work]
    cost: float | None
    exact: bool


def estimate_file(recipe: RecipeSource, options: ScoreOptions, prices: EstimateOptions) -> Estimate:
    """Return the requests and tokens of a run. No model is called, and nothing is written.

    Equal requests of a batch count once, and with a cache, equal questions to the judge of the
    whole file. Questions that depend on verdicts count as if all verdicts were the best ones.
    Tokens are characters / 4, except those of a policy whose tokenizer is on this machine.

    Raises UsageError for an invalid recipe, file or template.
    """
    hardened = RecipeSpec.of(recipe).hardened
    models = _CountedModels(options.models, hardened=hardened)
    rows = errors = 0
    with (
        Scorer.load(
            recipe, models=models.models, prompt=PromptOptions.of(options.models)
        ) as scorer,
        contextlib.closing(open_source(options.source, options.columns)) as source,
    ):
        lines: Any = chunks(source.lines, with_groups=True)
        if scorer.scope == "group":
            lines = group_chunks(read_groups(source, options.group_size, options.sort))
        chunk: Chunk
        for chunk in lines:
            rows += len(chunk.lines)
            errors += len(scorer.score_rows(chunk).errors)
            models.forget()
    work = models.work
    price = (prices.price_in or 0) * work["judge"].prompt_tokens
    price += (prices.price_out or 0) * work["judge"].completion_tokens
    has_price = prices.price_in is not None or prices.price_out is not None
    return Estimate(
        rows=rows,
        errors=errors,
        work={kind: each for kind, each in work.items() if each.requests},
        cost=price / 1e6 if has_price else None,
        exact=models.policy.exact,
    )


# --- models that count ---------------------------------------------------------------------------


class _CountedModels:
    """Doubles of all kinds of models, which count the characters of their requests."""

    def __init__(self, options: ModelOptions, *, hardened: bool) -> None:
        checks = {"always": True, "never": False}.get(options.judge_checks, hardened)
        templates = options.judge_templates
        self.judge = _CountedJudge(
            marked=checks,
            templates=read_templates(templates) if templates else {},
            has_cache=options.judge_cache is not None,
        )
        self.policy = _CountedPolicy(_tokenizer(options))
        self._pairs = {"entailment": Work(), "similarity": Work()}
        judge: Judge = TableJudge(self.judge.verdict, entities=self.judge.names)
        self._entailment = TableContradiction(self._pair("entailment", 0.0))
        self._similarity = TableSimilarity(self._pair("similarity", 0.0))
        self._tables: list[Any] = [judge, self._entailment, self._similarity, self.policy]
        self.models = Models(
            policy=self.policy,
            entailment=self._entailment,
            judge=CheckedJudge(judge) if checks else judge,
            similarity=self._similarity,
        )

    def _pair(self, kind: str, value: float) -> Any:
        def count(text: str, other: str) -> float:
            self._pairs[kind].requests += 1
            self._pairs[kind].prompt_tokens += len(text) + len(other)
            return value

        return count

    def forget(self) -> None:
        """Forget the requests of a batch, so that memory does not grow with the file."""
        for table in self._tables:
            table.requests.clear()
        self.judge.known.clear()

    @property
    def work(self) -> dict[str, Work]:
        """The work by kind of model, in tokens."""
        characters = {"judge": self.judge.work, **self._pairs}
        if not self.policy.exact:
            characters["policy"] = self.policy.work
        work = {kind: _in_tokens(each) for kind, each in characters.items()}
        return {"policy": self.policy.work} | work


def _in_tokens(work: Work) -> Work:
    counts = (work.prompt_tokens, work.completion_tokens)
    return Work(work.requests, *(math.ceil(each / CHARACTERS_PER_TOKEN) for each in counts))


def _tokenizer(options: ModelOptions) -> Tokenizer | None:
    """Return the tokenizer of the policy, None if it is not on this machine."""
    if options.tokenizer is None and not (options.model and os.path.isdir(options.model)):
        return None
    return resolve_tokenizer(options.tokenizer, options.model)


class _CountedJudge:
    """Answers with the best verdict, and counts the messages and the replies of the prompts.

    known  the answers to planted questions of the checks
    """

    def __init__(self, *, marked: bool, templates: Mapping[str, Any], has_cache: bool) -> None:
        self.work = Work()
        self.known: dict[JudgeQuestion, tuple[int, ...]] = {}
        self._marked, self._templates, self._has_cache = marked, templates, has_cache
        self._cached: set[int] = set()

    def verdict(self, question: JudgeQuestion) -> Verdict | Exception:
        template = self._templates.get(question.kind)
        try:
            messages = judge_messages(question, marked=self._marked, template=template)
        except UsageError as error:  # the error of this question, as with a real judge
            return error
        values = self.known.get(question, (1,) * (question.items or 1))
        reply: dict[str, Any] = {"explanation": _EXPLANATION}
        if question.items:
            reply["scores"] = {str(i): value for i, value in enumerate(values, 1)}
        else:
            reply["score"] = values[0]
        self._count(messages, reply)
        if self._marked and (canary := planted(question, values if question.items else values[0])):
            self.known[canary.question] = canary.expected
        return values if question.items else values[0]

    def names(self, question: EntityQuestion) -> dict[str, str | None]:
        names: dict[str, str | None] = {name: f"{_NAME} {name}" for name in question.placeholders}
        self._count(entity_messages(question, marked=self._marked), names)
        return names

    def _count(self, messages: Sequence[Mapping[str, str]], reply: Mapping[str, Any]) -> None:
        texts = tuple(each["content"] for each in messages)
        if self._has_cache:
            key = hash(texts)
            if key in self._cached:
                return
            self._cached.add(key)
        self.work.requests += 1
        self.work.prompt_tokens += sum(map(len, texts))
        code = {"code": _CODE} if self._marked else {}
        self.work.completion_tokens += len(json.dumps({**reply, **code}))


class _CountedPolicy(TablePolicy):
    """A policy that counts the tokens of its requests; without a tokenizer, the characters."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        super().__init__(
            lambda context, response: [0.0] * len(response), tokenizer=tokenizer or CodePoints()
        )
        self.exact = tokenizer is not None
        self.work = Work()

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        answers = await super().score(requests)
        self.work.requests += len(requests)
        self.work.prompt_tokens += sum(
            answer.computed for answer in answers if isinstance(answer, ScoreAnswer)
        )
        return answers

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        self.work.requests += len(requests)
        self.work.prompt_tokens += sum(len(each.prompt) for each in requests)
        # `max_tokens` is a number of tokens, whatever the tokenizer counts.
        size = 1 if self.exact else CHARACTERS_PER_TOKEN
        self.work.completion_tokens += size * sum(each.max_tokens for each in requests)
        return [GenerateAnswer("", ()) for _ in requests]

"""The requests and tokens that scoring a file would need, without a call of a model.

Test doubles answer in place of the models, so that equal requests are merged as in a run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import (
    Entities,
    EntityQuestion,
    GenerateAnswer,
    GenerateRequest,
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
from rag_rewards.models.addresses import is_url
from rag_rewards.models.checked_judge import CheckedJudge, planted
from rag_rewards.models.judge_prompts import entity_messages, judge_messages, read_templates
from rag_rewards.models.local_models import local_folder, resolve_tokenizer
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.models.verdict_cache import Verdicts
from rag_rewards.rows import Chunk
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.scoring.options import EstimateOptions, ScoreOptions
from rag_rewards.testing import (
    CodePoints,
    TableContradiction,
    TablePolicy,
    TableSimilarity,
)

Messages = list[dict[str, str]]
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
    exact         the kinds of models whose tokens are those of their tokenizer
    """

    rows: int
    errors: int
    work: dict[str, Work]
    cost: float | None
    exact: list[str]


def estimate_file(recipe: RecipeSource, options: ScoreOptions, prices: EstimateOptions) -> Estimate:
    """Return the requests and tokens of a run. No model is called, and nothing is written.

    Equal requests of a batch count once. With a cache, equal questions to the judge count once in
    the whole file, and not at all if the cache of this judge has the verdict. Questions that depend
    on verdicts count as if all verdicts were the best ones. Tokens are characters / 4, except those
    of a policy whose tokenizer is on this machine.

    Raises UsageError for an invalid recipe, file or template, and for a model whose folder does not
    exist.
    """
    hardened = RecipeSpec.of(recipe).hardened
    own = options.models
    for model in (own.model, own.generator, own.nli, own.similarity):
        if model and not is_url(model):
            local_folder(model)
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
    judge = work["judge"]
    return Estimate(
        rows=rows,
        errors=errors,
        work={kind: each for kind, each in work.items() if each.requests},
        cost=prices.cost(judge.prompt_tokens, judge.completion_tokens),
        exact=models.exact,
    )


# --- models that count ---------------------------------------------------------------------------


class _CountedModels:
    """Doubles of all kinds of models, which count the characters of their requests."""

    def __init__(self, options: ModelOptions, *, hardened: bool) -> None:
        checks = {"always": True, "never": False}.get(options.judge_checks, hardened)
        self.judge = _CountedJudge(options, marked=checks)
        self._policies = {"policy": _CountedPolicy(_tokenizer(options.tokenizer, options.model))}
        if options.generator:
            self._policies["generator"] = _CountedPolicy(_tokenizer(None, options.generator))
        self._pairs = {"entailment": Work(), "similarity": Work()}
        self._entailment = TableContradiction(self._pair("entailment", 0.0))
        self._similarity = TableSimilarity(self._pair("similarity", 0.0))
        self._tables: list[Any] = [self._entailment, self._similarity, *self._policies.values()]
        self.models = Models(
            policy=self._policies["policy"],
            generator=self._policies.get("generator"),
            entailment=self._entailment,
            judge=CheckedJudge(self.judge) if checks else self.judge,
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
        self.judge.planted_answers.clear()

    @property
    def work(self) -> dict[str, Work]:
        """The work by kind of model, in tokens."""
        work = {kind: each.work for kind, each in self._policies.items() if each.exact}
        characters = {kind: each.work for kind, each in self._policies.items() if not each.exact}
        characters |= {"judge": self.judge.work, **self._pairs}
        return work | {kind: _in_tokens(each) for kind, each in characters.items()}

    @property
    def exact(self) -> list[str]:
        """The kinds of models whose tokenizer is on this machine."""
        return [kind for kind, policy in self._policies.items() if policy.exact]


def _in_tokens(work: Work) -> Work:
    counts = (work.prompt_tokens, work.completion_tokens)
    return Work(work.requests, *(math.ceil(each / CHARACTERS_PER_TOKEN) for each in counts))


def _tokenizer(folder: str | None, model: str | None) -> Tokenizer | None:
    """Return a tokenizer, or that of a model; None if it is not on this machine."""
    if folder is None and not (model and os.path.isdir(model)):
        return None
    return resolve_tokenizer(folder, model)


class _CountedJudge:
    """Answers with the best verdict, and counts the messages and the replies of the prompts.

    planted_answers  the answers to planted questions of the checks
    """

    fingerprint = "estimate"

    def __init__(self, options: ModelOptions, *, marked: bool) -> None:
        self.work = Work()
        self.planted_answers: dict[JudgeQuestion, tuple[int, ...]] = {}
        self._marked = marked
        templates = options.judge_templates
        self._templates = read_templates(templates) if templates else {}
        self._cache = _Cache(options, marked=marked) if options.judge_cache else None

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[Verdict | Exception]:
        messages: list[Messages | Exception] = []
        for question in questions:
            template = self._templates.get(question.kind)
            try:
                messages.append(judge_messages(question, marked=self._marked, template=template))
            except UsageError as error:  # the error of this question, as with a real judge
                messages.append(error)
        values = [self.planted_answers.get(each, (1,) * (each.items or 1)) for each in questions]
        replies = [
            {"explanation": _EXPLANATION, "scores": {str(i): v for i, v in enumerate(own, 1)}}
            for own in values
        ]
        self._count(questions, messages, replies)
        answers: list[Verdict | Exception] = []
        for question, own, texts in zip(questions, values, messages, strict=True):
            verdict = own if question.items else own[0]
            answers.append(texts if isinstance(texts, Exception) else verdict)
            if self._marked and (canary := planted(question, verdict)):
                self.planted_answers[canary.question] = canary.expected
        return answers

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        names: list[dict[str, str | None]] = []
        for each in questions:
            names.append({name: f"{_NAME} {name}" for name in each.placeholders})
            if each.kind == "claims":  # a list without a free place would be incomplete
                names[-1][each.placeholders[-1]] = None
        messages = [entity_messages(each, marked=self._marked) for each in questions]
        self._count(questions, messages, names)
        return [*names]

    def _count(
        self,
        questions: Sequence[Any],
        messages: Sequence[Messages | Exception],
        replies: Sequence[Mapping[str, Any]],
    ) -> None:
        cached = self._cache.find(questions) if self._cache else set()
        code = {"code": _CODE} if self._marked else {}
        for question, texts, reply in zip(questions, messages, replies, strict=True):
            if not isinstance(texts, Exception) and question not in cached:
                self.work.requests += 1
                self.work.prompt_tokens += sum(len(each["content"]) for each in texts)
                self.work.completion_tokens += len(json.dumps({**reply, **code}))

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class _Cache:
    """The questions that a run with a cache does not send: those in its file, and repeated ones."""

    def __init__(self, options: ModelOptions, *, marked: bool) -> None:
        self._seen: set[int] = set()
        self._path = options.judge_cache or ""
        self._judge: Any = None
        if options.judge and os.path.exists(self._path):
            judge = replace(options, judge_checks="always" if marked else "never").load_judge()
            self._judge = getattr(judge, "inner", judge)

    def find(self, questions: Sequence[Any]) -> set[Any]:
        """Return the questions that are in the cache, and add the others to it."""
        digests = {question: hash(question) for question in questions}
        seen = {question for question, digest in digests.items() if digest in self._seen}
        self._seen.update(digests.values())
        return seen | self._stored([each for each in digests if each not in seen])

    def _stored(self, questions: Sequence[Any]) -> set[Any]:
        if self._judge is None:
            return set()
        keys = {}
        for question in questions:
            with contextlib.suppress(UsageError):  # it is not sent
                keys[question] = self._judge.cache_keys(question)
        with contextlib.closing(Verdicts(self._path)) as file:
            stored = dict(file.get(chain.from_iterable(keys.values())))
        return {question for question, own in keys.items() if stored.keys() >= set(own)}


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

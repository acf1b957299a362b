"""Rollouts in, scores out: a plan, and the models that it asks.

What the command line, the server and the trainers' adapters all build from plain options:

    grader = Grader.of({"recipe": "arena", "settings": {"bonus.value": 5}, "hardened": True})
    grader.score_each(rollouts)         # or: await grader.score_each_async(rollouts)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.blueprints import Recipe, Scored, named
from rag_rewards.compose import Batch
from rag_rewards.contexts import GROUNDED, PROMPTS, Prompt
from rag_rewards.errors import GroupError, RolloutError, SettingError, UsageError
from rag_rewards.evidence import Model
from rag_rewards.models import Entailment, Judge, Models, Policy, Similarity
from rag_rewards.rollout import Rollout
from rag_rewards.scoring import Plan, signature_of
from rag_rewards.settings import did_you_mean
from rag_rewards.training.curriculum import Curriculum

if TYPE_CHECKING:
    from rag_rewards.gathering import Gatherer, Usage

R = TypeVar("R", bound=Rollout)
WAYS_OUT: dict[Model, str] = {
    "policy": 'model="path/to/model", or a server: model="http://host:8000", backend="vllm"',
    "entailment": 'nli="path/to/model"',
    "similarity": 'similarity="path/to/model"',
    "judge": 'judge="http://host:8000/v1", judge_model="NAME"',
}
"""The option that brings each kind of model."""
BACKENDS = ("transformers", "vllm", "sglang")


@dataclass(frozen=True)
class ModelOptions:
    """Which models to ask, as the command line names them."""

    model: str | None = None
    backend: str = "transformers"
    dtype: str = "auto"
    device: str | None = None
    adapter: str | None = None
    tokenizer: str | None = None
    token_budget: int | None = None
    truncate: bool = False
    document_form: str | None = None
    document_separator: str | None = None
    nli: str | None = None
    judge: str | None = None
    judge_model: str | None = None
    judge_cache: str | None = None
    judge_retries: int = 5
    similarity: str | None = None

    @property
    def given(self) -> bool:
        return bool(self.model or self.nli or self.judge or self.similarity)

    @property
    def asking(self) -> dict[str, Any]:
        """How the policy is asked: arguments of a `Grader`."""
        return {
            "truncate": self.truncate,
            "document_form": self.document_form,
            "document_separator": self.document_separator,
        }

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"--backend is one of {', '.join(BACKENDS)}, not {self.backend!r}")
        if self.judge and not self.judge_model:
            raise UsageError("--judge URL needs --judge-model NAME")
        if self.token_budget is not None and self.token_budget < 256:
            raise UsageError(f"--token-budget is at least 256, found {self.token_budget}")
        if self.truncate and not self.model:
            raise UsageError("--truncate shortens what --model is shown: give --model")
        Prompt("").showing(self.document_form, self.document_separator)  # before a model is loaded
        stands = (self.document_form, self.document_separator)
        if stands != (None, None) and not self.model:
            raise UsageError(
                "--document-form and --document-separator say how documents stand in what --model "
                "is shown: give --model"
            )

    def load(self) -> Models:
        """The models. MissingExtraError names what must be installed for one of them."""
        return Models(
            policy=_policy(self) if self.model else None,
            entailment=_entailment(self.nli, self.device) if self.nli else None,
            judge=_judge(self) if self.judge else None,
            similarity=_similarity(self.similarity, self.device) if self.similarity else None,
        )


class Grader:
    """A recipe or curriculum, by its plan or as it is, and the models that answer its needs.

    `models` are those to ask; without any, rollouts bring their evidence. `prompt` is how a
    policy is asked (default: the recipe's own), `document_form` and `document_separator` stand
    over how it shows documents, `template` holds arguments of its chat template, `truncate` lets
    long prompts lose documents that do not support. SettingError, UsageError.
    """

    def __init__(
        self,
        plan: Plan | Recipe | Curriculum,
        models: Models | None = None,
        *,
        prompt: Prompt | None = None,
        template: Mapping[str, Any] | None = None,
        truncate: bool = False,
        document_form: str | None = None,
        document_separator: str | None = None,
    ) -> None:
        self.reward = plan.build() if isinstance(plan, Plan) else plan
        self.models = models or Models()
        asked = prompt or self._own_prompt()
        self.prompt = asked.showing(document_form, document_separator)
        self.template = dict(template or {})
        self.truncate = truncate
        self._gatherer: Gatherer | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], **further: Any) -> Grader:
        """From one flat mapping: the plan's `recipe`, `settings`, `hardened` and `stages`, and the
        command line's names for models (`model`, `backend`, `nli`, `judge`, `judge_model`, …).

        >>> Grader.of({"recipe": "arena", "settings": {"bonus.value": 5}}).reward.name
        'arena'
        """
        plan, models = plan_and_models(options)
        plan.build()  # says what is wrong before a model is loaded
        return cls(plan, models.load(), **models.asking, **further)

    def _own_prompt(self) -> Prompt:
        reward = self.reward
        stages = reward.stages if isinstance(reward, Curriculum) else ()
        names = [stage.recipe.name for stage in stages] or [reward.name]
        prompts = list(dict.fromkeys(PROMPTS.get(name, GROUNDED) for name in names))
        if self.models.policy is not None and len(prompts) > 1:
            raise UsageError("stages that ask with different prompts: score each by itself")
        return prompts[0]

    @property
    def scope(self) -> str:
        """`group` when rollouts of a group must be scored together."""
        return str(self.reward.scope)

    @property
    def gatherer(self) -> Gatherer:
        if self._gatherer is None:
            from rag_rewards.gathering import Gatherer

            self._gatherer = Gatherer(
                self.models, self.prompt, truncate=self.truncate, template=self.template
            )
        return self._gatherer

    @property
    def asks(self) -> bool:
        """Whether there is any model to ask."""
        return self.models != Models()

    def missing(self, rollouts: Sequence[Rollout]) -> set[Model]:
        """The kinds of model that these rollouts still ask and that nobody gave."""
        return {kind for kind in asked(self.reward, rollouts) if not getattr(self.models, kind)}

    @property
    def fingerprints(self) -> dict[str, str]:
        return self.gatherer.fingerprints

    @property
    def signature(self) -> str:
        """One line that reproduces the scores, the models' fingerprints included."""
        return signature_of(self.reward, self.fingerprints if self.asks else {})

    @property
    def usage(self) -> Usage:
        return self.gatherer.usage

    def gather(self, rollouts: Sequence[R]) -> list[R | RolloutError]:
        """The rollouts with the evidence that they lacked, or their errors."""
        return self.gatherer.gather_sync(self.reward, rollouts)

    def score_each(
        self,
        rollouts: Sequence[Rollout | RolloutError],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> list[Scored]:
        """A score or an error for each; what comes in as an error stays one, and in group scope
        takes its group with it. `groups` gives the positions of each group's members where the
        rollouts' own keys do not."""
        known = list(rollouts)
        if self.asks:
            good, within = _good(rollouts, groups)
            known = _placed(known, self.gatherer.gather_sync(self.reward, good, within))
        return self._score(known, groups)

    async def score_each_async(
        self,
        rollouts: Sequence[Rollout | RolloutError],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> list[Scored]:
        """The same for callers with an event loop."""
        known = list(rollouts)
        if self.asks:
            good, within = _good(rollouts, groups)
            known = _placed(known, await self.gatherer.gather(self.reward, good, within))
        return self._score(known, groups)

    def _score(
        self,
        known: Sequence[Rollout | RolloutError],
        groups: Sequence[Sequence[int]] | None,
    ) -> list[Scored]:
        if self.scope != "group":
            groups = [[i] for i in range(len(known))]
        elif groups is None:
            groups = _groups_by_key(known)
        return score_known(self.reward, known, groups)

    def judged(self) -> str:
        """What the judge cost, in a few words; "" where none was asked."""
        usage = getattr(self.models.judge, "usage", None)
        if usage is None or not usage.verdicts:
            return ""
        tokens = usage.prompt_tokens + usage.completion_tokens
        said = [f"{usage.requests:,} requests", f"{usage.cache_hits:,} from the cache"]
        if tokens:
            said.append(f"{tokens:,} tokens")
        if usage.cost:
            said.append(f"{usage.cost:.4g} spent")
        if usage.requests:
            said.append(f"p95 {usage.latency_p95 * 1000:.0f} ms")
        return " · ".join(said)

    def close(self) -> None:
        asyncio.run(self.models.close())


def asked(reward: Recipe | Curriculum, rollouts: Sequence[Rollout]) -> set[Model]:
    """The kinds of model that are asked about these rollouts. Where needs cannot be told, scoring
    says why."""
    kinds: set[Model] = set()
    for rollout in rollouts:
        try:
            kinds |= {need.asks for need in reward.needs(rollout) if not need.met(rollout)}
        except RolloutError:
            continue
    return kinds


def plan_and_models(options: Mapping[str, Any]) -> tuple[Plan, ModelOptions]:
    """One flat mapping, told apart. UsageError names an unknown key, and the nearest known one."""
    of_plan = ("recipe", "settings", "hardened", "stages")
    of_models = tuple(field.name for field in fields(ModelOptions))
    for key in options:
        if key not in of_plan and key not in of_models:
            known = (*of_plan, *of_models)
            raise UsageError(f"unknown option {key!r}{did_you_mean(str(key), known)}")
    given = {key: options[key] for key in of_plan if options.get(key) is not None}
    try:
        plan = msgspec.convert(given, Plan)
    except msgspec.ValidationError as error:
        raise SettingError(str(error)) from None
    if bool(plan.recipe) == bool(plan.stages):
        raise UsageError("which recipe? give recipe=NAME, or stages, not both")
    chosen = {key: options[key] for key in of_models if options.get(key) is not None}
    return plan, ModelOptions(**chosen)


def score_known(
    reward: Recipe | Curriculum,
    known: Sequence[Rollout | RolloutError],
    groups: Sequence[Sequence[int]],
) -> list[Scored]:
    """Scores of groups, each whole or not at all; errors stand in their place."""
    results: list[Scored | None] = [None] * len(known)
    whole: list[Sequence[int]] = []
    for group in groups:
        members = [known[i] for i in group]
        broken = next((row for row in members if isinstance(row, RolloutError)), None)
        if broken is None:
            whole.append(group)
            continue
        for i, row in zip(group, members, strict=True):
            results[i] = row if isinstance(row, RolloutError) else _beside(broken, row)
    rollouts = [row for group in whole for i in group if isinstance(row := known[i], Rollout)]
    places = iter(range(len(rollouts)))
    within = [[next(places) for _ in group] for group in whole]
    scored = reward.score_each(rollouts, within)
    for i, result in zip((i for group in whole for i in group), scored, strict=True):
        results[i] = result
    if None in results:
        raise UsageError("every rollout belongs to one group")
    return [result for result in results if result is not None]


def _beside(broken: RolloutError, rollout: Rollout) -> RolloutError:
    return named(GroupError(f"its group has a member in error ({broken})"), rollout)


def _groups_by_key(known: Sequence[Rollout | RolloutError]) -> list[Sequence[int]]:
    """Groups by the rollouts' own keys; a row that does not decode is a group of its own."""
    good = [i for i, row in enumerate(known) if isinstance(row, Rollout)]
    batch = Batch([row for row in known if isinstance(row, Rollout)])
    apart: list[Sequence[int]] = [
        [i] for i, row in enumerate(known) if not isinstance(row, Rollout)
    ]
    return [*[[good[i] for i in group] for group in batch.groups], *apart]


def _good(
    rollouts: Sequence[Rollout | RolloutError], groups: Sequence[Sequence[int]] | None
) -> tuple[list[Rollout], list[list[int]] | None]:
    """The rollouts without the errors among them, and their groups by their new positions."""
    good = [row for row in rollouts if isinstance(row, Rollout)]
    if groups is None:
        return good, None
    places = (i for i, row in enumerate(rollouts) if isinstance(row, Rollout))
    new = {i: at for at, i in enumerate(places)}
    return good, [[new[i] for i in group if i in new] for group in groups]


def _placed(
    rollouts: Sequence[Rollout | RolloutError], informed: Sequence[Rollout | RolloutError]
) -> list[Rollout | RolloutError]:
    """Informed rollouts in the place of those that were asked about."""
    new = iter(informed)
    return [next(new) if isinstance(row, Rollout) else row for row in rollouts]


def _policy(options: ModelOptions) -> Policy:
    path, budget = str(options.model), options.token_budget
    if options.backend == "transformers":
        if _is_url(path):
            raise UsageError(f"--model {path} is a server: give --backend vllm or sglang")
        if options.tokenizer:
            raise UsageError("--tokenizer is for servers; --backend transformers has the model's")
        from rag_rewards.backends.transformers import TransformersPolicy

        limit = {} if budget is None else {"token_budget": budget}
        return TransformersPolicy.load(
            path, dtype=options.dtype, device=options.device, adapter=options.adapter, **limit
        )
    if options.adapter:
        raise UsageError("--adapter is for --backend transformers; a server loads its own")
    return _server(options, path)


def _server(options: ModelOptions, model: str) -> Policy:
    """A scoring server, or vLLM in this process where a path is given."""
    named: dict[str, Any] = {}
    if options.tokenizer is not None:
        named["tokenizer"] = options.tokenizer
    if not _is_url(model):
        if options.backend == "sglang":
            raise UsageError("--backend sglang takes the URL of a server as --model")
        from rag_rewards.backends.vllm import VllmEngine

        return VllmEngine(model, dtype=options.dtype, **named)
    if options.dtype != "auto":
        named["precision"] = options.dtype  # what the server runs in: it does not say
    if options.backend == "sglang":
        from rag_rewards.backends.sglang import SglangServer

        return SglangServer(model, **named)
    from rag_rewards.backends.vllm import VllmServer

    return VllmServer(model, **named)


def _entailment(path: str, device: str | None) -> Entailment:
    from rag_rewards.backends.nli import load_entailment

    return load_entailment(path, device=device)


def _similarity(path: str, device: str | None) -> Similarity:
    from rag_rewards.backends.similarity import SentenceSimilarity

    return SentenceSimilarity(path, device=device)


def _judge(options: ModelOptions) -> Judge:
    from rag_rewards.backends.openai import OpenAIJudge

    return OpenAIJudge(
        str(options.judge_model),
        base_url=str(options.judge),
        cache=options.judge_cache,
        retries=options.judge_retries,
    )


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))

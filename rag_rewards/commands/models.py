"""--model, --nli, --judge and --similarity, to a gatherer that asks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.models import Entailment, Judge, Models, Policy, Similarity
from rag_rewards.scoring import Plan, Row

if TYPE_CHECKING:
    from rag_rewards.gathering import Usage

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
    nli: str | None = None
    judge: str | None = None
    judge_model: str | None = None
    judge_cache: str | None = None
    judge_retries: int = 5
    similarity: str | None = None

    @property
    def given(self) -> bool:
        return bool(self.model or self.nli or self.judge or self.similarity)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"--backend is one of {', '.join(BACKENDS)}, not {self.backend!r}")
        if self.judge and not self.judge_model:
            raise UsageError("--judge URL needs --judge-model NAME")
        if self.token_budget is not None and self.token_budget < 256:
            raise UsageError(f"--token-budget is at least 256, found {self.token_budget}")
        if self.truncate and not self.model:
            raise UsageError("--truncate shortens what --model is shown: give --model")


class Asking:
    """A gatherer for one plan, as `Scorer` calls it, and what it used."""

    def __init__(self, plan: Plan, options: ModelOptions) -> None:
        from rag_rewards.contexts import GROUNDED, PROMPTS
        from rag_rewards.gathering import Gatherer

        self.reward = plan.build()
        self.models = Models(
            policy=_policy(options) if options.model else None,
            entailment=_entailment(options.nli, options.device) if options.nli else None,
            judge=_judge(options) if options.judge else None,
            similarity=_similarity(options.similarity, options.device)
            if options.similarity
            else None,
        )
        names = [stage.get("recipe") for stage in plan.stages] or [plan.recipe]
        prompts = list(dict.fromkeys(PROMPTS.get(str(name), GROUNDED) for name in names))
        if self.models.policy is not None and len(prompts) > 1:
            raise UsageError("stages that ask with different prompts: score each by itself")
        self.gatherer = Gatherer(self.models, prompt=prompts[0], truncate=options.truncate)

    def __call__(self, rows: Sequence[Row]) -> list[Row | RolloutError]:
        return self.gatherer.gather_sync(self.reward, rows)

    @property
    def fingerprints(self) -> dict[str, str]:
        return self.gatherer.fingerprints

    @property
    def usage(self) -> Usage:
        return self.gatherer.usage

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
        import asyncio

        asyncio.run(self.models.close())


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

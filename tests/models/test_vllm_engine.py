"""The vLLM engine in this process, with a test double of `vllm.LLM`.

The double has the fields and the checks of requests for log-probabilities of vLLM 0.33.0
(`vllm/sampling_params.py`, `vllm/v1/engine/input_processor.py`). Its V2 model runner, which scores
the end of a prompt, needs a GPU, so that it was not run.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from array import array
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest
from ngram import greedy, logprobs, scored, text_of

from rag_rewards.errors import BackendError, MissingExtraError
from rag_rewards.evidence.protocols import GenerateRequest, Policy, ScoreRequest
from rag_rewards.models.vllm import VllmEngine

CONTEXTS = (tuple(range(42)), tuple(range(20)) + tuple(range(30, 45)))
RESPONSES = ((1, 2, 3, 4), (5, 6), (1, 2, 3, 4), (11, 12, 13))
GROUP = ScoreRequest(CONTEXTS, RESPONSES)


@dataclass
class SamplingParams:
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    prompt_logprobs: int | None = None
    prompt_logprob_token_ids: list[list[int]] | None = None
    prompt_logprob_start: int | None = None
    skip_reading_prefix_cache: bool | None = None
    detokenize: bool = True
    stop: list[str] = field(default_factory=list)
    seed: int | None = None

    def verify(self, config, length):
        """Check as vLLM does; `length` is that of the prompt."""
        if self.prompt_logprob_token_ids is None:
            assert self.prompt_logprob_start is None, "requires prompt_logprob_token_ids"
            return
        assert config.use_v2_model_runner, "requires the V2 model runner"
        assert not config.cache_config.kv_sharing_fast_prefill
        assert len(self.prompt_logprob_token_ids) == length - 1 - self.prompt_logprob_start


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class Words:
    """A tokenizer of characters."""

    def encode(self, text, *, add_special_tokens=True):
        return [ord(character) % 48 for character in text]


class LLM:
    """`generate` returns one RequestOutput per token prompt, in order."""

    def __init__(self, model="/models/tiny", *, v2=False, fast_prefill=False, **options):
        config = SimpleNamespace(model=model, dtype="torch.float32", max_model_len=512)
        cache = SimpleNamespace(kv_sharing_fast_prefill=fast_prefill)
        vllm_config = SimpleNamespace(use_v2_model_runner=v2, cache_config=cache)
        self.llm_engine = SimpleNamespace(model_config=config, vllm_config=vllm_config)
        self.options = options
        self.calls = []
        self.distort = list
        self._busy = threading.Lock()

    def get_tokenizer(self):
        return Words()

    def generate(self, prompts, sampling_params=None, *, use_tqdm=True):
        assert self._busy.acquire(blocking=False), "an LLM is not made for two threads"
        try:
            assert not use_tqdm
            self.calls.append((len(prompts), sampling_params))
            each = isinstance(sampling_params, list)
            return [
                self.one(
                    prompt["prompt_token_ids"], sampling_params[i] if each else sampling_params
                )
                for i, prompt in enumerate(prompts)
            ]
        finally:
            self._busy.release()

    def one(self, tokens, parameters):
        if any(not 0 <= token < 48 for token in tokens):
            raise ValueError(f"Token id {max(tokens)} is out of vocabulary")
        parameters.verify(self.llm_engine.vllm_config, len(tokens))
        rows, scores = None, None
        if parameters.prompt_logprobs is not None:
            assert not parameters.detokenize
            rows = self.rows(tokens)
        if (ids := parameters.prompt_logprob_token_ids) is not None:
            assert ids == [[token] for token in tokens[parameters.prompt_logprob_start + 1 :]]
            scores = [[value] for value in self.distort(logprobs(tokens))[-len(ids) :]]
        output_ids = greedy(tokens, parameters.max_tokens)
        reason = "length"
        for i in range(1, len(output_ids) + 1):
            if any(end in text_of(output_ids[:i]) for end in parameters.stop):
                output_ids, reason = output_ids[:i], "stop"
                break
        text = text_of(output_ids)
        for end in parameters.stop:
            text = text.split(end)[0]
        output = SimpleNamespace(
            index=0, text=text, token_ids=array("l", output_ids), finish_reason=reason
        )
        return SimpleNamespace(
            prompt_token_ids=tokens,
            prompt_logprobs=rows,
            prompt_token_id_logprobs=scores,
            outputs=[output],
        )

    def rows(self, tokens):
        values = zip(tokens, self.distort(logprobs(tokens)), strict=True)
        return [{token: Logprob(value)} if i else None for i, (token, value) in enumerate(values)]


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module


def score(policy, *requests):
    return asyncio.run(policy.score(requests))


def check_values(answer, request):
    assert answer.logprobs.keys() == set(request.wanted())
    for (c, r), values in answer.logprobs.items():
        expected = scored(request.contexts[c], request.responses[r])
        assert list(values) == pytest.approx(expected, abs=1e-5)


def count(request):
    return sum(len(request.contexts[c]) + len(request.responses[r]) for c, r in request.wanted())


def test_values_are_those_of_the_model():
    policy = VllmEngine(LLM())
    assert isinstance(policy, Policy)
    other = ScoreRequest(((7, 8, 9),), ((4,), ()), ((0, 1), (0, 0)))
    first, second = score(policy, GROUP, other)
    check_values(first, GROUP)
    check_values(second, other)
    assert first.path == "vllm"
    assert first.computed + first.reused == count(GROUP)
    # One call has the distinct sequences of all groups, without detokenization.
    ((prompts, parameters),) = policy.llm.calls
    assert prompts == 6 + 1
    assert (parameters.prompt_logprobs, parameters.max_tokens) == (0, 1)
    assert not parameters.detokenize
    assert parameters.skip_reading_prefix_cache
    assert score(policy) == []


def test_the_v2_model_runner_scores_responses_only():
    policy, plain = VllmEngine(LLM(v2=True)), VllmEngine(LLM(v2=True, fast_prefill=True))
    (answer,), (expected,) = score(policy, GROUP), score(plain, GROUP)
    assert answer.logprobs == expected.logprobs
    ((_, parameters),) = policy.llm.calls
    assert [one.prompt_logprob_start for one in parameters] == [41, 41, 41, 34, 34, 34]
    assert {one.prompt_logprobs for one in parameters} == {None}
    assert all(one.skip_reading_prefix_cache for one in parameters)
    ((_, parameters),) = plain.llm.calls
    assert parameters.prompt_logprobs == 0
    asyncio.run(policy.selfcheck())
    assert policy.llm.calls[-1][1][0].prompt_logprob_start is not None


def test_responses_only_are_not_scored_after_a_failed_selfcheck(caplog):
    """A prefill that starts after the first row to score has no result (vLLM 0.33)."""

    class Nothing(LLM):
        def one(self, tokens, parameters):
            output = super().one(tokens, parameters)
            output.prompt_token_id_logprobs = None
            return output

    policy = VllmEngine(Nothing(v2=True))
    assert "expected 4 rows of one log-probability" in str(score(policy, GROUP)[0])
    asyncio.run(policy.selfcheck())
    check_values(score(policy, GROUP)[0], GROUP)
    assert "prompt_logprob_start is not used" in caplog.text


def test_identity_and_limits():
    policy = VllmEngine(LLM(), weight_version=3)
    assert policy.fingerprint == "vllm /models/tiny float32 version=3"
    assert policy.capabilities.precision == "float32"
    assert policy.max_length == 511
    assert isinstance(policy.tokenizer, Words)
    tokenizer = object()
    assert VllmEngine(LLM(), tokenizer=tokenizer).tokenizer is tokenizer
    policy.refresh(4)
    assert policy.fingerprint.endswith("version=4")
    assert score(policy, GROUP)[0].weight_version == 4
    asyncio.run(policy.close())


def test_a_model_is_loaded_by_name(tmp_path):
    policy = VllmEngine(tmp_path, enforce_eager=True)
    assert policy.llm.options == {"enforce_eager": True}
    assert policy.fingerprint == f"vllm {tmp_path} float32"


def test_missing_vllm_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r'pip install "rag-rewards\[vllm\]"'):
        VllmEngine("model")


def test_selfcheck_passes_and_fails():
    llm = LLM()
    asyncio.run(VllmEngine(llm).selfcheck())
    llm.distort = lambda values: [None, -3.0, *values[1:-1]]
    with pytest.raises(BackendError, match=r"own token: .*shifted by one"):
        asyncio.run(VllmEngine(llm).selfcheck())


def test_a_group_that_cannot_be_scored_fails_alone():
    policy = VllmEngine(LLM())
    unknown = ScoreRequest(((1, 2),), ((99,),))
    empty = ScoreRequest(((),), ((1,),))
    long = ScoreRequest((tuple([5] * 510),), ((1, 2),))
    first, second, third, fine = score(policy, unknown, empty, long, GROUP)
    assert "ValueError: Token id 99 is out of vocabulary" in str(first)
    assert "context 0 is empty" in str(second)
    assert "510 + 2 tokens, more than the maximum of 511" in str(third)
    check_values(fine, GROUP)


def test_an_invalid_value_fails_its_group():
    llm = LLM()
    llm.distort = lambda values: [None, *[-math.inf] * (len(values) - 1)]
    (answer,) = score(VllmEngine(llm), GROUP)
    assert "not finite" in str(answer)
    llm.rows = lambda tokens: None
    (answer,) = score(VllmEngine(llm), GROUP)
    assert "no log-probabilities of the prompt" in str(answer)


def test_generation():
    policy = VllmEngine(LLM(), weight_version=1)
    tokens = tuple(greedy((1, 2, 3), 6))
    end = text_of(tokens)[2:4]
    whole, stopped = asyncio.run(
        policy.generate(
            [
                GenerateRequest((1, 2, 3), max_tokens=6),
                GenerateRequest(
                    (1, 2, 3), max_tokens=6, temperature=0.5, stop=(end,), seed=11, top_p=0.9
                ),
            ]
        )
    )
    assert (whole.text, whole.token_ids, whole.finish_reason) == (text_of(tokens), tokens, "length")
    assert (stopped.text, stopped.finish_reason) == (text_of(tokens)[:2], "stop")
    assert (whole.weight_version, stopped.weight_version) == (1, 1)
    ((_, parameters),) = policy.llm.calls
    assert [one.seed for one in parameters] == [None, 11]
    assert [one.top_p for one in parameters] == [1.0, 0.9]
    assert asyncio.run(policy.generate([])) == []
    bad, fine = asyncio.run(
        policy.generate([GenerateRequest((99,)), GenerateRequest((1, 2, 3), max_tokens=6)])
    )
    assert "out of vocabulary" in str(bad)
    assert fine.token_ids == tokens


def test_calls_run_one_after_the_other(monkeypatch):
    monkeypatch.setattr("rag_rewards.models.vllm.engine._GROUPS", 1)
    policy = VllmEngine(LLM())

    async def many():
        return await asyncio.gather(*(policy.score([GROUP, GROUP]) for _ in range(4)))

    for answers in asyncio.run(many()):
        for answer in answers:
            check_values(answer, GROUP)

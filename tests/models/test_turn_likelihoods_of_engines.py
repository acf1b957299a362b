"""Likelihoods of answers after turns, from vLLM and SGLang: equal to naive scoring."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType

import pytest
import turn_rollouts
from engine_servers import SglangDouble, VllmDouble
from ngram import VOCABULARY, scored
from processes import WAIT_SECONDS
from test_vllm_engine import LLM, SamplingParams, Words

from rag_rewards import recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.limits import Limits
from rag_rewards.models.sglang import SglangServer
from rag_rewards.models.vllm import VllmEngine, VllmServer

QUICK = Limits(backoff=0.01, retries=4, timeout=WAIT_SECONDS)


class Tokenizer(Words):
    def decode(self, token_ids):
        return "".join(chr(48 + i) for i in token_ids)


ENCODE = Tokenizer().encode


@contextmanager
def vllm_engine():
    llm = LLM()
    policy = VllmEngine(llm, tokenizer=Tokenizer())

    def train():
        llm.distort = lambda values: [None if v is None else 2 * v - 0.5 for v in values]
        policy.refresh(1)

    yield policy, train, lambda context, answer: [2 * v - 0.5 for v in scored(context, answer)]


@contextmanager
def server(double, kind, **options):
    with double() as running:
        policy = kind(
            running.url, tokenizer=Tokenizer(), precision="float32", limits=QUICK, **options
        )

        def train():
            running.seed = 2
            running.cached_prefixes.clear()
            policy.refresh(1)

        yield policy, train, lambda context, answer: scored(context, answer, 2)


BACKENDS = {
    "vllm engine": vllm_engine,
    "vllm server": lambda: server(VllmDouble, VllmServer),
    "sglang server": lambda: server(SglangDouble, SglangServer),
}


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    """Return a policy, a function that changes its weights, and the new weights as a function."""
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    with BACKENDS[request.param]() as parts:
        yield parts


def check(rows, naive):
    for row in rows[:2]:
        expected = turn_rollouts.naive_turn_logprobs(row, ENCODE, naive)
        given = turn_rollouts.turn_logprobs_of(row)
        assert turn_rollouts.largest_difference(given, expected) < 1e-4
    assert rows[2].turn_logprobs is None  # one turn needs no likelihood


def test_the_values_of_naive_scoring(backend):
    policy, _, _ = backend
    check(turn_rollouts.with_turn_logprobs(policy, turn_rollouts.group(VOCABULARY)), scored)


def test_new_weights_give_new_values(backend):
    policy, train, new = backend
    rows = turn_rollouts.group(VOCABULARY)
    before = turn_rollouts.with_turn_logprobs(policy, rows)
    assert not policy.capabilities.is_live
    train()
    assert policy.capabilities.is_live  # the version of the weights is known
    after = turn_rollouts.with_turn_logprobs(policy, rows)
    check(after, new)
    pair = map(turn_rollouts.turn_logprobs_of, (before[0], after[0]))
    assert turn_rollouts.largest_difference(*pair) > 0.1


def test_a_group_with_two_versions_of_the_weights_is_unscored():
    with SglangDouble() as running:
        policy = SglangServer(running.url, tokenizer=Tokenizer(), limits=QUICK)
        running.weight_versions.extend(str(i) for i in range(100))
        reward = recipe("igpo")
        gatherer = Gatherer(Models(policy=policy), prompt=reward.prompt, selfcheck=False)
        results = gatherer.gather_sync(reward, turn_rollouts.group(VOCABULARY))
    for result in results[:2]:
        assert isinstance(result, BackendError)
        assert "the weights changed while a group was scored" in str(result)

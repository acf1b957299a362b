"""Random answers of model servers: a value in its range or a BackendError, never another one."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import contextmanager
from unittest import mock
from urllib.parse import urlsplit

from fuzz_checks import outcome
from fuzz_rows import encoded, mutated, values
from fuzz_texts import texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    EntityQuestion,
    GenerateRequest,
    JudgeQuestion,
    ScoreRequest,
)
from rag_rewards.models import client
from rag_rewards.models.limits import Limits
from rag_rewards.models.openai import OpenAIJudge
from rag_rewards.models.responses import Response
from rag_rewards.models.sglang import SglangServer
from rag_rewards.models.text_servers import EntailmentServer, SimilarityServer
from rag_rewards.models.vllm import VllmServer

ONCE = Limits(retries=0, backoff=0.001, timeout=60.0)
URL = "http://server"
PAIRS = [("Paris is in France.", "Paris is French."), ("Rome", "It is Rome."), ("", "a")]


@contextmanager
def answers(draw, answer_of):
    """Replace all servers: `answer_of` returns the valid answer of a path and of a request."""

    async def receive(connection, limit, method, url, content=None, **_):
        status = draw(st.sampled_from([200] * 12 + [400, 404, 429, 500, 301]))
        request = json.loads(content) if content else None
        body = encoded(draw(mutated(answer_of(urlsplit(url).path, request))))
        if draw(st.integers(0, 9)) == 0:
            body = draw(st.one_of(st.binary(max_size=20), st.just(body[: len(body) // 2])))
        return Response(status, draw(st.sampled_from([None, None, "x", "0"])), body)

    with mock.patch.object(client, "receive", receive):
        yield


def check_errors(results, is_valid):
    assert isinstance(results, (list, str))
    if isinstance(results, list):
        for result in results:
            assert is_valid(result) or isinstance(result, BackendError), result


# --- policies ----------------------------------------------------------------------------------

GROUP = ScoreRequest(((1, 2, 3, 4), (1, 2)), ((5, 6), (7,)))


def vllm_answer(path, body):
    if path == "/v1/models":
        return {"data": [{"id": "m", "root": None, "max_model_len": 64}]}
    rows = [
        [None, *({str(token): {"logprob": -0.5}} for token in prompt[1:])]
        for prompt in body["prompt"]
    ]
    return {
        "choices": [
            {
                "index": i,
                "text": "a",
                "token_ids": [1],
                "finish_reason": "stop",
                "prompt_logprobs": row,
            }
            for i, row in enumerate(rows)
        ]
    }


def sglang_answer(path, body):
    if body is None:
        return {"model_path": "m", "tokenizer_path": None, "context_length": 64}
    inputs = body.get("input_ids", [])
    many = inputs and isinstance(inputs[0], list)
    answered = [
        {
            "text": "a",
            "output_ids": [1],
            "meta_info": {
                "finish_reason": {"type": "stop"},
                "cached_tokens": 0,
                "weight_version": "1",
                "input_token_logprobs": [[-0.5, token, None] for token in tokens],
            },
        }
        for tokens in (inputs if many else [inputs])
    ]
    return answered if many else answered[0]


def has_logprobs(answer):
    return all(
        math.isfinite(value) and value <= 0
        for row in getattr(answer, "logprobs", {"": [1.0]}).values()
        for value in row
    )


@given(st.data(), st.sampled_from([(VllmServer, vllm_answer), (SglangServer, sglang_answer)]))
@budget(20)
def test_policies(data, server):
    kind, answer = server
    policy, request = kind(URL, limits=ONCE), GenerateRequest((1, 2), max_tokens=2)
    with answers(data.draw, answer):
        check_errors(outcome(lambda: asyncio.run(policy.score([GROUP]))), has_logprobs)
        generated = outcome(lambda: asyncio.run(policy.generate([request])))
        check_errors(generated, lambda answer: isinstance(getattr(answer, "text", None), str))
        outcome(lambda: policy.fingerprint)


# --- entailment and similarity -----------------------------------------------------------------

LABELS = {"0": "entailment", "1": "neutral", "2": "contradiction"}


def tei_answer(path, body):
    if body is None:
        kinds = {
            "classifier": {"id2label": LABELS, "label2id": {}},
            "embedding": {"pooling": "mean"},
        }
        return {"model_id": "m", "model_type": kinds, "max_client_batch_size": 2}
    if path == "/embed":
        return [[0.6, 0.8] for _ in body["inputs"]]
    return [[{"score": 0.5, "label": name} for name in LABELS.values()] for _ in body["inputs"]]


def vllm_text_answer(path, body):
    if body is None:
        return {"data": [{"id": "m", "root": None, "max_model_len": 64}]}
    inputs = body.get("input") or body.get("text_2") or body.get("documents") or [""]
    return {
        "data": [
            {
                "index": i,
                "label": "entailment",
                "probs": [0.2, 0.3, 0.5],
                "score": 0.5,
                "embedding": [0.6, 0.8],
            }
            for i in range(len(inputs))
        ]
    }


def shared_answer(path, body):
    if body is None:
        named = {"fingerprint": "f"}
        return {"rag_rewards": "0.6.0", "entailment": named, "similarity": named}
    numbers = [0.5] * len(body["pairs"])
    return {"entailment": numbers, "contradiction": numbers, "similarity": numbers}


def in_range(result):
    numbers = result if isinstance(result, tuple) else (result,)
    return all(isinstance(number, float) and -1 <= number <= 1 for number in numbers)


@given(st.data(), st.sampled_from([tei_answer, vllm_text_answer, shared_answer]))
@budget(30)
def test_entailment_and_similarity(data, answer):
    with answers(data.draw, answer):
        entailment = EntailmentServer(URL, limits=ONCE)
        similarity = SimilarityServer(URL, limits=ONCE)
        for call in (
            lambda: entailment.entail(PAIRS),
            lambda: entailment.entail_and_contradict(PAIRS),
            lambda: similarity.similarity(PAIRS),
        ):
            check_errors(outcome(lambda call=call: asyncio.run(call())), in_range)
        outcome(lambda: (entailment.fingerprint, similarity.fingerprint))


# --- judges ------------------------------------------------------------------------------------

QUESTIONS = [
    JudgeQuestion("outcome", "Which city?", "Paris", ("Paris",)),
    JudgeQuestion("accuracy", "Which city?", "Rome", ("Paris",)),
]
replies = st.one_of(
    texts,
    st.sampled_from(['{"score": 1}', '{"score": 0}', "yes", '{"E0": "Paris"}', '{"score": 2}']),
    values.map(json.dumps),
)


@given(st.data(), st.integers(0, 1))
@budget(20)
def test_judges(data, votes):
    def answer(path, body):
        message = {"role": "assistant", "content": data.draw(replies)}
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        }

    with answers(data.draw, answer):
        judge = OpenAIJudge(
            "m",
            base_url=f"{URL}/v1",
            retries=0,
            backoff=0.0,
            votes=1 + 2 * votes,
            temperature=0.5,
        )
        check_errors(
            outcome(lambda: asyncio.run(judge.judge(QUESTIONS))), lambda verdict: verdict in (0, 1)
        )
        question = EntityQuestion("Which city?", "It is Paris.", ("E0 is a city.",), ("E0",))
        check_errors(
            outcome(lambda: asyncio.run(judge.entities([question]))),
            lambda names: isinstance(names, dict) and set(names) == {"E0"},
        )
        assert judge.usage.requests >= 0

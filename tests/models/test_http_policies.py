"""The vLLM and SGLang policies against test servers that answer and fail like the real ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import ssl
import sys
import threading
import time
from dataclasses import replace

import msgspec
import pytest
from engine_servers import MODEL, Fault, Refusal, SglangDouble, VllmDouble
from ngram import greedy, scored, text_of
from processes import WAIT_SECONDS
from virtual_time import run_and_advance

from rag_rewards.errors import BackendError, MissingExtraError, UsageError
from rag_rewards.evidence.protocols import GenerateRequest, Policy, ScoreRequest
from rag_rewards.models import sglang
from rag_rewards.models.addresses import servers_of
from rag_rewards.models.calls import run_concurrently
from rag_rewards.models.client import Client
from rag_rewards.models.limits import Limits
from rag_rewards.models.sequences import distinct_sequences
from rag_rewards.models.sglang import SglangServer
from rag_rewards.models.vllm import VllmServer
from rag_rewards.models.vllm.prompt_logprobs import response_logprobs
from rag_rewards.models.vllm.server import _Completion, _Row

QUICK = Limits(backoff=0.01, retries=4, timeout=WAIT_SECONDS)
FULL = (*range(40), 7, 9)
CONTEXTS = (FULL, FULL[:20] + FULL[30:], FULL[:10] + FULL[20:])
RESPONSES = ((1, 2, 3, 4), (5, 6), (1, 2, 3, 4), (11, 12, 13))
GROUP = ScoreRequest(CONTEXTS, RESPONSES)
OTHER = ScoreRequest(((40, 41, 42),), ((43, 44),))


@pytest.fixture
def vllm_server():
    with VllmDouble() as server:
        yield server


@pytest.fixture
def sglang_server():
    with SglangDouble() as server:
        yield server


KINDS = {"vllm": (VllmDouble, VllmServer), "sglang": (SglangDouble, SglangServer)}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def pair(kind):
    """A test server and its policy."""
    double, policy = kind
    with double() as server:
        yield server, policy(server.url, precision="float32", limits=QUICK)


def score(policy, *requests):
    return asyncio.run(policy.score(requests))


def check_values(answer, request, seed=1):
    assert answer.logprobs.keys() == set(request.wanted())
    for (c, r), values in answer.logprobs.items():
        expected = scored(request.contexts[c], request.responses[r], seed)
        assert values.typecode == "f"
        assert list(values) == pytest.approx(expected, abs=1e-5)


def count(request):
    return sum(len(request.contexts[c]) + len(request.responses[r]) for c, r in request.wanted())


# --- both ----------------------------------------------------------------------------------------


def test_values_are_those_of_the_model(pair):
    server, policy = pair
    assert isinstance(type(policy)(server.url, tokenizer=object()), Policy)
    first, second = score(policy, GROUP, OTHER)
    check_values(first, GROUP)
    check_values(second, OTHER)
    assert first.computed + first.reused == count(GROUP)


def test_the_description_and_the_answers_have_one_deadline(pair, monkeypatch):
    server, policy = pair
    policy._client.limits = replace(QUICK, deadline=1.0, retries=0)
    describe = policy._describe

    async def describe_slowly(sender):
        await asyncio.sleep(0.6)
        return await describe(sender)

    monkeypatch.setattr(policy, "_describe", describe_slowly)
    server.delay = 0.6
    (error,) = score(policy, OTHER)
    assert isinstance(error, BackendError)


def test_only_requested_pairs_are_scored(pair):
    server, policy = pair
    request = ScoreRequest(CONTEXTS, RESPONSES, ((2, 1), (0, 0)))
    check_values(score(policy, request)[0], request)
    assert sum(len(b.get("prompt", b.get("input_ids"))) for b in server.posts) == 2


def test_equal_sequences_are_sent_once(pair):
    server, policy = pair
    score(policy, GROUP)
    requests = [tuple(p) for b in server.posts for p in b.get("prompt", b.get("input_ids"))]
    assert len(requests) == len(set(requests)) == 9
    assert all(len(b.get("prompt", b.get("input_ids"))) <= 16 for b in server.posts)


def test_the_number_of_prompts_per_request_is_limited(kind):
    double, policy = kind
    with double() as server:
        limits = Limits(batch=2)
        check_values(score(policy(server.url, limits=limits), GROUP)[0], GROUP)
        sizes = [len(b.get("prompt", b.get("input_ids"))) for b in server.posts]
        assert max(sizes) == 2
        assert sum(sizes) == 9


def test_an_empty_response_needs_no_request(pair):
    server, policy = pair
    (answer,) = score(policy, ScoreRequest(((1, 2),), ((),)))
    assert list(answer.logprobs[0, 0]) == []
    assert server.posts == []
    assert score(policy) == []


def test_a_group_that_cannot_be_scored_fails_alone(pair):
    server, policy = pair
    empty = ScoreRequest(((),), ((1,),))
    long = ScoreRequest((tuple([5] * 505),), ((1,) * 7,))
    unknown = ScoreRequest(((1, 2),), ((3, 4),))
    server.faults.append(Fault(400, body=b'{"error":{"message":"Token id 99 is out"}}'))
    refused, first, second, fine = score(policy, unknown, empty, long, OTHER)
    assert "context 0 is empty" in str(first)
    assert "505 + 7 tokens, more than the maximum of 511" in str(second)
    # The order of the other two requests is not defined.
    errors = [e for e in (refused, fine) if isinstance(e, BackendError)]
    assert len(errors) == 1
    assert server.url in str(errors[0])
    assert "status 400: Token id 99 is out" in str(errors[0])


def test_a_sequence_of_the_maximum_length_is_scored(pair):
    _, policy = pair
    assert policy.max_length == 511
    request = ScoreRequest((tuple([5] * 500),), (tuple([6] * 11),))
    check_values(score(policy, request)[0], request)


def test_selfcheck_passes(pair):
    _, policy = pair
    asyncio.run(policy.selfcheck())


def zeros(values):
    return [None, *[0.0] * (len(values) - 1)]


def late(values):
    return [None, -3.0, *values[1:-1]]


def early(values):
    return [None, *values[2:], -1.0]


def base_ten(values):
    return [None, *[value / 2.302585 for value in values[1:]]]


DISTORTIONS = [
    (zeros, "zeros"),
    (late, "own token"),
    (early, "causal"),
    (base_ten, "probabilities"),
]


@pytest.mark.parametrize(
    ("distort", "check"), DISTORTIONS, ids=[distort.__name__ for distort, _ in DISTORTIONS]
)
def test_selfcheck_rejects_wrong_values(pair, distort, check):
    server, policy = pair
    server.distort = distort
    with pytest.raises(BackendError, match=f"{check}: expected") as caught:
        asyncio.run(policy.selfcheck())
    assert server.url in str(caught.value)


def test_selfcheck_names_the_wrong_server_of_several(kind):
    double, policy = kind
    with double() as good, double() as bad:
        bad.distort = zeros
        with pytest.raises(BackendError, match="zeros: expected") as caught:
            asyncio.run(policy([good.url, bad.url]).selfcheck())
        assert bad.url in str(caught.value)
        bad.distort, bad.seed = list, 2
        with pytest.raises(BackendError, match=r"agreement: .* other weights"):
            asyncio.run(policy([good.url, bad.url]).selfcheck())


def test_generation(pair):
    server, policy = pair
    prompt = (1, 2, 3)
    tokens = tuple(greedy(prompt, 6))
    end = text_of(tokens)[2:4]
    requests = [
        GenerateRequest(prompt, max_tokens=6),
        GenerateRequest(prompt, max_tokens=6, stop=(end,), temperature=0.5, seed=11, top_p=0.9),
    ]
    whole, stopped = asyncio.run(policy.generate(requests))
    assert (whole.text, whole.token_ids, whole.finish_reason) == (text_of(tokens), tokens, "length")
    assert (stopped.text, stopped.token_ids) == (text_of(tokens)[:2], tokens[:4])
    assert stopped.finish_reason == "stop"
    # The requests run concurrently, so that their order is not fixed.
    posts = [body.get("sampling_params", body) for body in server.posts]
    (parameters,) = (each for each in posts if each["temperature"] == 0.5)
    assert parameters["temperature"] == 0.5
    assert parameters["stop"] == [end]
    assert parameters["top_p"] == 0.9
    # The defaults of the server are not used.
    assert parameters["repetition_penalty"] == 1.0
    (greedily,) = (each for each in posts if each["temperature"] == 0.0)
    assert greedily["top_p"] == 1.0


def test_a_failed_generation_is_the_result_of_its_request(pair):
    server, policy = pair
    server.faults.append(Fault(400, body=b'{"error":{"message":"no"}}'))
    answers = asyncio.run(policy.generate([GenerateRequest((1,)), GenerateRequest((2,))]))
    assert sorted(type(answer).__name__ for answer in answers) == ["GenerateAnswer", "HttpError"]


def test_the_weight_version_is_in_answers_and_fingerprint(kind):
    double, policy = kind
    with double() as server:
        client = policy(server.url, precision="bfloat16", weight_version=7)
        assert client.fingerprint.endswith(f"{MODEL} bfloat16 version=7")
        assert client.capabilities.precision == "bfloat16"
        assert score(client, OTHER)[0].weight_version == 7
        client.refresh(8)
        assert client.fingerprint.endswith("version=8")
        assert score(client, OTHER)[0].weight_version == 8
        assert asyncio.run(client.generate([GenerateRequest((1,))]))[0].weight_version == 8


def test_a_change_of_weights_fails_the_group(pair):
    server, policy = pair
    policy.refresh(1)
    server.free.clear()

    async def change():
        answers = asyncio.ensure_future(policy.score([OTHER]))
        while not server.posts:
            await asyncio.sleep(0.01)
        policy.refresh(2)
        server.free.set()
        return await answers

    (answer,) = asyncio.run(change())
    assert "the weights changed while a group was scored" in str(answer)


def test_the_tokenizer_is_an_object_or_loaded_from_a_folder(pair, tmp_path):
    pytest.importorskip("transformers")
    server, policy = pair
    with pytest.raises(UsageError, match="no folder '/models/tiny': pass tokenizer="):
        _ = policy.tokenizer
    tokenizer = object()
    assert type(policy)(server.url, tokenizer=tokenizer).tokenizer is tokenizer
    with pytest.raises(UsageError, match="no tokenizer in"):
        _ = type(policy)(server.url, tokenizer=tmp_path).tokenizer


def test_a_tokenizer_is_loaded_from_its_folder(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"<unk>": 0, "Lyon": 1}, "<unk>")
    fast_tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words)
    )
    fast_tokenizer.save_pretrained(str(tmp_path))
    double, policy = kind
    with double() as server:
        assert policy(server.url, tokenizer=tmp_path).tokenizer.encode("Lyon") == [1]


def test_missing_transformers_names_the_extra(pair, tmp_path, monkeypatch):
    server, policy = pair
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"rag-rewards\[transformers\]"):
        _ = type(policy)(server.url, tokenizer=str(tmp_path)).tokenizer


def test_missing_httpx_names_the_extra(pair, monkeypatch):
    server, policy = pair
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"rag-rewards\[http\]"):
        score(type(policy)(server.url), OTHER)


def test_a_policy_works_in_one_event_loop_after_another(pair):
    _, policy = pair
    for _ in range(3):
        check_values(score(policy, OTHER)[0], OTHER)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.extend(score(policy, GROUP))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        check_values(answer, GROUP)
    assert len(answers) == 3
    asyncio.run(policy.close())


def test_the_fingerprint_is_available_in_an_event_loop(pair):
    _, policy = pair

    async def ask():
        return policy.fingerprint

    assert MODEL in asyncio.run(ask())


def test_an_api_key_is_sent_but_not_in_the_repr(kind):
    double, policy = kind
    with double() as server:
        client = policy(server.url, api_key="secret")
        check_values(score(client, OTHER)[0], OTHER)
        assert "secret" not in repr(client._client)


ABORTED = {
    "vllm": b'{"choices":[{"index":0,"text":"","token_ids":[],"finish_reason":"abort"}]}',
    "sglang": b'{"text":"","output_ids":[],"meta_info":{"finish_reason":{"type":"abort"}}}',
}
WITHOUT_IDS = {
    "vllm": b'{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}',
    "sglang": b'{"text":"a","meta_info":{"finish_reason":{"type":"stop"}}}',
}


@pytest.mark.parametrize("name", KINDS)
def test_an_aborted_generation_is_an_error(name):
    double, policy = KINDS[name]
    with double() as server:
        for body, message in ((ABORTED, "ended with 'abort'"), (WITHOUT_IDS, "no token ids")):
            server.faults.append(Fault(200, body=body[name]))
            (answer,) = asyncio.run(policy(server.url).generate([GenerateRequest((1,))]))
            assert isinstance(answer, BackendError)
            assert message in str(answer)


# --- servers that fail ---------------------------------------------------------------------------


def test_a_description_beyond_the_limit_is_an_error(kind, monkeypatch):
    double, policy = kind
    monkeypatch.setattr("rag_rewards.models.client.MAX_DESCRIPTION_BYTES", 10)
    with double() as server, pytest.raises(BackendError, match="more than 10 bytes"):
        _ = policy([server.url]).model_name


def test_a_server_that_refuses_to_describe_its_model_is_asked_once(pair, monkeypatch):
    server, policy = pair
    paths = []

    def refuse(path):
        paths.append(path)
        raise Refusal(401, "wrong key")

    monkeypatch.setattr(server, "get", refuse)
    errors = score(policy, *[GROUP] * 20)
    assert all("wrong key" in str(error) for error in errors)
    assert len(paths) == len(policy.model_endpoints[0][0])
    assert server.posts == []


def test_requests_of_a_dead_server_move_to_another(kind):
    double, policy = kind
    with double() as good, double() as bad:
        bad.faults.extend([Fault(500)] * 1000)
        client = policy([bad.url, good.url], limits=QUICK)
        groups = [ScoreRequest(((i, i + 1),), ((3,), (4, 5))) for i in range(20)]
        for request, answer in zip(groups, score(client, *groups), strict=True):
            check_values(answer, request)
    # One of the two addresses has no server any more.
    with double() as good:
        client = policy([bad.url, good.url], limits=QUICK)
        check_values(score(client, GROUP)[0], GROUP)
        assert MODEL in client.fingerprint


def test_requests_wait_for_a_restarting_server(kind):
    double, policy = kind
    with double() as server:
        client = policy(server.url, limits=Limits(backoff=0.05, retries=8))
        check_values(score(client, OTHER)[0], OTHER)
        server.delay = 0.05
        groups = [ScoreRequest(((i, i + 1),), ((3,), (4, 5))) for i in range(40)]

        def restart():
            time.sleep(0.1)
            server.stop()
            time.sleep(0.3)
            server.restart()

        thread = threading.Thread(target=restart)
        thread.start()
        answers = score(client, *groups)
        thread.join()
        for request, answer in zip(groups, answers, strict=True):
            check_values(answer, request)


def test_a_slow_server_causes_a_timeout(kind):
    double, policy = kind
    with double() as server:
        client = policy(server.url, limits=Limits(timeout=WAIT_SECONDS, backoff=0.01))
        score(client, GROUP)  # requests the properties of the server
        before = len(server.posts)
        server.free.clear()
        arrivals = [lambda i=i: len(server.posts) == before + i for i in (1, 2)]
        (answer,) = run_and_advance(client.score([OTHER]), WAIT_SECONDS, *arrivals)
        server.free.set()
        assert f"{server.url} gave no answer" in str(answer)
        assert "(tried 2 times)" in str(answer)


def test_the_load_of_a_server_is_that_of_all_calls():
    client = Client("test", servers_of("http://a:1"))
    loads = []

    async def work(item, place):
        if item == 5:
            await client.map([7], work, load=int)
        loads.append(client.servers[0].tokens)

    asyncio.run(client.map([5], work, load=int))
    assert loads == [12, 5]
    assert client.servers[0].tokens == 0


def test_groups_are_distributed_and_stay_on_one_server(kind):
    double, policy = kind
    with double() as one, double() as two:
        one.delay = two.delay = 0.02
        client = policy([one.url, two.url], limits=Limits(batch=1))
        groups = [
            ScoreRequest(((i, 40), (i, 41)), tuple((r, r + 1) for r in range(4))) for i in range(12)
        ]
        for request, answer in zip(groups, score(client, *groups), strict=True):
            check_values(answer, request)
        cached_prefixes = [
            {b.get("prompt", b.get("input_ids"))[0][0] for b in s.posts} for s in (one, two)
        ]
        assert not cached_prefixes[0] & cached_prefixes[1]
        assert len(cached_prefixes[0]) == len(cached_prefixes[1]) == 6


def test_a_cancelled_call_leaves_no_tasks(pair):
    server, policy = pair
    server.free.clear()

    async def cancelled():
        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await asyncio.wait_for(policy.score([GROUP, OTHER]), 0.1)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    server.free.set()
    assert all(endpoint.tokens == 0 for endpoint in policy._client.servers)


# --- small parts ---------------------------------------------------------------------------------


def test_the_first_failure_cancels_the_rest():
    ended = []

    async def slow():
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(True)

    async def bad():
        await asyncio.sleep(0.01)
        raise BackendError("no")

    async def both():
        with pytest.raises(BackendError, match="no"):
            await run_concurrently([slow(), bad()])

    asyncio.run(both())
    assert ended == [True]


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8000", "ftp://host", "file:///etc/passwd", "http://", []),
        *("http://localhost:port", "http://host?key=1", "http://host/@v1"),
    ],
)
def test_addresses_other_than_http_are_rejected(url):
    with pytest.raises(UsageError, match="address"):
        servers_of(url)


def test_an_invalid_address_is_the_error_of_its_request(kind):
    client = kind[1]("http://\u2603..", limits=QUICK)
    (answer,) = score(client, OTHER)
    assert "http://\u2603.. is not a valid address" in str(answer)
    with pytest.raises(BackendError, match="is not a valid address"):
        _ = client.fingerprint


def test_certificates_are_checked():
    context = Client("vllm", servers_of("https://host")).tls
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    # Without an https:// address, no certificates are loaded.
    none = Client("vllm", servers_of("http://host")).tls
    assert (none.verify_mode, none.get_ca_certs()) == (ssl.CERT_REQUIRED, [])


def test_addresses_are_normalized_without_passwords():
    result = servers_of(["http://a:1/v1/", "http://a:1", "https://me:secret@b/x"])
    assert [endpoint.url for endpoint in result] == ["http://a:1", "https://b/x"]
    assert result[1].address.authorization == "Basic bWU6c2VjcmV0"


@pytest.mark.parametrize("password", ["s3cret", "s3/cret", "s3?cret", "s3#cret", "s3@cret", "12/3"])
def test_a_password_is_in_no_message(password):
    with contextlib.suppress(UsageError):
        assert "3" not in repr(servers_of(f"http://me:{password}@host"))
    with pytest.raises(UsageError) as caught:
        servers_of(f"ftp://me:{password}@host")
    assert "3" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        servers_of(f"http://me:{password}@host?key={password}")
    assert "3" not in str(caught.value).partition("%2F")[0]


def test_credentials_are_sent_and_appear_in_no_log_or_error(pair, caplog):
    server, policy = pair
    url = server.url.replace("//", "//me:s3cret%2F@")
    caplog.set_level(logging.DEBUG)
    client = type(policy)(url, limits=QUICK)
    assert "s3cret" not in client.fingerprint
    check_values(score(client, OTHER)[0], OTHER)
    asyncio.run(client.selfcheck())
    credentials = base64.b64encode(b"me:s3cret/").decode()
    assert server.authorizations == {f"Basic {credentials}"}
    server.faults.append(Fault(400))
    (error,) = score(client, OTHER)
    server.stop()
    try:
        (lost,) = score(client, OTHER)
    finally:
        server.start()
    assert "HTTP Request" in caplog.text  # the library logs addresses
    for text in (str(error), str(lost), repr(client._client), caplog.text):
        assert "s3cret" not in text
        assert credentials not in text


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"retries": -1}, {"deadline": 0}, {"concurrency": 0}, {"batch": 0}]
)
def test_invalid_limits_are_rejected(options):
    with pytest.raises(UsageError):
        Limits(**options)


# --- vLLM ----------------------------------------------------------------------------------------


def test_the_request_to_vllm(vllm_server):
    score(VllmServer(vllm_server.url), OTHER)
    assert vllm_server.requests == [
        (
            "/v1/completions",
            {
                "model": MODEL,
                "prompt": [[40, 41, 42, 43, 44]],
                "max_tokens": 1,
                "temperature": 0.0,
                "prompt_logprobs": 0,
            },
        )
    ]


RECORDED = (
    b'{"id":"cmpl-bccf7980efdc3bcd","object":"text_completion","created":1795261280,"model":"'
    b'tiny-qwen2","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length",'
    b'"stop_reason":null,"token_ids":[316],"prompt_logprobs":[null,{"6":{"logprob":'
    b'-6.5939836502075195,"rank":96,"decoded_token":"%"}},{"7":{"logprob":-8.41698169708252,'
    b'"rank":238,"decoded_token":"&"}},{"8":{"logprob":-5.671853065490723,"rank":72,'
    b'"decoded_token":"\'"}}],"prompt_token_ids":[5,6,7,8],"routed_experts":null},{"index":1,'
    b'"text":"p","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[81],'
    b'"prompt_logprobs":[null,{"10":{"logprob":-10.530227661132812,"rank":303,"decoded_token":")"'
    b'}},{"11":{"logprob":-4.949028015136719,"rank":33,"decoded_token":"*"}}],"prompt_token_ids":'
    b'[9,10,11],"routed_experts":null}],"service_tier":null,"system_fingerprint":'
    b'"vllm-0.32.0-4994d7e1","usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":'
    b'null},"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,'
    b'"metrics":null}'
)
"""The response of vLLM 0.32.0 to the prompts [5, 6, 7, 8] and [9, 10, 11]."""


def shape(value):
    """Return the fields and types of a JSON value, with one type for all numbers and token ids."""
    if isinstance(value, dict):
        return {("id" if key.isdigit() else key): shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_recorded_responses_of_vllm_are_parsed():
    result = msgspec.json.decode(RECORDED, type=_Completion)
    values = response_logprobs(result.choices[0].prompt_logprobs, (7, 8), "vllm")
    assert values == [-8.41698169708252, -5.671853065490723]


def test_the_double_of_vllm_has_the_form_of_recorded_responses(vllm_server):
    parameters = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
    body = {"model": MODEL, "prompt": [[5, 6, 7, 8], [9, 10, 11]], "return_token_ids": True}
    sent = vllm_server.post("/v1/completions", {**body, **parameters})
    assert shape(sent) == shape(json.loads(RECORDED))


def test_a_row_of_another_token_is_an_error():
    rows = [None, {6: _Row(-1.0)}, {7: _Row(-2.0)}]
    with pytest.raises(BackendError, match=r"token 7 at 0 of the response, found tokens \[6\]"):
        response_logprobs(rows, (7, 8), "vllm")
    with pytest.raises(BackendError, match="found none"):
        response_logprobs(rows, (5, 6, 7), "vllm")
    with pytest.raises(BackendError, match="expected 4 rows, found 3"):
        response_logprobs(rows, (4, 5, 6, 7), "vllm")
    with pytest.raises(BackendError, match="does not know prompt_logprobs"):
        response_logprobs(None, (7,), "vllm")


def test_a_response_without_prompt_logprobs_is_an_error(vllm_server):
    choice = {"index": 0, "text": "x", "finish_reason": "length"}
    vllm_server.faults.append(Fault(200, body=json.dumps({"choices": [choice]}).encode()))
    (answer,) = score(VllmServer(vllm_server.url), OTHER)
    assert "does not know prompt_logprobs" in str(answer)


def test_choices_are_ordered_by_their_index(vllm_server):
    class Backwards(VllmDouble):
        def complete(self, body):
            answer = super().complete(body)
            answer["choices"].reverse()
            return answer

    with Backwards() as server:
        check_values(score(VllmServer(server.url), GROUP)[0], GROUP)
        server.faults.append(Fault(200, body=b'{"choices": []}'))
        assert "expected 9 choices, found 0" in str(score(VllmServer(server.url), GROUP)[0])


def test_a_model_is_selected_by_name(vllm_server):
    assert VllmServer(vllm_server.url, model=MODEL).fingerprint == f"vllm {MODEL} unknown"
    (answer,) = score(VllmServer(vllm_server.url, model="other"), OTHER)
    assert str(answer) == f"vllm: the server has no model 'other'; its models are: '{MODEL}'"


# --- SGLang --------------------------------------------------------------------------------------


def test_the_request_to_sglang(sglang_server):
    score(SglangServer(sglang_server.url), OTHER)
    assert sglang_server.requests == [
        (
            "/generate",
            {
                "input_ids": [[40, 41, 42, 43, 44]],
                "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
                "return_logprob": True,
                "logprob_start_len": [2],
            },
        )
    ]


def test_contexts_are_sent_once_before_their_other_responses(sglang_server):
    (answer,) = score(SglangServer(sglang_server.url), GROUP)
    prompts = [[tuple(p) for p in body["input_ids"]] for body in sglang_server.posts]
    assert prompts[0] == [CONTEXTS[0] + RESPONSES[0]]
    assert prompts[1] == [context + RESPONSES[0] for context in CONTEXTS[1:]]
    assert len(prompts[2]) == 6
    assert answer.reused > count(GROUP) / 3
    check_values(answer, GROUP)


SGLANG = (
    b'[{"text":"","output_ids":[],"meta_info":{"id":"4c1f","finish_reason":{"type":"length",'
    b'"length":0},"prompt_tokens":4,"weight_version":"default","num_retractions":0,'
    b'"input_token_logprobs":[[null,6,null],[-8.4,7,null],[-5.6,8,null]],'
    b'"output_token_logprobs":[],"completion_tokens":0,"cached_tokens":1,"e2e_latency":0.02}}]'
)
"""A response as its tokenizer manager builds it: [5, 6, 7, 8] from position 1 on."""


def test_a_response_of_sglang_is_parsed():
    (result,) = msgspec.json.decode(SGLANG, type=list[sglang._Generation])
    ask = distinct_sequences(ScoreRequest(((5, 6),), ((7, 8),)))[0]
    assert sglang.response_logprobs(result.meta_info, ask, "sglang") == [-8.4, -5.6]
    assert (result.meta_info.cached_tokens, result.meta_info.weight_version) == (1, "default")


def test_the_double_of_sglang_has_the_form_of_a_response(sglang_server):
    body = {
        "input_ids": [[5, 6, 7, 8]],
        "sampling_params": {"max_new_tokens": 0, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": [1],
    }
    sent = sglang_server.post("/generate", body)
    assert shape(sent) == shape(json.loads(SGLANG))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "does not know return_logprob"),
        ([[-1.0, 7, None], [-2.0, 8, None]], "expected null for the last token of the context"),
        ([[None, 6, None], [-2.0, 8, None]], "expected 2 log-probabilities after the null"),
        ([[None, 6, None], [None, 7, None], [-2.0, 8, None]], "a null within"),
    ],
)
def test_unexpected_rows_of_sglang_are_an_error(sglang_server, rows, message):
    answer = json.loads(SGLANG)
    answer[0]["meta_info"]["input_token_logprobs"] = rows
    sglang_server.faults.append(Fault(200, body=json.dumps(answer).encode()))
    (result,) = score(SglangServer(sglang_server.url), ScoreRequest(((5, 6),), ((7, 8),)))
    assert message in str(result)


def test_an_aborted_request_is_an_error(sglang_server):
    answer = json.loads(SGLANG)
    answer[0]["meta_info"]["finish_reason"] = {"type": "abort", "message": "queue is full"}
    sglang_server.faults.append(Fault(200, body=json.dumps(answer).encode()))
    (result,) = score(SglangServer(sglang_server.url), ScoreRequest(((5, 6),), ((7, 8),)))
    assert "was aborted: queue is full" in str(result)


def test_an_answer_for_fewer_sequences_is_an_error(sglang_server):
    sglang_server.faults.append(Fault(200, body=b"[]"))
    (result,) = score(SglangServer(sglang_server.url), OTHER)
    assert "expected 1 answers, found 0" in str(result)


def test_a_group_across_a_change_of_weights_is_scored_again(sglang_server):
    sglang_server.weight_versions.extend(["step-2"])
    (answer,) = score(SglangServer(sglang_server.url), GROUP)
    check_values(answer, GROUP)
    assert answer.weight_version == "step-2"
    assert len(sglang_server.posts) == 6
    sglang_server.weight_versions.extend(map(str, range(100)))
    (answer,) = score(SglangServer(sglang_server.url), GROUP)
    assert "the weights changed while a group was scored" in str(answer)


def test_older_servers_have_other_paths(sglang_server):
    sglang_server.old_paths = True
    check_values(score(SglangServer(sglang_server.url), OTHER)[0], OTHER)
    assert SglangServer(sglang_server.url).max_length == 511

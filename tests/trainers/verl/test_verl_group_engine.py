"""The rollout engine as a policy, on verl's own clients."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
import v1_trainer as v1
from omegaconf import OmegaConf
from rag_rewards_adapters.verl import engine as verl_engine
from rag_rewards_adapters.verl.engine import VerlEnginePolicy
from tiny_models import make_model, make_tokenizer, naive
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from rag_rewards import recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import GenerateRequest, Models, ScoreRequest
from rag_rewards.scorer import Scorer

ROLLOUT = {"name": "vllm", "dtype": "float32", "max_model_len": 300, "response_length": 64}
GROUP = ScoreRequest(
    (tuple(range(10, 60)), tuple(range(10, 40))), ((5, 6, 7), (9,), (5, 6, 7, 8), ())
)
REWARD = recipe("igpo", {"gain.alias": "best"})


@pytest.fixture
def engine(model):
    return v1.Engine(model, {"Paris": ["Seine"]}, ROLLOUT["max_model_len"])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(verl_engine, "_PAUSES", (0.0, 0.0, 0.0))


def client_on(engine, kind=LLMServerClient):
    """Return verl's client, with the engine in place of a load balancer and a server."""

    async def generate(**request):
        return await engine.generate(**request)

    async def acquire(request_id, **_):
        return "here", SimpleNamespace(generate=SimpleNamespace(remote=generate))

    client = kind(OmegaConf.create({"actor_rollout_ref": {"rollout": ROLLOUT}}))
    client._acquire_server = acquire
    client._release_server = lambda server_id, request_id=None: None
    return client


def run_with_policy(client, work, **rollout):
    """Return the result of `work(policy)`, in its own event loop."""

    async def run():
        config = OmegaConf.create({**ROLLOUT, **rollout})
        return await work(VerlEnginePolicy(client, make_tokenizer(), config, "tiny"))

    return asyncio.run(run())


def score_request(client, request=GROUP, **rollout):
    (answer,) = run_with_policy(client, lambda policy: policy.score([request]), **rollout)
    return answer


class ChangedEngine:
    """An engine whose outputs are changed by a function."""

    def __init__(self, engine, change):
        self.engine, self.change, self.count = engine, change, 0

    async def generate(self, **request):
        output = await self.engine.generate(**request)
        self.count += 1
        self.change(output, self.count)
        return output


@pytest.mark.parametrize("kind", [LLMServerClient, FullyAsyncLLMServerClient])
def test_log_probabilities_match_the_definition(engine, kind):
    engine.set_global_steps(4)
    answer = score_request(client_on(engine, kind))
    expected = naive(make_model("qwen2"), GROUP)
    assert answer.logprobs.keys() == expected.keys()
    for pair, values in expected.items():
        assert list(answer.logprobs[pair]) == pytest.approx(values, abs=1e-4)
    assert answer.weight_version == 4
    assert answer.path == "verl vllm"


def test_the_asynchronous_client_drops_prompt_log_probabilities(engine):
    client = client_on(engine, FullyAsyncLLMServerClient)
    parameters = {"max_tokens": 1, "prompt_logprobs": 0}
    call = client.generate(request_id="a", prompt_ids=[5, 6, 7], sampling_params=parameters)
    assert "prompt_logprobs" not in asyncio.run(call).extra_fields


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_only_vllm_gets_the_field_that_skips_its_prefix_cache(engine, name):
    sent = []
    inner = engine.generate

    async def generate(**request):
        sent.append(request["sampling_params"].get("skip_reading_prefix_cache"))
        return await inner(**request)

    engine.generate = generate
    score_request(client_on(engine), name=name)
    assert set(sent) == {True if name == "vllm" else None}


def test_the_engine_passes_the_selfcheck(engine):
    run_with_policy(client_on(engine), lambda policy: policy.selfcheck())


def test_the_self_check_runs_in_the_loop_of_the_client(engine):
    loops = set()
    inner = engine.generate

    async def generate(**parameters):
        loops.add(asyncio.get_running_loop())
        return await inner(**parameters)

    engine.generate = generate

    async def work(policy):
        await Gatherer(Models(policy=policy)).check(policy)
        return loops == {asyncio.get_running_loop()}

    assert run_with_policy(client_on(engine), work)


def test_a_self_check_is_repeated_after_a_change_of_weights(engine):
    def change(output, count):
        values = output.extra_fields["prompt_logprobs"]
        output.extra_fields["global_steps"] = int(count > 4)
        if count == 4:
            values[:] = [[3 * value[0] - 1] for value in values]

    changed = ChangedEngine(engine, change)
    run_with_policy(client_on(changed), lambda policy: policy.selfcheck())


def test_an_engine_that_shifts_its_values_is_refused(engine):
    def shift(output, _):
        values = output.extra_fields["prompt_logprobs"]
        values[:] = [[-1.0], *values[:-1]]

    with pytest.raises(BackendError, match="selfcheck failed"):
        run_with_policy(client_on(ChangedEngine(engine, shift)), lambda policy: policy.selfcheck())


@pytest.mark.parametrize("aborts", [1, 3, 4])
def test_an_aborted_request_is_repeated(engine, aborts):
    def abort(output, count):
        if count <= aborts:
            output.stop_reason = "aborted"
            output.extra_fields.pop("prompt_logprobs")

    request = ScoreRequest(((5, 6),), ((7, 8),))
    answer = score_request(client_on(ChangedEngine(engine, abort)), request)
    if aborts < 4:
        assert len(answer.logprobs[0, 0]) == 2
    else:
        assert "aborted 4 times in a row, by changes of weights" in str(answer)


def test_a_group_is_scored_again_after_a_change_of_weights(engine):
    def change(output, count):
        output.extra_fields["global_steps"] = 1 if count < 3 else 2

    changed = ChangedEngine(engine, change)
    assert score_request(client_on(changed)).weight_version == 2
    assert changed.count == 2 * 6


def test_weights_that_keep_changing_are_an_error(engine):
    def change(output, count):
        output.extra_fields["global_steps"] = count

    changed = ChangedEngine(engine, change)
    answer = score_request(client_on(changed))
    assert isinstance(answer, BackendError)
    assert "the weights changed between the two terms of a difference" in str(answer)
    assert changed.count == 3 * 6


def test_values_of_other_tokens_are_an_error(engine):
    def other(output, _):
        output.extra_fields["prompt_ids"][3] = [299]

    assert "other tokens" in str(score_request(client_on(ChangedEngine(engine, other))))


def test_an_engine_without_prompt_log_probabilities_is_an_error(engine):
    def drop(output, _):
        output.extra_fields.pop("prompt_logprobs")

    assert "has no prompt_logprobs" in str(score_request(client_on(ChangedEngine(engine, drop))))


def test_a_failing_request_does_not_affect_others(engine):
    def die(output, count):
        if count == 1:
            raise RuntimeError("first line\nCUDA out of memory")

    one, other = ScoreRequest(((5, 6),), ((7, 8),)), ScoreRequest(((5, 6),), ((9,),))
    client = client_on(ChangedEngine(engine, die))
    failed, answer = run_with_policy(client, lambda policy: policy.score([one, other]))
    assert str(failed).endswith("RuntimeError: CUDA out of memory")
    assert len(answer.logprobs[0, 0]) == 1


def test_a_sequence_must_leave_one_token_free(engine):
    fits = ScoreRequest((tuple(range(3, 203)) + tuple(range(3, 99)),), ((7, 8, 9),))
    longer = ScoreRequest(fits.contexts, ((7, 8, 9, 10),))
    client = client_on(engine)
    short, long = run_with_policy(client, lambda policy: policy.score([fits, longer]))
    assert len(short.logprobs[0, 0]) == 3
    assert "296 + 4 tokens, more than the maximum of 299" in str(long)


def test_a_group_stays_on_one_server_unless_ids_must_differ(engine):
    ids: list[str] = []
    client = client_on(engine)
    acquire = client._acquire_server

    async def acquire_and_record(request_id, **options):
        ids.append(request_id)
        return await acquire(request_id, **options)

    client._acquire_server = acquire_and_record
    score_request(client)
    assert len(ids) == 6
    assert len(set(ids)) == 1
    ids.clear()
    score_request(client, full_determinism=True)
    assert len(set(ids)) == 6


def test_generation_ends_before_a_stop(engine, monkeypatch):
    tokenizer = make_tokenizer()
    token_ids = tokenizer.encode("Seine</answer> and more", add_special_tokens=False)
    monkeypatch.setattr(engine, "greedy", lambda ids: token_ids)
    prompt = tuple(range(20, 60))
    requests = [
        GenerateRequest(prompt, 40, stop=("</answer>",)),
        GenerateRequest(prompt, 40, stop=("!",)),
        GenerateRequest(prompt, 4, stop=("!",)),
    ]
    ended, short, cut = run_with_policy(client_on(engine), lambda policy: policy.generate(requests))
    assert (ended.text, ended.finish_reason) == ("Seine", "stop")
    assert (short.text, short.finish_reason) == ("Seine</answer> and more", "stop")
    assert cut.finish_reason == "length"
    assert len(cut.token_ids) == 4


# --- likelihoods after turns ---------------------------------------------------------------------


def test_likelihoods_after_turns_are_those_of_the_current_weights(engine):
    """The contexts of a group have the values of the engine's weights, also after an update."""
    tokenizer = make_tokenizer()
    encode = partial(tokenizer.encode, add_special_tokens=False)

    def naive_of(model):
        def values(context, answer):
            return naive(model, ScoreRequest((context,), (answer,)))[0, 0]

        return values

    async def work(policy):
        assert "off-policy" not in Scorer(REWARD, Models(policy=policy)).signature
        rows = v1.turn_rollouts.group(len(tokenizer))
        gatherer = Gatherer(Models(policy=policy), prompt=REWARD.prompt, selfcheck=False)
        groups = [await gatherer.gather(REWARD, rows)]
        engine.model.load_state_dict(make_model("qwen2", seed=1).state_dict())
        engine.set_global_steps(5)
        return [*groups, await gatherer.gather(REWARD, rows)]

    groups = run_with_policy(client_on(engine), work)
    for seed, rows in enumerate(groups):
        for row in rows[:2]:
            expected = v1.turn_rollouts.naive_turn_logprobs(
                row, encode, naive_of(make_model("qwen2", seed=seed))
            )
            given = v1.turn_rollouts.turn_logprobs_of(row)
            assert v1.turn_rollouts.largest_difference(given, expected) < 1e-4
    pair = (v1.turn_rollouts.turn_logprobs_of(rows[0]) for rows in groups)
    assert v1.turn_rollouts.largest_difference(*pair) > 0.1


def test_weights_that_change_within_a_group_give_no_information_gain(engine):
    def change(output, count):
        output.extra_fields["global_steps"] = count

    async def work(policy):
        gatherer = Gatherer(Models(policy=policy), prompt=REWARD.prompt, selfcheck=False)
        return await gatherer.gather(REWARD, v1.turn_rollouts.group(300))

    results = run_with_policy(client_on(ChangedEngine(engine, change)), work)
    assert "the weights changed" in str(results[0])
    assert results[2].turn_logprobs is None  # one turn needs no likelihood

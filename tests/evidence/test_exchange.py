"""The exchange with a model, against one call for each request of each job."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards import Rollout
from rag_rewards.errors import BackendError, DataError
from rag_rewards.evidence.exchange import Job, NewEvidence, Outcomes, exchange
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import EntailmentNeed, LogProbsNeed, MaskedAnswersNeed
from rag_rewards.rollout import Entailment, LogProbs, MaskedAnswers

ROLLOUTS = [Rollout(response=str(i), id=i) for i in range(4)]
REQUESTS = st.integers(0, 5)
JOBS = st.lists(
    st.tuples(st.lists(REQUESTS, min_size=1, max_size=3), st.sets(st.integers(0, 3), min_size=1)),
    max_size=8,
)


def answer(request, failing):
    return BackendError(f"request {request}") if request in failing else request * 10


def first_error_or_sum(results):
    errors = [each for each in results if isinstance(each, Exception)]
    return errors[0] if errors else sum(results)


@given(jobs=JOBS, failing=st.sets(REQUESTS))
def test_an_exchange_equals_one_call_for_each_request(jobs, failing):
    sent, stored = [], []

    async def call(requests):
        sent.append(list(requests))
        return [answer(request, failing) for request in requests]

    outcomes = Outcomes(ROLLOUTS)
    asyncio.run(
        exchange(
            call,
            [
                Job(requests, sorted(rollouts), stored.append, "nli", first_error_or_sum)
                for requests, rollouts in jobs
            ],
            outcomes,
        )
    )
    distinct = list(dict.fromkeys(request for requests, _ in jobs for request in requests))
    assert sent == ([distinct] if distinct else [])
    expected, errors = [], {}
    for requests, rollouts in jobs:
        result = first_error_or_sum([answer(request, failing) for request in requests])
        if isinstance(result, Exception):
            errors = {i: str(result) for i in rollouts} | errors
        else:
            expected.append(result)
    assert stored == expected
    assert {i: error.message for i, error in outcomes.errors.items()} == errors
    assert all(error.path == "nli" for error in outcomes.errors.values())


@pytest.mark.parametrize("fault", ["raise", "short"])
def test_a_fault_of_the_whole_call_is_the_error_of_each_rollout(fault):
    async def call(requests):
        if fault == "raise":
            raise ZeroDivisionError("no device")
        return [1]

    outcomes, stored = Outcomes(ROLLOUTS), []
    asyncio.run(exchange(call, [Job([i], [i], stored.append) for i in (0, 2)], outcomes))
    assert not stored
    message = "no device" if fault == "raise" else "1 answers to 2 requests"
    for i in (0, 2):
        error = outcomes.result(i, ROLLOUTS[i])
        assert isinstance(error, BackendError)
        assert message in error.message
        assert error.row == str(i)
    assert outcomes.result(1, ROLLOUTS[1]) is ROLLOUTS[1]


def test_the_first_error_of_a_rollout_stays():
    outcomes = Outcomes(ROLLOUTS)
    outcomes.fail(0, DataError("missing", "question"), "nli")
    outcomes.fail(0, BackendError("later"))
    assert str(outcomes.errors[0]) == "question: missing"


def test_new_evidence_completes_earlier_evidence():
    """Entries, parts of a mapping and parts of a struct stay; log-probabilities are replaced."""
    earlier = Entailment(premise="p", hypothesis="h", entailment=0.5)
    rollout = Rollout(
        response="",
        nli=(earlier,),
        verdicts={"outcome": 1},
        masked_answers=MaskedAnswers(rationale="Paris"),
        logprobs=LogProbs(full=(-1.0,), without={"7": (-2.0,)}),
    )
    new = NewEvidence(rollout)
    new.add(EntailmentNeed("a", "b"), 0.25)
    new.add(VerdictNeed("reasoning"), 0)
    new.add(MaskedAnswersNeed("evidence"), "Rome")
    new.add(LogProbsNeed(("1",)), {"full": (-3.0,), "without": {"1": (-4.0,)}})
    informed = rollout.with_evidence(new.evidence)
    assert informed.nli == (earlier, Entailment(premise="a", hypothesis="b", entailment=0.25))
    assert informed.verdicts == {"outcome": 1, "reasoning": 0}
    assert informed.masked_answers == MaskedAnswers(rationale="Paris", evidence="Rome")
    assert informed.logprobs == LogProbs(full=(-3.0,), without={"1": (-4.0,)})
    assert rollout.verdicts == {"outcome": 1}

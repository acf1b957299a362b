"""Costs of a response, and whether its reasoning entails its decision."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Rollout
from rag_rewards.evidence.needs import EntailmentNeed
from rag_rewards.rewards import Cost, Format, Process, length_cost, repetition_cost
from rag_rewards.rollout import Entailment
from rag_rewards.text.sections import Tags

quick = budget(150)
PROCESS = Process(Format(Tags(("think", "answer")), ("answer",)))


@quick
@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_repetition_against_a_naive_implementation(words, n):
    grams = ["|".join(words[i : i + n]) for i in range(len(words)) if i + n <= len(words)]
    repeated = sum(gram in grams[:i] for i, gram in enumerate(grams))
    expected = repeated / len(grams) if grams else 0.0
    assert repetition_cost(words, n) == pytest.approx(expected)


@quick
@given(st.integers(0, 2000), st.integers(1, 600))
def test_length_against_a_naive_implementation(words, budget):
    assert length_cost(words, budget) == pytest.approx(max(words - budget, 0) / budget)


def test_costs_of_a_response_count_its_thinking():
    rollout = Rollout(response="<think>a b</think> a b a b<|im_end|>")
    # "<think>a", "b</think>", "a", "b", "a", "b": 6 words over a budget of 4
    assert Cost(budget=4)([rollout])[0].value == 0.5
    # 2-grams: 5, of which "a b" once more
    assert Cost("repetition", ngram=2)([rollout])[0].value == pytest.approx(0.2)
    assert Cost()([rollout])[0].value == 0.0
    assert Cost()([Rollout(response="")])[0].value == 0.0
    assert Cost().needs(rollout) == []


def process(response: str, *pairs):
    nli = tuple(Entailment(premise=p, hypothesis=h, entailment=e) for p, h, e in pairs)
    return PROCESS([Rollout(response=response, nli=nli)])[0].value


def test_process_is_the_entailment_of_the_decision():
    response = "<think> So Paris. </think><answer>It is Paris [1].</answer>"
    assert process(response, ("So Paris.", "It is Paris.", 0.7)) == 0.7
    assert PROCESS.needs(Rollout(response=response)) == [
        EntailmentNeed("So Paris.", "It is Paris.")
    ]
    with pytest.raises(DataError, match=r"nli: no entry for premise 'So Paris\.'"):
        process(response)


def test_process_requires_the_format():
    for response in ("<think>a</think>", "<answer>a</answer>", "<think>a</think><answer></answer>"):
        assert process(response) == 0.0
        assert PROCESS.needs(Rollout(response=response)) == []


def test_rewards_pickle():
    for reward in (Cost("repetition"), PROCESS):
        assert pickle.loads(pickle.dumps(reward)) == reward  # noqa: S301

"""The self-check accepts correct policies and rejects wrong values with their cause."""

from __future__ import annotations

import asyncio
import math
import random
import re
from array import array

import pytest
from ngram import MemoryPolicy, correct_logprobs, logprobs, scored

from rag_rewards.errors import BackendError
from rag_rewards.models.selfcheck import agree, checked_arrays, selfcheck

BLOCK = 16


def check(policy, seed=0):
    asyncio.run(selfcheck(policy, seed=seed))


def noisy(amount):
    noise = random.Random(7)

    def scorer(policy, request, pair):
        return [
            min(v + noise.uniform(-amount, amount), 0)
            for v in correct_logprobs(policy, request, pair)
        ]

    return scorer


@pytest.mark.parametrize("seed", range(5))
def test_a_correct_policy_passes(seed):
    check(MemoryPolicy(), seed)


def test_each_check_has_new_tokens():
    contexts = []

    def scorer(policy, request, pair):
        contexts.append(request.contexts[pair[0]])
        return correct_logprobs(policy, request, pair)

    policy = MemoryPolicy(scorer)
    asyncio.run(selfcheck(policy))
    first = set(contexts)
    contexts.clear()
    asyncio.run(selfcheck(policy))
    assert not first & set(contexts)


@pytest.mark.parametrize(("precision", "amount"), [("float32", 5e-4), ("bfloat16", 0.04)])
def test_rounding_of_the_precision_passes(precision, amount):
    check(MemoryPolicy(noisy(amount), precision))


def test_differences_of_bfloat16_fail_in_float32():
    with pytest.raises(BackendError, match=r"repeated: expected .* within 0.001 on average"):
        check(MemoryPolicy(noisy(0.04), "float32"))


def test_a_tiny_random_model_passes_in_bfloat16():
    """Its values are close to −log V, with small differences above the noise."""

    def flat(policy, request, pair):
        noise = random.Random(str((request.contexts[pair[0]], len(policy.sequences))))
        policy.sequences.append(())
        values = correct_logprobs(policy, request, pair)
        return [math.log(1 / 48) + 0.1 * v + noise.uniform(-0.005, 0.005) for v in values]

    check(MemoryPolicy(flat, "bfloat16"))


def test_a_short_model_is_checked_with_short_sequences():
    policy = MemoryPolicy()
    policy.max_length = 40
    longest = 0

    def scorer(policy, request, pair):
        nonlocal longest
        longest = max(longest, len(request.contexts[pair[0]]) + len(request.responses[pair[1]]))
        return correct_logprobs(policy, request, pair)

    policy.scorer = scorer
    check(policy)
    assert 24 <= longest <= 40
    policy.max_length = 20
    with pytest.raises(BackendError, match="max_length 20 is too short"):
        check(policy)


# --- liars -------------------------------------------------------------------------------------


def zeros(policy, request, pair):
    return [0.0] * len(request.responses[pair[1]])


def empty(policy, request, pair):
    return []


def constant(policy, request, pair):
    return [-2.5] * len(request.responses[pair[1]])


def shifted_late(policy, request, pair):
    """The leading null was not dropped: values of the token before."""
    context, response = request.contexts[pair[0]], request.responses[pair[1]]
    whole = [value if value is not None else -3.0 for value in logprobs(context + response)]
    return whole[len(context) - 1 : -1]


def shifted_early(policy, request, pair):
    """The leading null was dropped twice: values of the token after."""
    context, response = request.contexts[pair[0]], request.responses[pair[1]]
    return [*scored(context, response)[1:], -1.0]


def nan(policy, request, pair):
    return [float("nan"), *correct_logprobs(policy, request, pair)[1:]]


def minus_infinity(policy, request, pair):
    return [*correct_logprobs(policy, request, pair)[:-1], float("-inf")]


def positive(policy, request, pair):
    return [-value for value in correct_logprobs(policy, request, pair)]


def nothing(policy, request, pair):
    return [None, *correct_logprobs(policy, request, pair)[1:]]


def one_too_many(policy, request, pair):
    return [-1.0, *correct_logprobs(policy, request, pair)]


def one_too_few(policy, request, pair):
    return correct_logprobs(policy, request, pair)[1:]


def stale(policy, request, pair):
    """A cache that ignores the context: always the first values of a response."""
    response = request.responses[pair[1]]
    return policy.values_of.setdefault(response, correct_logprobs(policy, request, pair))


def last_answer(policy, request, pair):
    """The values of the previous request, cut or filled to the length of the response."""
    now = correct_logprobs(policy, request, pair)
    before = policy.values_of.get((), now)
    policy.values_of[()] = now
    return (before + now)[: len(now)] if len(before) >= len(now) else now


def garbage_in_the_cached_part(policy, request, pair):
    """Rows of a cached prefix are uninitialized memory."""
    context, response = request.contexts[pair[0]], request.responses[pair[1]]
    whole = context + response
    cached = max((_blocks(whole, other) for other in policy.sequences), default=0)
    policy.sequences.append(whole)
    values = correct_logprobs(policy, request, pair)
    return [-1e-3 if len(context) + i <= cached else value for i, value in enumerate(values)]


def _blocks(one, other):
    """Return the number of tokens in common whole blocks, without the last token."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return min(shared, len(one) - 1) // BLOCK * BLOCK


def log10(policy, request, pair):
    return [value / math.log(10) for value in correct_logprobs(policy, request, pair)]


def not_normalised(policy, request, pair):
    return [min(value + 2, 0) for value in correct_logprobs(policy, request, pair)]


def another_model_later(policy, request, pair):
    seed = 1 if policy.calls == 1 else 2
    return scored(request.contexts[pair[0]], request.responses[pair[1]], seed)


def ignores_the_context(policy, request, pair):
    return scored((3,), request.responses[pair[1]])


def cuts_the_context(policy, request, pair):
    return scored(request.contexts[pair[0]][-3:], request.responses[pair[1]])


def swaps_pairs(policy, request, pair):
    pairs = request.wanted()
    same = [p for p in pairs if len(request.responses[p[1]]) == len(request.responses[pair[1]])]
    return correct_logprobs(policy, request, same[same.index(pair) - 1])


def wrong_at_the_boundary(policy, request, pair):
    values = correct_logprobs(policy, request, pair)
    return [-3.3 - len(request.contexts[pair[0]]) / 100, *values[1:]]


def looks_ahead(policy, request, pair):
    """Attention that is not causal: each value depends on the next token."""
    response = (*request.responses[pair[1]], 0)
    return [
        v - 0.1 * response[i + 1] for i, v in enumerate(correct_logprobs(policy, request, pair))
    ]


WRONG_SCORERS = [
    (zeros, "zeros: expected log-probabilities, found 150 zeros; usually a server that does not"),
    (empty, r"expected 150 log-probabilities, one per token .* found 0; usually a server that"),
    (constant, "constant: expected values that differ, found 150 times -2.5"),
    (shifted_late, "own token: .*usually values shifted by one.*not dropped"),
    (shifted_early, "causal: .*shifted by one.*dropped twice"),
    (nan, "not finite: nan at token 0"),
    (minus_infinity, "not finite: -inf at token 149"),
    (positive, "above 0: "),
    (nothing, "expected log-probabilities, found None"),
    (one_too_many, "expected 150 log-probabilities, one per token of the response, found 151"),
    (one_too_few, "expected 150 log-probabilities, one per token of the response, found 149"),
    (stale, "context: expected another context to change the values.*another request"),
    (last_answer, "repeated: .*the values of another request"),
    (garbage_in_the_cached_part, "repeated: .*uninitialized memory"),
    (log10, "probabilities: .*another base"),
    (not_normalised, "probabilities: .*not normalized"),
    (another_model_later, "repeated: .*weights that changed"),
    (ignores_the_context, "(suffix|context): "),
    (cuts_the_context, "suffix: "),
    (swaps_pairs, "group: .*another pair"),
    (wrong_at_the_boundary, "suffix: .*wrong positions"),
    (looks_ahead, "causal: .*not causal"),
]


@pytest.mark.parametrize(
    ("scorer", "message"), WRONG_SCORERS, ids=[wrong.__name__ for wrong, _ in WRONG_SCORERS]
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_wrong_values_fail(scorer, message, precision):
    with pytest.raises(BackendError, match=message) as caught:
        check(MemoryPolicy(scorer, precision))
    assert str(caught.value).startswith("memory: selfcheck failed: ")


def test_wrong_values_fail_with_any_tokens():
    for seed in range(3):
        for scorer, _ in WRONG_SCORERS:
            with pytest.raises(BackendError, match="memory: selfcheck failed: "):
                check(MemoryPolicy(scorer), seed)


def test_shifted_values_fail_without_the_suffix_check():
    """If all values are shifted by one, they do not depend on the split."""

    def consistent(policy, request, pair):
        context, response = request.contexts[pair[0]], request.responses[pair[1]]
        whole = logprobs((*context, *response, 4))
        return whole[len(context) + 1 :]

    with pytest.raises(BackendError, match=r"causal: .*shifted by one"):
        check(MemoryPolicy(consistent))


def test_an_error_of_a_request_is_raised():
    class Broken(MemoryPolicy):
        async def score(self, requests):
            return [BackendError("http://host answered with status 500")]

    with pytest.raises(BackendError, match=r"memory: selfcheck failed: http://host .* 500"):
        check(Broken())


def test_a_missing_answer_fails():
    class Silent(MemoryPolicy):
        async def score(self, requests):
            return []

    with pytest.raises(BackendError, match="1 answers to as many requests, found 0"):
        check(Silent())


def test_policies_with_other_weights_do_not_agree():
    asyncio.run(agree(MemoryPolicy(), MemoryPolicy(noisy(1e-5))))
    other = MemoryPolicy(
        lambda _, request, pair: scored(request.contexts[pair[0]], request.responses[pair[1]], 5)
    )
    with pytest.raises(BackendError, match=r"agreement: .*other weights"):
        asyncio.run(agree(other, MemoryPolicy()))


# --- after every call --------------------------------------------------------------------------


def test_values_become_separate_float32_arrays():
    same = [-1.5, -0.25]
    arrays = checked_arrays({(0, 0): same, (0, 1): same}, {(0, 0): 2, (0, 1): 2}, "source")
    assert arrays == {(0, 0): array("f", same), (0, 1): array("f", same)}
    assert arrays[0, 0] is not arrays[0, 1]
    assert checked_arrays({(0, 0): []}, {(0, 0): 0}, "source") == {(0, 0): array("f")}


def test_tiny_positive_rounding_is_clipped():
    clipped = checked_arrays({(0, 0): [-1.0, 9e-5, 0.0]}, {(0, 0): 3}, "source")[0, 0]
    assert list(clipped) == [-1.0, 0.0, 0.0]
    with pytest.raises(
        BackendError, match=re.escape("source: pair (0, 0): a log-probability is abo")
    ):
        checked_arrays({(0, 0): [-1.0, 2e-4]}, {(0, 0): 2}, "source")


@pytest.mark.parametrize("values", [{}, {(0, 1): [-1.0]}, {(0, 0): [-1.0], (0, 1): [-1.0]}])
def test_unexpected_pairs_are_rejected(values):
    with pytest.raises(BackendError, match="expected values for the pairs"):
        checked_arrays(values, {(0, 0): 1}, "source")


@pytest.mark.parametrize("value", ["a", None, [1.0]])
def test_values_that_are_not_numbers_are_rejected(value):
    with pytest.raises(BackendError, match="source: pair"):
        checked_arrays({(0, 0): [-1.0, value]}, {(0, 0): 2}, "source")

"""The parts of the rewards of StepSearch and IGPO: values by hand, and slow twins."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.errors import DataError, EvidenceError
from rag_rewards.rewards.correctness import token_f1
from rag_rewards.rewards.igpo import answer_likelihood, gain_over, information_gains
from rag_rewards.rewards.stepsearch import (
    References,
    counts,
    coverage_rises,
    efficiency,
    gains,
    key_score,
    redundancies,
)
from rag_rewards.text.normalize import squad

WORDS = st.lists(st.sampled_from(["paris", "lyon", "river", "Seine", "a", "the"]), max_size=5)
TEXT = WORDS.map(" ".join)
KEYS = st.lists(st.lists(TEXT, min_size=1, max_size=2), min_size=1, max_size=3)


def test_cosines_by_hand():
    gold = References([counts("paris capital"), counts("lyon river")])
    assert gold.cosines(counts("paris capital france")) == pytest.approx([0.732359, 0.0], abs=1e-6)
    shared, own = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    assert (shared, own) == pytest.approx((1.287682, 1.693147), abs=1e-6)
    assert gold.cosines(counts("")) == [0.0, 0.0]
    assert gold.cosines(counts("a I .")) == [0.0, 0.0]  # tokens have two characters or more
    assert gold.cosines(counts("lyon river"))[1] == pytest.approx(1.0)


def naive_cosine(text, references, position):
    texts = [text.lower().split(), *(r.lower().split() for r in references)]
    texts = [[word for word in words if len(word) > 1] for words in texts]
    vocabulary = sorted({word for words in texts for word in words})

    def vector(words):
        idf = [
            math.log((1 + len(texts)) / (1 + sum(word in each for each in texts))) + 1
            for word in vocabulary
        ]
        return [words.count(word) * weight for word, weight in zip(vocabulary, idf, strict=True)]

    one, two = vector(texts[0]), vector(texts[1 + position])
    length = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in two))
    return sum(x * y for x, y in zip(one, two, strict=True)) / length if length else 0.0


@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_cosines_equal_their_twin(text, references):
    values = References([counts(each) for each in references]).cosines(counts(text))
    for position, value in enumerate(values):
        assert math.isclose(value, naive_cosine(text, references, position), abs_tol=1e-12)


def test_search_keys():
    keys = [["mayor of lyon"], ["jean dupont birthplace"]]
    assert key_score(["mayor of lyon", "jean"], keys) == 0.75
    assert key_score([], keys) == 0.0
    assert key_score(["unrelated"], keys) == 0.0
    again = ["mayor of lyon", "mayor"]
    assert key_score(again, keys) == pytest.approx(0.25)
    assert key_score(again, keys, "best") == 0.5
    assert key_score(["city"], [["town", "city"], ["city"]]) == 0.5  # the first key of two
    stuffed = "mayor of lyon jean dupont birthplace and many other words"
    assert key_score([stuffed], keys) < 0.3


@given(st.lists(TEXT, max_size=4), KEYS)
def test_search_keys_equal_their_twin(queries, keys):
    best = {}
    for query in queries:
        f1 = [
            max(token_f1(query, [alias]) if squad(query) and squad(alias) else 0.0 for alias in key)
            for key in keys
        ]
        if max(f1) > 0:
            position = f1.index(max(f1))
            best[position] = max(best.get(position, 0.0), max(f1))
    assert math.isclose(key_score(queries, keys, "best"), sum(best.values()) / len(keys))


def test_gains_and_redundancy():
    first, second = gains([[[0.6, 0.0], [0.2, 0.3]], [[0.5, 0.8]]], 2)
    assert (first, second) == pytest.approx((0.45, 0.25))
    assert gains([[]], 2) == [0.0]
    assert redundancies([["d1", "d2"], ["d2", "d3"]]) == [0.0, 0.5]
    assert redundancies([["d1", "d1"], []]) == [0.5, 0.0]


SIMILARITY = st.lists(st.floats(0, 1), min_size=2, max_size=2)


@given(st.lists(st.lists(SIMILARITY, max_size=3), max_size=4))
def test_the_sum_of_the_gains_is_the_greatest_similarity(searches):
    reached = [max((d[i] for s in searches for d in s), default=0.0) for i in range(2)]
    assert math.isclose(sum(gains(searches, 2)), sum(reached) / 2, abs_tol=1e-12)


def test_coverage():
    found = [{1}, {1}, {1, 2}]
    assert coverage_rises(found, {1, 2}) == [0.5, 0.0, 0.5]
    assert coverage_rises([{1}, {2}, {9}], {1, 2}) == [0.5, 0.0, 0.0]
    assert coverage_rises([{1}, {2}, {9}], {1, 2}, "all") == [0.5, 0.5, 0.0]
    q = efficiency(4)
    assert [0.2 * rise * q for rise in coverage_rises(found, {1, 2})] == pytest.approx(
        [0.09025, 0.0, 0.09025]
    )
    assert [efficiency(t) for t in (1, 2, 3)] == [1.0] * 3


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: key_score(["a"], []), r"^search_keys: contains no search key$"),
        (lambda: gains([], 0), r"^gold_documents: contains no gold document$"),
        (
            lambda: gains([[], [[0.5, 0.5], [0.5]]], 2),
            r"^similarities\[1\]\[1\]: has 1 values for 2 gold documents: give one for each$",
        ),
        (lambda: coverage_rises([{1}], []), r"^supporting: contains no document: name the gold"),
    ],
)
def test_missing_gold_data(run, message):
    with pytest.raises(DataError, match=message):
        run()


def test_no_search():
    assert gains([], 2) == redundancies([]) == coverage_rises([], {1}) == []
    assert key_score(["", "a"], [[], ["", "b"]]) == 0.0


def test_information_gains():
    assert information_gains([-2.0, -1.2, -0.1]) == pytest.approx([0.165859, 0.603643], abs=1e-6)
    assert information_gains([-2.0, -1.2, -0.1], "log") == pytest.approx([0.8, 1.1])
    assert information_gains([-2.0]) == []
    assert gain_over(-0.1, [-0.9, -1.1, -1.3]) == pytest.approx(1.0)
    others = [math.exp(v) for v in (-0.9, -1.1)]
    assert gain_over(-0.1, [-0.9, -1.1], "prob") == pytest.approx(math.exp(-0.1) - sum(others) / 2)
    with pytest.raises(EvidenceError, match="give at least one"):
        gain_over(-0.1, [])


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=8))
def test_the_gains_sum_to_the_whole_rise(likelihoods):
    for kind, value in (("prob", math.exp), ("log", float)):
        rise = value(likelihoods[-1]) - value(likelihoods[0])
        steps = information_gains(likelihoods, kind)
        assert math.isclose(sum(steps), rise, abs_tol=1e-9)
        naive = [value(now) - value(before) for before, now in pairwise(likelihoods)]
        assert steps == naive


def test_the_likelihood_of_an_answer():
    assert answer_likelihood([-1.0, -2.0, -3.0]) == -2.0
    assert answer_likelihood([-1.0, -3.0], first_tokens=1, first_weight=3.0) == -1.5
    assert answer_likelihood([-1.0], first_tokens=3, first_weight=3.0) == -1.0
    assert answer_likelihood([1e-9]) == 1e-9  # rounding of log 1
    for values in ([], [0.5], [math.nan], [-math.inf], [-1.0, 0.1]):
        with pytest.raises(EvidenceError):
            answer_likelihood(values)

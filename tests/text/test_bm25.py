"""BM25 compared with its equation, and its order and time."""

from __future__ import annotations

import math
import re

import pytest
from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.text.bm25 import Index, best_matches
from rag_rewards.text.lengths import auto_words, chunks


def twin(query, texts, k1, b):
    """Return the scores by the equation, term by term."""
    split = [re.findall(r"\w+", text.lower()) for text in texts]
    mean = sum(map(len, split)) / len(split) or 1
    scores = []
    for words in split:
        score = 0.0
        for term in sorted(set(re.findall(r"\w+", query.lower()))):
            n = len([other for other in split if term in other])
            f = words.count(term)
            weight = math.log((len(texts) - n + 0.5) / (n + 0.5) + 1)
            score += weight * f * (k1 + 1) / (f + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


TEXT = st.lists(st.sampled_from(["Paris", "Rome", "is", "old", "the", "Oslo."]), max_size=8).map(
    " ".join
)


@given(TEXT, st.lists(TEXT, min_size=1, max_size=6), st.floats(0.1, 3), st.floats(0, 1))
def test_the_equation(query, texts, k1, b):
    scores = Index(texts, k1=k1, b=b).scores(query)
    values = [scores.get(i, 0.0) for i in range(len(texts))]
    assert values == pytest.approx(twin(query, texts, k1, b))


def test_equal_scores_keep_their_order():
    assert best_matches("x", ["b", "a", "c"], 2) == ["b", "a"]
    assert best_matches("", ["b"], 2) == ["b"]
    assert best_matches("罗马", ["巴黎是首都", "罗马是首都"], 1) == ["罗马是首都"]


@given(st.text(alphabet="ab 法国\n", max_size=40), st.integers(1, 5))
def test_chunks_contain_all_words(text, count):
    parts = chunks(text, count)
    words = [auto_words(part) for part in parts]
    assert [word for each in words for word in each] == auto_words(text)
    assert all(len(each) == count for each in words[:-1])


@sizes(1_000_000)
def test_long_texts_take_linear_time(largest):
    def run(size):
        texts = chunks("word other " * (size // 11), 64)
        best_matches("word " * (size // 5), texts, 8)

    assert_linear(run, largest)


@given(st.lists(TEXT, max_size=6), TEXT)
def test_the_best_texts_of_an_index_are_in_the_order_of_their_scores(texts, query):
    index = Index(texts)
    scores = index.scores(query)
    order = sorted(range(len(texts)), key=lambda i: -scores.get(i, 0.0))
    assert index.best(query, 3) == [i for i in order if scores.get(i)][:3]


def test_equal_texts_of_an_index_keep_their_order():
    assert Index(["rome", "oslo", "rome"]).best("rome", 5) == [0, 2]
    assert Index([]).best("rome", 5) == []

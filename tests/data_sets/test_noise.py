"""Noise documents: their sources and conditions, and their dependence on the seed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rag_rewards.datasets.gold import Gold, Problem, generator
from rag_rewards.errors import UsageError
from rag_rewards.preparation.noise import NoisePool, offer_corpus
from rag_rewards.rollout import Document

GOLD = Gold(
    question="?",
    documents=(Document(title="Paris", text="On the Seine."), Document(text="bare")),
    answers=(("the Seine",), ("no",)),
)


def pool_of(*documents, seed=0, size=10):
    pool = NoisePool(seed, size)
    pool.offer(Document(title=title, text=text) for title, text in documents)
    return pool


def test_noise_has_other_titles_and_no_answer():
    pool = pool_of(
        ("Paris", "Another text."),
        ("Rouen", "It lies on the seine, too."),
        ("Rome", "On the Tiber, no less."),
        ("Oslo", "bare"),
        (None, "Inseine."),
    )
    rng = generator(0, "x")
    noise = pool.sample(GOLD, 2, rng)
    # The gold answer "no" occurs in many texts and is ignored.
    assert {document.title for document in noise} == {"Rome", None}
    assert pool.sample(GOLD, 3, generator(0, "x")) == Problem(
        "too few documents for noise", "2 of 3"
    )
    assert NoisePool(0).sample(GOLD, 1, rng).detail == "0 of 1"


def test_a_document_is_sampled_once():
    pool = pool_of(*[("Rome", "On the Tiber.")] * 5, ("Oslo", "A port."))
    assert len(pool.sample(GOLD, 2, generator(0, "x"))) == 2
    assert isinstance(pool.sample(GOLD, 3, generator(0, "x")), Problem)


def test_noise_supports_no_answer():
    pool = NoisePool(0)
    pool.offer([Document(title="Rome", text="Tiber", supports=(True, True))])
    [noise] = pool.sample(GOLD, 1, generator(0, "x"))
    assert noise.supports is None


def test_the_pool_is_a_uniform_sample():
    counts = Counter()
    for seed in range(2_000):
        pool = pool_of(*[(str(i), f"text {i}") for i in range(10)], seed=seed, size=3)
        counts.update(document.title for document in pool._documents)
    assert sum(counts.values()) == 6_000
    # The expected number is 600, with a standard deviation of 20.
    assert all(500 < counts[str(i)] < 700 for i in range(10))


def test_the_real_corpus(shared):
    pool = NoisePool(0)
    offer_corpus(pool, str(shared / "data/search_r1/corpus_sample.jsonl"))
    titles = {document.title for document in pool._documents}
    assert {"Evan Morris", "Horatio Hale"} <= titles
    assert not any(document.text.startswith('"') for document in pool._documents)


def test_a_corpus_of_titles_and_texts(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"title": "T", "text": "x"}, {"contents": "no title"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pool = NoisePool(0)
    offer_corpus(pool, str(path))
    assert pool._documents == [Document(title="T", text="x"), Document(text="no title")]
    for row, message in [({"id": 1}, "neither `contents` nor `text`"), ({"text": 1}, "row 1")]:
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(UsageError, match=message):
            offer_corpus(pool, str(path))


def test_annotations_of_documents_in_another_order():
    gold = Gold(
        question="?",
        documents=(
            Document(text="a", supports=(True, False)),
            Document(text="b", supports=(False, True)),
        ),
        answers=(("x",), ("y",)),
        supporting=(0, 1),
    )
    fields = gold.arranged([2, 1, 0], [Document(text="c")]).fields()
    assert [document["text"] for document in fields["documents"]] == ["c", "b", "a"]
    assert [document["id"] for document in fields["documents"]] == ["1", "2", "3"]
    assert fields["supporting"] == ["2", "3"]
    assert fields["documents"][0]["supports"] == [False, False]
    assert fields["documents"][2]["supports"] == [True, False]

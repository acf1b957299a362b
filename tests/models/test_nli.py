"""Local entailment models against plain transformers with one pair at a time."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget
from tiny_text_models import (
    PAIRS,
    POSITIONS,
    bert_tokenizer,
    family,
    save_classifier,
    save_t5,
    text,
)

from rag_rewards import BackendError, MissingExtraError, UsageError
from rag_rewards.evidence.protocols import EntailmentModel
from rag_rewards.models.local_models import identity, model_files
from rag_rewards.models.nli import load_entailment, seq2seq
from rag_rewards.models.nli.classifier import entailment_index, label_names
from rag_rewards.models.nli.pieces import EncodedPair, windows

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

torch.set_num_threads(1)

ORDERS = {
    "mnli": ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"],
    "first": ["entailment", "neutral", "contradiction"],
    "middle": ["contradiction", "Entail", "neutral"],
    "two": ["entailment", "not_entailment"],
    "two turned": ["not_entailment", "entailment"],
}


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def t5(tmp_path_factory):
    return save_t5(tmp_path_factory.mktemp("t5"))


def load(folder, **options):
    return load_entailment(folder, device="cpu", **options)


# --- the naive twins ---------------------------------------------------------------------------


def twin_classifier(folder, pairs, index):
    """Return probabilities with one pair at a time, as in the documentation of transformers."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [
            model(**tokenizer(p, h, return_tensors="pt")).logits[0].softmax(-1)[index].item()
            for p, h in pairs
        ]


def twin_windows(folder, premise, hypothesis, index, limit, overlap):
    """Return the highest probability of BERT over all windows, built by hand."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokenizer.encode(premise, add_special_tokens=False)
    claim = tokenizer.encode(hypothesis, add_special_tokens=False)
    room, start, result = limit - 3 - len(claim), 0, []
    while True:
        start = max(min(start, len(words) - room), 0)
        first = [tokenizer.cls_token_id, *words[start : start + room], tokenizer.sep_token_id]
        second = [*claim, tokenizer.sep_token_id]
        types = [0] * len(first) + [1] * len(second)
        with torch.no_grad():
            logits = model(torch.tensor([first + second]), token_type_ids=torch.tensor([types]))
        result.append(logits.logits[0].softmax(-1)[index].item())
        if start + room >= len(words):
            return max(result)
        start += room - overlap


def twin_t5(folder, pairs, yes, no, begin=()):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    yes, no, *begin = tokenizer.convert_tokens_to_ids([yes, no, *begin])
    result = []
    for premise, hypothesis in pairs:
        ids = tokenizer(f"premise: {premise} hypothesis: {hypothesis}", return_tensors="pt")
        with torch.no_grad():
            logits = model(**ids, decoder_input_ids=torch.tensor([[0, *begin]])).logits[0, -1]
        result.append(logits[[yes, no]].softmax(-1)[0].item())
    return result


def close(expected):
    return pytest.approx(expected, abs=1e-5)


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta"])
def test_classifiers_against_plain_transformers(name, order, tmp_path):
    labels = ORDERS[order]
    save_classifier(tmp_path, name, labels)
    model = load(tmp_path)
    index = next(i for i, label in enumerate(labels) if label.lower().startswith("entail"))
    expected = twin_classifier(tmp_path, PAIRS, index)
    assert max(expected) - min(expected) > 0.1
    assert model.max_length == POSITIONS
    assert model.entail_sync(PAIRS) == close(expected)


@pytest.mark.parametrize("order", ORDERS)
def test_contradictions_against_plain_transformers(order, tmp_path):
    labels = ORDERS[order]
    save_classifier(tmp_path, "bert", labels)
    model = load(tmp_path)
    first_letters = [label.lower()[:6] for label in labels]
    if "contra" not in first_letters:
        with pytest.raises(BackendError, match="no label for contradiction"):
            asyncio.run(model.entail_and_contradict(PAIRS))
        return
    columns = [first_letters.index(each) for each in ("entail", "contra")]
    expected = zip(*(twin_classifier(tmp_path, PAIRS, index) for index in columns), strict=True)
    both = asyncio.run(model.entail_and_contradict([*PAIRS, ("", "Paris")]))
    assert [value for pair in both for value in pair] == close(
        [v for p in expected for v in p] + [0, 0]
    )
    assert [entailment for entailment, _ in both[:-1]] == model.entail_sync(PAIRS)


def test_t5_has_no_contradictions(t5):
    with pytest.raises(BackendError, match="no label for contradiction"):
        asyncio.run(load(t5).entail_and_contradict(PAIRS))


def test_t5_against_plain_transformers(t5):
    expected = twin_t5(t5, PAIRS, "▁1", "▁")
    assert max(expected) - min(expected) > 0.01
    assert load(t5).entail_sync(PAIRS) == close(expected)


def test_answers_are_compared_at_their_first_difference(tmp_path):
    save_t5(tmp_path, answers=())
    expected = twin_t5(tmp_path, PAIRS, "1", "0", begin=["▁"])
    assert load(tmp_path).entail_sync(PAIRS) == close(expected)


def test_answers_without_a_token_of_their_own(tmp_path, monkeypatch):
    save_t5(tmp_path, answers=())
    monkeypatch.setattr(seq2seq, "_ANSWERS", ("1", "10"))
    with pytest.raises(UsageError, match="cannot be distinguished"):
        load(tmp_path)


def test_a_single_logit_is_that_of_entailment(tmp_path):
    save_classifier(tmp_path, labels=["LABEL_0"])
    with pytest.raises(UsageError, match="entailment_label="):
        load(tmp_path)  # it might rank passages
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        logits = [model(**tokenizer(*p, return_tensors="pt")).logits.item() for p in PAIRS]
    expected = [1 / (1 + math.exp(-logit)) for logit in logits]
    assert load(tmp_path, entailment_label=0).entail_sync(PAIRS) == close(expected)


def test_a_saved_cross_encoder_with_any_activation(bert, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for activation in (torch.nn.Identity(), torch.nn.Sigmoid()):
        saved = sentence_transformers.CrossEncoder(
            str(bert), device="cpu", local_files_only=True, activation_fn=activation
        )
        saved.save_pretrained(str(tmp_path))
        logits = saved.predict(
            PAIRS, activation_fn=torch.nn.Identity(), convert_to_tensor=True, batch_size=1
        )
        expected = logits.softmax(-1)[:, 2].tolist()
        assert load(tmp_path).entail_sync(PAIRS) == close(expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lower_precisions(dtype, bert):
    model = load(bert, dtype=dtype)
    assert f" {dtype} " in model.fingerprint
    expected = load(bert).entail_sync(PAIRS)
    assert model.entail_sync(PAIRS) == pytest.approx(expected, abs=0.1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu(bert, t5):
    for folder in (bert, t5):
        expected = load(folder).entail_sync(PAIRS)
        result = load_entailment(folder, device="cuda").entail_sync(PAIRS)
        assert result == pytest.approx(expected, abs=1e-4)


def test_values_do_not_depend_on_other_pairs(bert, t5):
    for folder in (bert, t5):
        model = load(folder)
        together = model.entail_sync(PAIRS)
        alone = [model.entail_sync([pair])[0] for pair in PAIRS]
        small = load(folder, token_budget=50)
        assert together == close(alone)
        assert model.entail_sync(PAIRS[::-1]) == close(alone[::-1])
        assert small.entail_sync(PAIRS) == close(alone)
        assert small.usage.padded < model.usage.padded


def test_equal_pairs_are_computed_once(bert):
    model = load(bert)
    values = model.entail_sync([PAIRS[0], PAIRS[1], PAIRS[0]])
    assert model.usage.pairs == model.usage.pieces == 2
    assert values[0] == values[2] != values[1]


def test_empty_texts_have_probability_zero(bert, t5):
    for folder in (bert, t5):
        model = load(folder)
        pairs = [("", "a cat"), ("a cat", " \n"), PAIRS[1], ("", "")]
        values = model.entail_sync(pairs)
        assert values[:2] == [0.0, 0.0]
        assert values[3] == 0.0
        assert values[2] > 0
        assert model.usage.pieces == 1
        assert model.entail_sync([]) == []


@pytest.mark.parametrize("spelled", ["[SEP] the dog", "[CLS] [PAD]"])
def test_a_text_cannot_contain_a_special_token(spelled, bert):
    model = load(bert)
    [frame] = model._model.encode([("the cat sat", spelled)])
    tokenizer = model._model.tokenizer
    counts = [frame.ids.count(tokenizer.convert_tokens_to_ids(t)) for t in ("[CLS]", "[SEP]")]
    assert counts == [1, 2]
    assert tokenizer.pad_token_id not in frame.ids


def test_a_text_cannot_end_t5s_input(t5):
    model = load(t5)
    [frame] = model._model.encode([("the cat </s>", "the </s> dog <pad>")])
    assert frame.ids.count(1) == 1
    assert frame.ids[-1] == 1
    assert 0 not in frame.ids


# --- long premises -----------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [0, 3, 8])
@pytest.mark.parametrize("count", [29, 30, 31, 57, 200])
def test_a_long_premise_against_a_sliding_window(count, overlap, bert):
    [premise], [hypothesis] = text(count), text(7)
    expected = twin_windows(bert, premise, hypothesis, 2, POSITIONS, overlap)
    result = load(bert, overlap=overlap).entail_sync([PAIRS[0], (premise, hypothesis)])
    assert result[1] == close(expected)


def test_t5_divides_a_long_premise_into_pieces(t5):
    [premise], [hypothesis] = text(90), text(6)
    model = load(t5, max_length=30, overlap=4)
    [frame] = model._model.encode([(premise, hypothesis)])
    tokenizer = model._model.tokenizer
    pieces = frame.pieces(30, 4)
    read = [tokenizer.decode(piece.ids).removesuffix("</s>") for piece in pieces]
    for piece in read:
        assert piece.startswith("premise: ")
        assert piece.endswith(f" hypothesis: {hypothesis}")
    inner = [p.removeprefix("premise: ").split(" hypothesis: ")[0].strip() for p in read]
    expected = twin_t5(t5, [(premise, hypothesis) for premise in inner], "▁1", "▁")
    assert len(inner) > 3
    assert " ".join(inner).split()[:10] == premise.split()[:10]
    assert model.entail_sync([(premise, hypothesis)]) == [close(max(expected))]


def test_t5_accepts_more_than_its_configured_length(t5):
    [premise], [hypothesis] = text(700), text(6)
    assert load(t5).max_length == 512
    result = load(t5, max_length=2048).entail_sync([(premise, hypothesis)])
    assert result == close(twin_t5(t5, [(premise, hypothesis)], "▁1", "▁"))


quick = budget(200)


@quick
@given(st.integers(0, 300), st.integers(1, 60), st.data())
def test_windows_cover_the_length_and_overlap(length, room, data):
    overlap = data.draw(st.integers(0, room - 1))
    spans = windows(length, room, overlap)
    assert sorted({i for a, b in spans for i in range(a, b)}) == list(range(length))
    assert all(b - a == min(room, length) for a, b in spans)
    neighbours = list(pairwise(spans))
    assert all(left[1] - right[0] >= overlap for left, right in neighbours)
    assert all(left[0] < right[0] for left, right in neighbours)
    # The number of windows is minimal.
    assert len(spans) == max(1, math.ceil((length - overlap) / (room - overlap)))


@quick
@given(st.integers(1, 200), st.integers(1, 50), st.integers(8, 64), st.integers(0, 70))
def test_pieces_fit_and_contain_the_whole_premise(premise, hypothesis, limit, overlap):
    frame = EncodedPair(  # the template's own tokens: 999, 2000, 3000
        [999, *range(1000, 1000 + premise), 2000, *range(5000, 5000 + hypothesis), 3000],
        None,
        (1, 1 + premise),
        (2 + premise, 2 + premise + hypothesis),
    )
    least = min(premise, limit // 8)
    if hypothesis + 3 + least > limit:
        assert frame.pieces(limit, overlap) == []
        return
    hypothesis_ids = range(5000, 5000 + hypothesis)
    covered = set()
    for piece in frame.pieces(limit, overlap):
        assert len(piece.ids) <= limit
        part = [i for i in piece.ids if 1000 <= i < 2000]
        assert piece.ids == [999, *part, 2000, *hypothesis_ids, 3000]
        assert part == list(range(part[0], part[0] + len(part)))
        covered.update(part)
    assert covered == set(range(1000, 1000 + premise))


def test_a_hypothesis_that_is_too_long(bert):
    [premise, hypothesis] = text(20, 60)
    both = load(bert).entail_sync([PAIRS[0], (premise, hypothesis)])
    assert both == [*load(bert).entail_sync([PAIRS[0]]), 0.0]  # what nobody can check
    shorter = " ".join(hypothesis.split()[:32])
    assert load(bert).entail_sync([(premise, shorter), (premise, f"{shorter} a")])[0] > 0
    with pytest.raises(BackendError, match="max_length=3 leaves no room"):
        load(bert, max_length=3).entail_sync([PAIRS[0]])


# --- failures while running --------------------------------------------------------------------


class Wrapped:
    """A model that does something before each pass."""

    def __init__(self, model, before):
        self.model, self.before = model, before

    def __call__(self, **inputs):
        self.before(inputs["input_ids"])
        return self.model(**inputs)

    def __getattr__(self, name):
        return getattr(self.model, name)


def intercept(backend, before):
    object.__setattr__(backend._model, "model", Wrapped(backend._model.model, before))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
)
def test_batches_shrink_when_memory_is_exhausted(error, bert):
    def before(ids):
        if ids.numel() > 60:
            raise error

    model, expected = load(bert), load(bert).entail_sync(PAIRS)
    intercept(model, before)
    with pytest.warns(UserWarning, match="out of memory: continuing with a token budget of"):
        result = model.entail_sync(PAIRS)
    assert result == close(expected)
    assert model.token_budget <= 60

    model = load(bert)
    intercept(model, lambda ids: (_ for _ in ()).throw(error))
    with (
        pytest.warns(UserWarning, match="out of memory"),
        pytest.raises(BackendError, match="out of memory with one piece of 34 tokens"),
    ):
        model.entail_sync([PAIRS[5], PAIRS[5][::-1]])


def test_other_failures_are_errors(bert):
    model = load(bert)
    intercept(model, lambda ids: (_ for _ in ()).throw(RuntimeError("index out of range")))
    with pytest.raises(BackendError, match="the entailment model failed: index out of range"):
        model.entail_sync(PAIRS)


def test_values_that_are_not_finite(bert):
    model = load(bert)
    with torch.no_grad():
        model._model.model.classifier.bias[0] = math.nan
    with pytest.raises(BackendError, match=r"not finite in torch\.float32"):
        model.entail_sync(PAIRS)


def test_one_call_at_a_time_in_a_thread(bert):
    model, expected = load(bert), load(bert).entail_sync(PAIRS)
    running, most, threads = 0, 0, set()

    def before(ids):
        nonlocal running, most
        running += 1
        most = max(most, running)
        threads.add(threading.get_ident())
        time.sleep(0.02)
        running -= 1

    intercept(model, before)

    async def several():
        return await asyncio.gather(*(model.entail(PAIRS) for _ in range(4)))

    assert asyncio.run(several()) == [close(expected)] * 4
    assert most == 1
    assert threading.get_ident() not in threads
    assert asyncio.run(model.entail(PAIRS)) == close(expected)  # in another event loop


def test_a_closed_model_raises(bert):
    model = load(bert)
    assert isinstance(model, EntailmentModel)
    asyncio.run(model.close())
    asyncio.run(model.close())
    assert model.fingerprint
    with pytest.raises(BackendError, match="closed"):
        model.entail_sync(PAIRS)


# --- which label is entailment -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "index"),
    [
        *((labels, [n.lower()[:6] for n in labels].index("entail")) for labels in ORDERS.values()),
        (["NonEntailment", "Entailed"], 1),
        (["no entailment", "entails", "not-entailed"], 1),
        (["entailment"], 0),
    ],
)
def test_the_label_with_the_name_entailment(names, index):
    assert entailment_index(names) == index
    assert entailment_index(names, names[index].upper()) == index
    assert entailment_index(names, 0) == 0


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        (["LABEL_0", "LABEL_1", "LABEL_2"], None, r"none of its labels \(0: LABEL_0, 1: LABEL_1"),
        (["not_entailment", "neutral"], None, "none of its labels"),
        (["entailment", "ENTAIL"], None, "more than one of its labels"),
        (["a", "b"], 2, r"entailment_label=2 is none of the model's labels \(0: a, 1: b\)"),
        (["a", "b"], -1, "entailment_label=-1"),
        (["a", "b"], "c", "entailment_label='c' is none of its labels"),
        (["a", "A"], "a", "more than one"),
    ],
)
def test_ambiguous_labels_are_rejected(names, chosen, message):
    with pytest.raises(UsageError, match=message) as caught:
        entailment_index(names, chosen)
    assert "entailment_label=" in str(caught.value)


def test_labels_of_a_config():
    named, turned = {"0": "x", "1": "entailment"}, {"x": 0, "entailment": 1}
    generic = {"0": "LABEL_0", "1": "LABEL_1"}
    for config in (
        {"id2label": named},
        {"label2id": turned},
        {"id2label": generic, "label2id": turned},
        {"id2label": named, "label2id": {"LABEL_0": 0, "LABEL_1": 1}},
        {"id2label": named, "label2id": None},
    ):
        assert label_names(config) == ["x", "entailment"]
    assert label_names({}) == []
    assert label_names({"id2label": generic}) == ["LABEL_0", "LABEL_1"]
    with pytest.raises(UsageError, match="contradicts itself"):
        label_names({"id2label": named, "label2id": {"x": 1, "entailment": 0}})
    with pytest.raises(UsageError, match="number its labels from 0"):
        label_names({"id2label": {"1": "x", "2": "entailment"}})
    for unreadable in ({"id2label": ["x", "y"]}, {"label2id": {"x": None}}, {"id2label": {"x": 1}}):
        with pytest.raises(UsageError, match="labels that cannot be read"):
            label_names(unreadable)


def test_more_labels_than_logits_are_rejected(copy):
    edit(copy, id2label={"0": "a", "1": "b", "2": "c", "3": "entailment"}, label2id=None)
    with pytest.raises(UsageError, match="copy cannot be loaded"):
        load(copy)


def test_labels_from_label2id_only(bert, tmp_path):
    edit(shutil.copytree(bert, tmp_path / "m"), id2label=None)
    assert load(tmp_path / "m").entail_sync(PAIRS) == close(load(bert).entail_sync(PAIRS))


@pytest.mark.parametrize("labels", [["LABEL_0", "LABEL_1"], ["LABEL_0", "LABEL_1", "LABEL_2"]])
def test_generic_labels_require_the_option(labels, tmp_path):
    save_classifier(tmp_path, labels=labels)
    edit(tmp_path, label2id=None)
    with pytest.raises(UsageError, match=r"name the index with entailment_label="):
        load(tmp_path)
    result = load(tmp_path, entailment_label=1)
    assert result.entail_sync(PAIRS) == close(twin_classifier(tmp_path, PAIRS, 1))
    assert "label=1" in result.fingerprint


# --- loading -----------------------------------------------------------------------------------


def edit(folder, **entries):
    """Change entries of a config.json; None removes an entry."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config = {k: v for k, v in (config | entries).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.fixture
def copy(bert, tmp_path):
    return shutil.copytree(bert, tmp_path / "copy")


def test_a_name_from_the_hub(bert, monkeypatch):
    calls = []

    def download(name, **options):
        calls.append((name, options["revision"], options["allow_patterns"]))
        return str(bert)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    model = load("owner/nli-model", revision="abc")
    assert model.fingerprint == load(bert).fingerprint
    [(name, revision, patterns)] = calls  # safetensors are there: nothing else is fetched
    assert (name, revision) == ("owner/nli-model", "abc")
    assert "*.bin" not in patterns


def test_pickled_weights_are_downloaded_without_safetensors(copy, monkeypatch):
    model = transformers.BertForSequenceClassification.from_pretrained(copy)
    (copy / "model.safetensors").unlink()
    calls = []

    def download(name, **options):
        calls.append(options["allow_patterns"])
        if calls[1:]:
            torch.save(model.state_dict(), copy / "pytorch_model.bin")
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert load("nli-model").entail_sync(PAIRS[:1]) == close(model_values(model, copy))
    assert calls[1:] == [["*.bin"]]


def model_values(model, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model.eval()(**tokenizer(*PAIRS[0], return_tensors="pt")).logits[0]
    return [logits.softmax(-1)[2].item()]


def test_an_unknown_name_of_the_hub(monkeypatch):
    def download(name, **options):
        raise OSError("offline\nlong story")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(UsageError, match=r"owner/x is not a folder, .* hub: offline$"):
        load("owner/x")


def test_weights_of_another_kind_of_model(copy):
    config, _, _ = family("bert")
    transformers.BertModel(config).save_pretrained(copy)
    with pytest.raises(UsageError, match="BertModel is not an entailment model"):
        load(copy)
    edit(copy, architectures=["BertForSequenceClassification"])
    with pytest.raises(UsageError, match=r"missing \(classifier\.bias, classifier\.weight\)"):
        load(copy, entailment_label=0)


def test_unreadable_weights(copy):
    (copy / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match="copy cannot be loaded: "):
        load(copy)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_an_unreadable_config(content, copy):
    (copy / "config.json").write_text(content)
    with pytest.raises(UsageError, match=r"config\.json"):
        load(copy)


def test_further_modules_are_rejected(copy):
    parts = [{"type": "sentence_transformers.base.modules.Dense", "path": "1_Dense"}]
    (copy / "modules.json").write_text(json.dumps(parts))
    with pytest.raises(UsageError, match="parts beside a classifier"):
        load(copy)


def test_a_tokenizer_of_another_model(copy):
    tokenizer = bert_tokenizer()
    tokenizer.add_tokens(["quantum"])
    tokenizer.save_pretrained(copy)
    with pytest.raises(UsageError, match="the tokenizer does not fit the model"):
        load(copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be one of float32, bfloat16"),
        ({"max_length": POSITIONS + 1}, "max_length=41 is more than the model's maximum of 40"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"token_budget": -1}, "token_budget must be at least 1"),
        ({"overlap": -1}, "overlap must be at least 0"),
    ],
)
def test_invalid_options_are_rejected(options, message, bert):
    with pytest.raises(UsageError, match=message):
        load(bert, **options)


@pytest.mark.parametrize("device", ["nowhere", "cuda:77"])
def test_a_missing_device_is_rejected(device, bert):
    with pytest.raises(UsageError, match=f"device='{device}' cannot be used"):
        load_entailment(bert, device=device)


def test_a_label_is_for_classifiers(t5):
    with pytest.raises(UsageError, match="entailment_label is for classifiers"):
        load(t5, entailment_label=1)


def test_missing_packages_name_the_extra(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r'"rag-rewards\[nli\]"'):
        load(bert)


def test_importing_loads_no_model_library():
    code = (
        "import sys, rag_rewards.models.nli, rag_rewards.models.similarity\n"
        "print(*sorted({'torch', 'transformers', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# --- which model it was ------------------------------------------------------------------------


def test_the_fingerprint_contains_what_affects_a_value(bert, t5, copy):
    first = load(bert).fingerprint
    assert load(copy).fingerprint == first
    changed = {
        load(bert, **options).fingerprint
        for options in (
            {"dtype": "bfloat16"},
            {"max_length": 30},
            {"overlap": 5},
            {"entailment_label": 0},
        )
    }
    assert len({first, load(t5).fingerprint, *changed}) == 6
    assert load(bert, token_budget=50).fingerprint == first
    model = transformers.BertForSequenceClassification.from_pretrained(copy)
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight[3, 5] += 0.01
    model.save_pretrained(copy)
    assert load(copy).fingerprint != first


def test_the_identity_of_large_files_reads_samples_of_them(tmp_path):
    size = 80 << 20
    for name in ("weights", "other"):
        (tmp_path / name).mkdir()
    file = tmp_path / "weights" / "model.safetensors"
    with file.open("wb") as stream:
        stream.truncate(size)
    before = identity(file.parent, model_files(file.parent))
    for at in (0, 100_000, size - 1, size * 33 // 65 + 5):
        with file.open("r+b") as stream:
            stream.seek(at)
            stream.write(b"x")
        after = identity(file.parent, model_files(file.parent))
        assert after != before
        before = after
    shutil.copy(file, tmp_path / "other")
    assert identity(tmp_path / "other", [tmp_path / "other" / file.name]) == before

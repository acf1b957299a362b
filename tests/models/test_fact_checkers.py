"""Fact checkers by their profiles, against plain transformers with one input at a time."""

from __future__ import annotations

import json

import pytest
from tiny_text_models import (
    PAIRS,
    SMALL,
    WORDS,
    bert_tokenizer,
    save_classifier,
    save_t5,
    t5_tokenizer,
    text,
)

from rag_rewards import UsageError
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.models.nli import classifier, load_entailment
from rag_rewards.models.nli.pieces import EncodedPair
from rag_rewards.models.nli.profiles import PROFILES, profile_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

TWO = ("LABEL_0", "LABEL_1")
SHORT = [*PAIRS[:3], *zip(text(3, 9, 5), text(2, 8, 3), strict=True)]


def load(folder, **options):
    return load_entailment(folder, device="cpu", **options)


def varied(model, expected, pairs=SHORT):
    """Compare the values, which must not be all the same."""
    assert max(expected) - min(expected) > 0.01
    assert model.entail_sync(pairs) == pytest.approx(expected, abs=1e-5)


def logits_of(kind, folder, texts):
    model = kind.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [model(**tokenizer(each, return_tensors="pt")).logits[0] for each in texts]


SEQUENCE = transformers.AutoModelForSequenceClassification


@pytest.mark.parametrize(("family", "end"), [("roberta", "</s>"), ("deberta", "[SEP]")])
def test_minicheck_classifiers(family, end, tmp_path):
    folder = save_classifier(tmp_path / f"MiniCheck-{family}", family, TWO)
    model = load(folder)
    assert " profile=minicheck " in model.fingerprint
    logits = logits_of(SEQUENCE, folder, [f"{p}{end}{h}" for p, h in SHORT])
    varied(model, [each.softmax(-1)[1].item() for each in logits])
    # The end of a text inside of a text does not end it.
    assert model.entail_sync([("a cat", f"a {end} dog")]) != model.entail_sync([("a cat", "a dog")])
    unknown = "<unk>" if family == "roberta" else "[UNK]"
    [outside] = logits_of(SEQUENCE, folder, [f"a cat{end}a {unknown} dog"])
    varied(
        model,
        [outside.softmax(-1)[1].item(), *(each.softmax(-1)[1].item() for each in logits)],
        [("a cat", f"a {end} dog"), *SHORT],
    )


def test_minicheck_t5(tmp_path):
    folder = save_t5(tmp_path / "MiniCheck-Flan-T5", factor=1.5)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    labels = tokenizer.convert_tokens_to_ids(["▁1", "▁"])
    expected = []
    for premise, hypothesis in SHORT:
        ids = tokenizer(
            f"predict: {premise}</s>{hypothesis}",
            return_tensors="pt",
            return_token_type_ids=False,
        )
        with torch.no_grad():
            logits = model(**ids, decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
        expected.append(logits[labels].softmax(-1)[0].item())
    checker = load(folder)
    varied(checker, expected)
    assert checker.max_length == 2048


def test_factcg(tmp_path):
    folder = save_classifier(tmp_path / "FactCG-DeBERTa", "deberta", TWO)
    texts = [PROFILES["factcg"].template.format(premise=p, hypothesis=h) for p, h in SHORT]
    model = load(folder)
    assert model.max_length == 2048  # beyond the positions of the config, as in the source
    varied(model, [each.softmax(-1)[1].item() for each in logits_of(SEQUENCE, folder, texts)])


def test_alignscore_uses_the_first_label(tmp_path):
    folder = save_classifier(tmp_path / "alignscore", "roberta", ("LABEL_0", "LABEL_1", "LABEL_2"))
    model = SEQUENCE.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        expected = [
            model(**tokenizer(p, h, return_tensors="pt")).logits[0].softmax(-1)[0].item()
            for p, h in SHORT
        ]
    varied(load(folder), expected)


def test_hhem_without_the_code_of_its_repository(tmp_path, monkeypatch):
    """The weights are below `t5`, and the config names the model that it was trained from."""
    tokenizer = t5_tokenizer(("▁1",))
    tiny = {"vocab_size": len(tokenizer), "d_model": 16, "d_kv": 8, "d_ff": 32}
    tiny |= {"num_layers": 2, "num_heads": 2, "initializer_factor": 1.0}
    monkeypatch.setitem(classifier.FLAN_T5, "google/flan-t5-base", tiny)
    torch.manual_seed(3)
    model = transformers.T5ForTokenClassification(transformers.T5Config(**tiny, num_labels=2))
    folder = tmp_path / "model"
    tokenizer.save_pretrained(folder)
    weights = {f"t5.{name}": value for name, value in model.state_dict().items()}
    weights.pop("t5.transformer.encoder.embed_tokens.weight", None)  # shared
    from safetensors.torch import save_file

    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = {
        "model_type": "HHEMv2",
        "architectures": ["HHEMv2ForSequenceClassification"],
        "auto_map": {"AutoConfig": "configuration_hhem_v2.HHEMv2Config"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_hhem_v2.py").write_text("raise SystemExit('executed')")
    expected = []
    for premise, hypothesis in SHORT:
        prompt = PROFILES["hhem"].template.format(premise=premise, hypothesis=hypothesis)
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        assert ids[0, 0] == tokenizer.pad_token_id
        with torch.no_grad():
            logits = model.eval()(input_ids=ids).logits
        expected.append(logits[0, 0].softmax(-1)[1].item())
    varied(load(folder), expected)
    config["foundation"] = "google/flan-t5-huge"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="foundation google/flan-t5-huge"):
        load(folder)


def test_lettucedetect_takes_the_worst_token_of_a_claim(tmp_path):
    config = transformers.ModernBertConfig(
        **{**SMALL, "vocab_size": len(WORDS) + 4},
        max_position_embeddings=64,
        pad_token_id=0,
        num_labels=2,
    )
    torch.manual_seed(3)
    kind = transformers.ModernBertForTokenClassification
    model = kind(config)
    with torch.no_grad():
        model.classifier.weight *= 3
    folder = tmp_path / "lettucedect-base"
    model.save_pretrained(folder)
    tokenizer = bert_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    expected = []
    for premise, hypothesis in SHORT:
        prompt = f"Summarize the following text:\npassage 1: {premise}\noutput:"
        ids = tokenizer(prompt, hypothesis, return_tensors="pt", return_token_type_ids=False)
        count = len(tokenizer(hypothesis, add_special_tokens=False)["input_ids"])
        with torch.no_grad():
            shares = model.eval()(**ids).logits[0].softmax(-1)[:, 1]
        expected.append(1 - shares[-1 - count : -1].max().item())
    varied(load(folder), expected)


def test_a_chunk_limits_the_premise_of_a_piece():
    ids = list(range(20))  # 0, premise 1-10, 11, hypothesis 12-18, 19
    pair = EncodedPair(ids, None, (1, 11), (12, 19))
    pieces = pair.pieces(100, overlap=1, chunk=4)
    assert [piece.ids for piece in pieces] == [
        [0, *premise, *ids[11:]] for premise in (ids[1:5], ids[4:8], ids[7:11])
    ]
    for piece in pieces:
        first, last = piece.hypothesis
        assert piece.ids[first:last] == ids[12:19]
    [whole] = pair.pieces(20, overlap=1, chunk=10)
    assert (whole.ids, whole.hypothesis) == (ids, (12, 19))


@pytest.mark.parametrize(
    ("model", "config", "name"),
    [
        ("lytang/MiniCheck-RoBERTa-Large", {}, "minicheck"),
        ("/hub/models--lytang--MiniCheck-DeBERTa-v3-Large/snapshots/0a1", {}, "minicheck"),
        ("lytang/MiniCheck-Flan-T5-Large", {}, "minicheck-t5"),
        ("yaxili96/FactCG-DeBERTa-v3-Large", {}, "factcg"),
        ("vectara/hallucination_evaluation_model", {}, "hhem"),
        ("/some/folder", {"model_type": "HHEMv2", "auto_map": {}}, "hhem"),
        ("KRLabsOrg/lettucedect-large-modernbert-en-v1", {}, "lettucedetect"),
        ("/minicheck-roberta/run", {"architectures": ["BertForSequenceClassification"]}, "nli"),
        ("t", {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "true"),
    ],
)
def test_the_profile_of_a_name_or_config(model, config, name):
    assert profile_of(model, config) == PROFILES[name]
    assert profile_of(model, config, "factcg") == PROFILES["factcg"]


@pytest.mark.parametrize(
    ("model", "config", "name", "message"),
    [
        ("m", {}, "minichek", "unknown profile 'minichek'; did you mean 'minicheck'"),
        ("bespokelabs/Bespoke-MiniCheck-7B", {}, None, "set judge to its address"),
        ("m", {"auto_map": {"AutoModel": "code.Model"}}, None, "code of its own repository"),
    ],
)
def test_models_that_are_refused(model, config, name, message):
    with pytest.raises(UsageError, match=message):
        profile_of(model, config, name)


def test_the_option(tmp_path):
    folder = str(save_classifier(tmp_path / "run", "roberta", TWO))
    with pytest.raises(UsageError, match="which label is entailment"):
        ModelOptions(nli=folder, device="cpu").load()
    model = ModelOptions(nli=folder, device="cpu", nli_profile="minicheck").load().entailment
    assert " profile=minicheck " in model.fingerprint
    with pytest.raises(UsageError, match="is not an entailment model of the profile minicheck-t5"):
        load(folder, profile="minicheck-t5")
    with pytest.raises(UsageError, match="one of nli, true, minicheck"):
        ModelOptions(nli=folder, nli_profile="minichek")
    with pytest.raises(UsageError, match="for a model in this process"):
        ModelOptions(nli="http://127.0.0.1:1", nli_profile="minicheck")

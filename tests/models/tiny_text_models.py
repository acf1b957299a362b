"""Tiny classifiers of text pairs and a tiny sentence encoder, in folders like real models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = (
    "the a cat dog sat on mat in of Paris France city capital is was not river long old 1990 he "
    "she wrote book about war and peace title premise hypothesis : , . [ ] SEP CLS"
).split()
POSITIONS = 40


# --- classifiers ---------------------------------------------------------------------------------


def word_tokenizer(specials, template, vocabulary, **names):
    """A tokenizer of words and punctuation with the template of a family."""
    ids = {token: i for i, token in enumerate([*specials, *vocabulary])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=names["unk_token"]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single=template[0], pair=template[1], special_tokens=[(s, ids[s]) for s in specials]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)


def bert_tokenizer():
    return word_tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        WORDS,
        **{"pad_token": "[PAD]", "unk_token": "[UNK]"},
        **{"cls_token": "[CLS]", "sep_token": "[SEP]"},
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def roberta_tokenizer():
    return word_tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>"],
        ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        WORDS,
        **{"pad_token": "<pad>", "unk_token": "<unk>"},
        **{"cls_token": "<s>", "sep_token": "</s>"},
        model_input_names=["input_ids", "attention_mask"],
    )


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.5,
    "vocab_size": len(WORDS) + 4,
}


def family(name):
    """(config, model class, tokenizer) of a family of classifiers."""
    if name == "bert":
        config = transformers.BertConfig(**SMALL, max_position_embeddings=POSITIONS)
        return config, transformers.BertForSequenceClassification, bert_tokenizer()
    if name == "roberta":
        config = transformers.RobertaConfig(
            **SMALL, max_position_embeddings=POSITIONS + 2, type_vocab_size=1, pad_token_id=1
        )
        return config, transformers.RobertaForSequenceClassification, roberta_tokenizer()
    config = transformers.DebertaV2Config(
        **SMALL,
        max_position_embeddings=POSITIONS,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["p2c", "c2p"],
        type_vocab_size=0,
        pooler_hidden_size=16,
    )
    return config, transformers.DebertaV2ForSequenceClassification, bert_tokenizer()


def save_classifier(folder, name="bert", labels=("contradiction", "neutral", "entailment")):
    config, kind, tokenizer = family(name)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    torch.manual_seed(3)
    kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def t5_tokenizer(answers):
    """A tokenizer of sentence pieces: words with the space before them, and characters."""
    characters = sorted({char for word in WORDS for char in word} | set("01▁"))
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0)]
    pieces += [(piece, -4.0) for piece in answers]
    pieces += [("▁" + word, -2.0) for word in WORDS]
    pieces += [(char, -6.0) for char in characters if char not in dict(pieces)]
    core = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    core.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    core.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    core.decoder = tokenizers.decoders.Metaspace()
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)


def save_t5(folder, answers=("▁1",), factor=3.0):
    tokenizer = t5_tokenizer(answers)
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        initializer_factor=factor,
    )
    torch.manual_seed(3)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def text(*counts):
    """Return words of the vocabulary, always the same for a number."""
    return [" ".join(WORDS[(7 * i + count) % 24] for i in range(count)) for count in counts]


PAIRS = [
    ("Title: Paris\nParis is the capital of France .", "Paris is a city ."),
    ("the cat sat on the mat", "the dog sat"),
    ("he wrote", "she wrote a book about war and peace in 1990 ."),
    *zip(text(3, 9, 20, 14, 5), text(2, 8, 11, 3, 12), strict=True),
]


# --- an encoder ----------------------------------------------------------------------------------

ENCODER_WORDS = (
    "the a cat dog sat on mat in of Paris France city capital is was not river .".split()
)
TEXTS = [
    ("the cat sat on the mat .", "a dog sat on the river ."),
    ("Paris is the capital of France", "Paris"),
    ("the cat sat on the mat .", "Paris"),
    ("was not", "the river of Paris is in France"),
]
LIMIT = 12


def save_encoder(base, folder):
    """Save a BERT with random weights, the mean of its tokens, like one of sentence-transformers.

    `base` is the folder of the transformer alone.
    """
    import sentence_transformers

    ids = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *ENCODER_WORDS])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=ENCODER_WORDS[0]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(base)
    config = transformers.BertConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LIMIT,
        initializer_range=0.5,
    )
    torch.manual_seed(5)
    transformers.BertModel(config).save_pretrained(base)
    whole = sentence_transformers.SentenceTransformer(
        str(base), device="cpu", local_files_only=True
    )
    whole.max_seq_length = LIMIT
    whole.save_pretrained(str(folder), create_model_card=False)
    return folder

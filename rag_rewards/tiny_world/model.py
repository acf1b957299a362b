"""The model of the tiny world: four layers, 500,000 parameters, one token per word.

Convolutions relate a word to its neighbors and attention finds the document. This architecture
learns the task in minutes, whereas plain transformers of the same size stay on a plateau.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.formats import ABSTENTION, FORMATS, TAGS, WHICH
from rag_rewards.tiny_world.world import DOCUMENTS, FLOWERS, PEOPLE

CHECKPOINT = Path(__file__).with_name("checkpoint")
PAD, BEGIN, END = SPECIAL = ("<pad>", "<bos>", "<eos>")
_UNSPACED = (*TAGS, "\\boxed{", ABSTENTION, REFUSAL)
"""Tokens that are recognized without a space before them."""
WORDS = (
    *SPECIAL,
    *(form.marker for form in (*FORMATS, WHICH)),
    ".",
    *(f"[{i}]" for i in range(1, DOCUMENTS + 1)),
    *PEOPLE,
    *FLOWERS,
    "[]",
    "}",
)
WEIGHT_STD = 0.08
"""Standard deviation of initial weights. With the usual 0.02 the model stays on a plateau."""


def new_tokenizer() -> Any:
    """Return a tokenizer with one token per word, tag or abstention; a text begins with <bos>."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(list(SPECIAL))
    words.add_tokens([AddedToken(text, normalized=False) for text in _UNSPACED])
    words.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, WORDS.index(BEGIN))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="left",
        model_max_length=256,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: Any, seed: int, width: int = 96) -> Any:
    """Return a model with random weights, whose hidden states have `width` values.

    Keys start as copies of queries, so that a word attends to itself.
    """
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(seed)
    config = Lfm2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=4,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=2,
        conv_L_cache=4,
        max_position_embeddings=256,
        initializer_range=WEIGHT_STD,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Lfm2ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            if layer.is_attention_layer:
                layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)
    return model


def load(folder: str | Path = CHECKPOINT, expected: Any = None) -> tuple[Any, Any]:
    """Load the model and the tokenizer of a checkpoint.

    expected  tokenizer whose vocabulary the checkpoint must have; default: that of `new_tokenizer`

    Raises UsageError if the folder does not contain a model of the tiny world.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    hint = "docs/tiny-world.md explains how to create one"
    if not (Path(folder) / "config.json").is_file():
        raise UsageError(f"{folder} does not contain a model; {hint}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.get_vocab() != (expected or new_tokenizer()).get_vocab():
        raise UsageError(f"{folder}: the vocabulary is not that of the tiny world; {hint}")
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise UsageError(f"{folder}: cannot load the model: {first_line}; {hint}") from error
    if wrong := sorted({*info["missing_keys"], *info["unexpected_keys"]}):
        raise UsageError(f"{folder}: the weight {wrong[0]} is missing or unexpected; {hint}")
    return model, tokenizer

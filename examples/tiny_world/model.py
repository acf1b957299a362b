"""The model: four layers, half a million weights, one token a word.

Convolutions bind a word to its neighbours and attention finds the document: with this mixture
two minutes of training are enough, where plain transformers of this size stay on a plateau.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.text.refusal import REFUSAL
from tiny_world.formats import ABSTENTION, FORMATS, TAGS, WHICH
from tiny_world.world import DOCUMENTS, FLOWERS, PEOPLE

CHECKPOINT = Path(__file__).with_name("checkpoint")
PAD, BEGIN, END = SPECIAL = ("<pad>", "<bos>", "<eos>")
_SPACED = (*TAGS, "\\boxed{", ABSTENTION, REFUSAL)
"""Tokens that are found anywhere in a text, also without a space before them."""
WORDS = (
    *SPECIAL,
    *(form.mark for form in (*FORMATS, WHICH)),
    ".",
    *(f"[{i}]" for i in range(1, DOCUMENTS + 1)),
    *PEOPLE,
    *FLOWERS,
    "[]",
    "}",
)
SPREAD = 0.08
"""Standard deviation of new weights: at the usual 0.02 the model never leaves the plateau."""


def tokenizer() -> Any:
    """One token a word, tag or sentence of abstention; a text begins with <bos>."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(list(SPECIAL))
    made.add_tokens([AddedToken(text, normalized=False) for text in _SPACED])
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, WORDS.index(BEGIN))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="left",
        model_max_length=256,
        clean_up_tokenization_spaces=False,
    )


def new_model(words: Any, seed: int) -> Any:
    """The model with random weights. Keys begin as copies of queries: a word finds itself."""
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(seed)
    config = Lfm2Config(
        vocab_size=len(words),
        hidden_size=96,
        intermediate_size=288,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=4,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=2,
        conv_L_cache=4,
        max_position_embeddings=256,
        initializer_range=SPREAD,
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    model = Lfm2ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            if layer.is_attention_layer:
                layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)
    return model


def load(folder: str | Path = CHECKPOINT) -> tuple[Any, Any]:
    """Model and tokenizer of a checkpoint. UsageError where it is none of this world."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    again = f"make it with python -m tiny_world.pretrain -o {folder}"
    if not (Path(folder) / "config.json").is_file():
        raise UsageError(f"{folder} holds no model; {again}")
    words = AutoTokenizer.from_pretrained(folder)
    if words.get_vocab() != tokenizer().get_vocab():
        raise UsageError(f"{folder} does not fit: its words are not those of this world; {again}")
    try:
        model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"{folder} does not fit: {first}; {again}") from error
    if lost := sorted({*told["missing_keys"], *told["unexpected_keys"]}):
        raise UsageError(f"{folder} does not fit: {lost[0]} is missing or unknown; {again}")
    return model, words

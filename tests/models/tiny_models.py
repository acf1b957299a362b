"""Tiny random models of many families with a tokenizer, in folders like real models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VOCABULARY = 320
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "vocab_size": VOCABULARY,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 24,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
WINDOW = {"sliding_window": 16, "query_pre_attn_scalar": 8}
ALTERNATING = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
MAMBA = {
    "mamba_d_ssm": 32,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
}


def configurations() -> dict[str, Callable[[], Any]]:
    """Return configs of families with different kinds of layers, heads and scaling."""
    import transformers as t

    return {
        "qwen2": lambda: t.Qwen2Config(**SIZES),
        "qwen3": lambda: t.Qwen3Config(**SIZES, head_dim=8),
        "qwen3-experts": lambda: t.Qwen3MoeConfig(
            **SIZES, **EXPERTS, head_dim=8, decoder_sparse_step=1
        ),
        "llama": lambda: t.LlamaConfig(**SIZES),
        "gemma2": lambda: t.Gemma2Config(**SIZES, **WINDOW, head_dim=8),
        "gemma3": lambda: t.Gemma3TextConfig(**SIZES, **WINDOW, head_dim=8),
        "lfm2": lambda: t.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"] * 2),
        "qwen3-next": lambda: t.Qwen3NextConfig(**SIZES, **EXPERTS, **LINEAR, head_dim=8),
        # Sinks of attention, heads of values that are shorter than those of keys, chunks, and state
        # space models beside attention.
        "gpt-oss": lambda: t.GptOssConfig(
            **SIZES, **ALTERNATING, head_dim=8, num_local_experts=4, num_experts_per_tok=2
        ),
        "deepseek-v3": lambda: t.DeepseekV3Config(**(SIZES | LATENT)),
        "llama4": lambda: t.Llama4TextConfig(
            **SIZES,
            head_dim=8,
            num_local_experts=2,
            intermediate_size_mlp=48,
            attention_chunk_size=16,
        ),
        "cohere2": lambda: t.Cohere2Config(**SIZES, **ALTERNATING),
        "falcon-h1": lambda: t.FalconH1Config(**SIZES, **MAMBA),
        "granite": lambda: t.GraniteConfig(**SIZES, logits_scaling=3.0),
        "gpt2": lambda: t.GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=2048
        ),
    }


SPREAD = 0.3
LESS_SPREAD = {"qwen3-next": 0.1}
"""Standard deviation of the random weights. With larger ones, the errors of rounding in the linear
attention of Qwen3-Next exceed 1e-4 nats, with and without shared tokens."""


def make_model(family: str, seed: int = 0, config: Any = None) -> Any:
    """Return a model with random weights that are large enough for distinct predictions."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config or configurations()[family]())
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=LESS_SPREAD.get(family, SPREAD))
    return model.eval()


TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def make_tokenizer() -> Any:
    """Return a tokenizer of bytes and some merges, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|pad|>", "<|start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "<answer> </answer> <think> </think> the document of the river Paris question"
    plain.train_from_iterator([text] * 3, trainer)
    special = {"eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, **special)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save(path: Any, family: str = "qwen2", seed: int = 0) -> str:
    """Save a model in a folder like one from the hub, and return its path."""
    make_model(family, seed).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return str(path)


def naive(model: Any, request: Any) -> dict[tuple[int, int], list[float]]:
    """Return log-probabilities by definition: each pair separately, log-softmax of all rows."""
    import torch

    values = {}
    for context, response in request.wanted():
        tokens = request.responses[response]
        ids = torch.tensor([request.contexts[context] + tokens])
        with torch.no_grad():
            rows = torch.log_softmax(model(ids).logits[0].float(), -1)
        first = len(request.contexts[context]) - 1
        values[context, response] = [rows[first + t, y].item() for t, y in enumerate(tokens)]
    return values

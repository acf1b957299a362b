"""The transformers policy against plain scoring, on tiny random models of many families."""

from __future__ import annotations

import asyncio
import functools
import math
import random
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_models
import torch
import transformers

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import GenerateRequest, Policy, ScoreAnswer, ScoreRequest
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.models.transformers import tree as tree_module
from rag_rewards.models.transformers.forward import ModelForward, cache_argument
from rag_rewards.models.transformers.positions import shareable_length
from rag_rewards.models.transformers.scoring import GroupScoring
from rag_rewards.models.transformers.tree import NAME, NotInTreeError
from rag_rewards.models.trie import forward_tokens

torch.set_num_threads(1)
TOKENIZER = tiny_models.make_tokenizer()
FAMILIES = sorted(tiny_models.configurations())
IN_TREES = {"qwen2", "qwen3", "qwen3-experts", "llama", "deepseek-v3", "granite", "gpt2"}
"""Families without windows and recurrent layers."""


def tokens(count: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(3, tiny_models.VOCABULARY) for _ in range(count))


FULL = tokens(90, 1)
CONTEXTS = (FULL, FULL[:15] + FULL[40:], FULL[:50] + FULL[70:], FULL[:75])
RESPONSES = (
    (),
    tokens(1, 2),
    tokens(12, 3),
    tokens(12, 3),
    tokens(3, 3) + tokens(20, 4),
    tokens(7, 5),
    FULL[75:80],
)
GROUP = ScoreRequest(CONTEXTS, RESPONSES)


def policy(family: str = "qwen2", **options: object) -> TransformersPolicy:
    return TransformersPolicy(tiny_models.make_model(family), TOKENIZER, name=family, **options)


def answer(of: TransformersPolicy, request: ScoreRequest = GROUP) -> ScoreAnswer:
    (result,) = of.score_sync([request])
    assert isinstance(result, ScoreAnswer), result
    return result


def worst(result: ScoreAnswer, expected: dict[tuple[int, int], list[float]]) -> float:
    assert result.logprobs.keys() == expected.keys()
    gaps = [0.0]
    for pair, values in expected.items():
        assert len(result.logprobs[pair]) == len(values)
        gaps += [abs(a - b) for a, b in zip(result.logprobs[pair], values, strict=True)]
    return max(gaps)


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_scoring_has_the_values_of_plain_scoring(family):
    scorer = policy(family, prefill=32, rows=16, token_budget=300)
    result = answer(scorer)
    assert result.path == ("tree" if family in IN_TREES else "shared")
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4
    assert result.computed == forward_tokens(GROUP)
    before = scorer.usage.rows
    answer(scorer)
    assert scorer.usage.rows - before <= len(CONTEXTS) * sum(map(len, set(RESPONSES)))


def positions_in_scores() -> object:
    return transformers.BloomConfig(vocab_size=320, hidden_size=32, n_layer=2, n_head=4)


def states_alone() -> object:
    sizes = {"num_hidden_layers": 2, "state_size": 8, "num_heads": 4, "head_dim": 16}
    return transformers.Mamba2Config(vocab_size=320, hidden_size=32, n_groups=1, expand=2, **sizes)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (positions_in_scores, "shared (the tree failed its self-check: values differ"),
        (states_alone, "plain (sharing a cache failed its self-check: "),
    ],
)
def test_other_families_use_the_fastest_method_that_is_exact(config, path):
    model = tiny_models.make_model("", config=config())
    scorer = TransformersPolicy(model, TOKENIZER)
    with pytest.warns(UserWarning, match="failed its self-check"):
        result = answer(scorer)
    assert result.path.startswith(path)
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def test_a_model_without_a_known_backbone():
    model = tiny_models.make_model("qwen2")
    model.layers = model.model
    del model.model
    with pytest.raises(UsageError, match="Qwen2ForCausalLM has no module 'model' that computes"):
        TransformersPolicy(model, TOKENIZER)


@pytest.mark.parametrize("options", [{}, {"prefill": 7}, {"rows": 3}, {"token_budget": 256}])
def test_sizes_do_not_change_values(options):
    scorer = policy(**options)
    assert worst(answer(scorer), tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_contexts_beyond_a_window_copy_the_cache():
    """A window that reaches over the whole sequence does not matter."""
    config = tiny_models.configurations()["gemma3"]()
    config.sliding_window = 100
    model = tiny_models.make_model("gemma3", config=config)
    scorer = TransformersPolicy(model, TOKENIZER)
    short = ScoreRequest((FULL[:60], FULL[:30]), RESPONSES)
    for request, path in ((short, "tree"), (GROUP, "shared")):
        result = answer(scorer, request)
        assert result.path == path
        assert worst(result, tiny_models.naive(model, request)) < 1e-4
    assert model.config._attn_implementation != NAME


def long_rope() -> object:
    import transformers

    sizes = {**tiny_models.SIZES, "original_max_position_embeddings": 64}
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64}
    return transformers.Phi3Config(**sizes, rope_parameters=rope | factors)


def test_positions_that_depend_on_the_length_of_the_sequence():
    model = tiny_models.make_model("phi3", config=long_rope())
    scorer = TransformersPolicy(model, TOKENIZER, prefill=16)
    short = ScoreRequest((FULL[:40], FULL[:20]), (tokens(24, 3), tokens(7, 5)))
    result = answer(scorer, short)
    assert (result.path, result.computed) == ("tree", forward_tokens(short))
    assert worst(result, tiny_models.naive(model, short)) < 1e-4
    with pytest.warns(UserWarning, match="plain for sequences of more than 64 tokens"):
        result = answer(scorer)
    assert (result.path, result.reused) == ("plain", 0)
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def dynamic_rope() -> object:
    import transformers

    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    sizes = {**tiny_models.SIZES, "max_position_embeddings": 64}
    return transformers.LlamaConfig(**sizes, rope_parameters=rope)


@pytest.mark.filterwarnings("ignore:.*plain for sequences of more than 64 tokens")
@pytest.mark.parametrize(("family", "config"), [("phi3", long_rope), ("llama", dynamic_rope)])
def test_positions_do_not_depend_on_the_sequences_before(family, config):
    """The values are those of a model that has scored no other sequence."""
    scorer = TransformersPolicy(tiny_models.make_model(family, config=config()), TOKENIZER)
    for length in (80, 30, 59, 58, 57, 90, 60, 80):
        request = ScoreRequest((FULL[:length],), (RESPONSES[4][:6], RESPONSES[2]))
        for number in range(2):
            pair = replace(request, pairs=((0, number),))
            expected = tiny_models.naive(tiny_models.make_model(family, config=config()), pair)
            assert worst(answer(scorer, pair), expected) < 1e-4
            both = answer(scorer, request).logprobs[0, number]
            assert list(both) == pytest.approx(expected[0, number], abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*plain for sequences of more than 64 tokens")
@pytest.mark.parametrize(("family", "config"), [("phi3", long_rope), ("llama", dynamic_rope)])
@pytest.mark.parametrize("before", [0, 75, 30])
def test_scoring_does_not_change_later_values_of_the_model(family, config, before):
    def run(model, length):
        with torch.no_grad():
            return model(torch.tensor([FULL[:length]])).logits

    models = [tiny_models.make_model(family, config=config()) for _ in range(2)]
    for model in models if before else ():
        run(model, before)
    scorer = TransformersPolicy(models[0], TOKENIZER)
    answer(scorer)  # has longer sequences
    scorer.generate_sync([GenerateRequest(FULL, max_tokens=3)])
    for length in (70, 20, 80):
        assert torch.equal(run(models[0], length), run(models[1], length))


@pytest.mark.parametrize("plain", [False, True])
def test_sequences_with_encodings_of_their_length_cause_a_warning(plain):
    model = tiny_models.make_model("llama", config=dynamic_rope())
    scorer = TransformersPolicy(model, TOKENIZER, plain=plain)
    answer(scorer, ScoreRequest((FULL[:40],), (tokens(12, 3),)))
    with pytest.warns(UserWarning, match="shorten the contexts, or use a model with fixed enc"):
        answer(scorer)


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ({"rope_type": "default"}, float("inf")),
        ({"rope_type": "yarn", "factor": 4.0}, float("inf")),
        ({"rope_type": "dynamic", "factor": 4.0}, 4096),
    ],
)
def test_shareable_length(rope, length):
    config = tiny_models.configurations()["llama"]()
    config.rope_parameters = {"rope_theta": 1e4, **rope}
    assert shareable_length(tiny_models.make_model("llama", config=config)) == length
    config.rope_parameters = {"full_attention": {"rope_theta": 1e4, **rope}}
    assert shareable_length(SimpleNamespace(config=config)) == length


def layers_without_all_keys(model: object) -> None:
    model.config.layer_types = ["indexed_attention"] * 4


def attention_with_indices(model: object) -> None:
    attention = model.model.layers[1].self_attn
    attention.forward = functools.partial(attention.forward, indices=torch.arange(3))


def attention_with_a_mask(model: object) -> None:
    attention = model.model.layers[1].self_attn
    mask = torch.zeros(1, 1, 1, 1)
    forward = attention.forward
    attention.forward = lambda *args, **options: forward(
        *args, **{**options, "attention_mask": mask}
    )


@pytest.mark.parametrize(
    "change", [layers_without_all_keys, attention_with_indices, attention_with_a_mask]
)
def test_attention_that_may_differ_for_long_sequences_is_not_in_the_tree(change):
    """The sequences of the self-check are too short to show the difference."""
    scorer = policy("qwen2")
    assert answer(scorer).path == "tree"
    before = scorer.model.config._attn_implementation
    change(scorer.model)
    with pytest.raises(NotInTreeError), scorer._forward.inference():
        GroupScoring(scorer._forward, 999, 64, 64).score("tree", [GROUP])
    assert scorer.model.config._attn_implementation == before


def test_requests_without_pairs_have_no_values():
    scorer = policy()
    for request in (ScoreRequest((FULL,), ()), ScoreRequest((FULL,), RESPONSES, pairs=())):
        result = answer(scorer, request)
        assert (result.logprobs, result.computed) == ({}, 0)


def test_small_requests_run_together(monkeypatch):
    scorer = policy(prefill=512)
    requests = [ScoreRequest((FULL[: 20 + i],), (tokens(6, i), tokens(3, i))) for i in range(12)]
    requests.insert(3, ScoreRequest(((),), ((5,),)))
    alone = [answer(policy(), r).logprobs if all(r.contexts) else None for r in requests]
    calls = []
    run = ModelForward.run_step
    monkeypatch.setattr(
        ModelForward, "run_step", lambda self, t, *more: calls.append(t) or run(self, t, *more)
    )
    answer(scorer, requests[0])
    calls.clear()
    together = scorer.score_sync(requests[4:])
    assert len(calls) == 1
    for result, expected in zip(together, alone[4:], strict=True):
        assert worst(result, expected) < 1e-5
    with_fault = scorer.score_sync(requests)
    assert [isinstance(result, BackendError) for result in with_fault] == [
        i == 3 for i in range(13)
    ]


@pytest.mark.parametrize("family", ["granite", "gemma2", "gpt2"])
@pytest.mark.parametrize("size", [1, 7, 100, 320])
def test_slices_of_the_vocabulary_do_not_change_values(family, size):
    scorer = policy(family)
    scorer._forward.vocabulary.slice = size
    assert worst(answer(scorer), tiny_models.naive(scorer.model, GROUP)) < 1e-4
    assert scorer._forward.vocabulary.slice == size


@pytest.mark.parametrize("offset", [-300.0, 300.0])
def test_logits_that_are_far_from_those_of_the_first_slice(offset):
    """exp(300) and exp(−300) are not numbers of float32."""
    model = tiny_models.make_model("granite")
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(tiny_models.VOCABULARY))
    model.lm_head.bias.data[:100] = offset * model.config.logits_scaling
    scorer = TransformersPolicy(model, TOKENIZER)
    scorer._forward.vocabulary.slice = 50
    result = answer(scorer)
    assert (scorer._forward.vocabulary.slice, result.path) == (50, "tree")
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def test_logits_of_minus_infinity():
    """A model can exclude tokens, also a whole slice of them."""
    model = tiny_models.make_model("llama")
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(tiny_models.VOCABULARY))
    model.lm_head.bias.data[-70:] = -torch.inf
    model.lm_head.bias.data[50] = -torch.inf
    kept = [token for token in range(tiny_models.VOCABULARY - 70) if token != 50]
    seed = random.Random(0)
    contexts = tuple(tuple(seed.choices(kept, k=length)) for length in (30, 20))
    request = ScoreRequest(contexts, tuple(tuple(seed.choices(kept, k=9)) for _ in range(3)))
    scorer = TransformersPolicy(model, TOKENIZER)
    scorer._forward.vocabulary.slice = 50
    assert worst(answer(scorer, request), tiny_models.naive(model, request)) < 1e-4
    assert scorer._forward.vocabulary.slice == 50


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("slice_", [50, None])
def test_a_first_token_far_below_the_others(low, slice_):
    """A model can exclude tokens by a large negative number, also the first one of a slice."""
    model = tiny_models.make_model("llama")
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(tiny_models.VOCABULARY))
    model.lm_head.bias.data[[0, 50, 100]] = low
    seed = random.Random(0)
    request = ScoreRequest((FULL,), (tuple(seed.choices(range(101, 200), k=9)),))
    scorer = TransformersPolicy(model, TOKENIZER, float32_logits=True)
    scorer._forward.vocabulary.slice = slice_
    assert worst(answer(scorer, request), tiny_models.naive(model, request)) < 1e-4
    assert (scorer._forward.vocabulary.slice, scorer._note) == (slice_, "")


def test_a_token_without_a_logit():
    """The head of some models is smaller than their embeddings."""
    scorer = policy("llama")
    answer(scorer)
    vocabulary = scorer._forward.vocabulary
    last = tiny_models.VOCABULARY - 1
    hidden = torch.zeros(1, vocabulary._head.weight.shape[1])
    uniform = -math.log(tiny_models.VOCABULARY)
    with torch.no_grad():
        values = vocabulary.logprobs(hidden, [0, 0], [last, last + 1], 4)
    assert list(values) == pytest.approx([uniform, -math.inf])


def test_a_head_with_a_hook_that_is_added_later():
    scorer = policy("llama")
    answer(scorer)
    hook = scorer.model.lm_head.register_forward_hook(lambda head, _, logits: logits * 0.5)
    assert worst(answer(scorer), tiny_models.naive(scorer.model, GROUP)) < 1e-4
    hook.remove()
    assert worst(answer(scorer), tiny_models.naive(scorer.model, GROUP)) < 1e-4


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_of_the_head_that_is_added_later():
    peft = pytest.importorskip("peft")
    model = tiny_models.make_model("llama")
    scorer, exact = (
        TransformersPolicy(model, TOKENIZER),
        TransformersPolicy(model, TOKENIZER, float32_logits=True),
    )
    for each in (scorer, exact):
        answer(each)
    config = peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    peft.get_peft_model(model, config)
    assert worst(answer(scorer), tiny_models.naive(model, GROUP)) < 1e-4
    with pytest.raises(UsageError, match="an adapter on the output layer"):
        exact.score_sync([GROUP])


@pytest.mark.parametrize(("family", "is_product"), [("llama", True), ("granite", False)])
def test_a_head_without_scaling_needs_no_forward_pass_of_the_model(family, is_product):
    scorer = policy(family)
    answer(scorer)
    passes = []
    scorer.model.register_forward_hook(lambda *_: passes.append(1))
    result = answer(scorer)
    assert (not passes) == is_product
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


@pytest.mark.parametrize("rows", [1, 4, 300, 1_000])
def test_logits_do_not_depend_on_the_number_of_rows_at_a_time(rows):
    """Few and many rows have logits in different orders in memory."""
    scorer = policy("gpt2", rows=rows)
    request = ScoreRequest((FULL, FULL[:40]), tuple(tokens(90, seed) for seed in range(4)))
    assert worst(answer(scorer, request), tiny_models.naive(scorer.model, request)) < 1e-4


def test_a_head_that_slices_change_is_used_as_a_whole():
    """A head that normalizes its logits depends on all of them."""
    model = tiny_models.make_model("granite")

    def centered(head, inputs, logits):
        return logits - logits.amax(-1, keepdim=True) * 0.5

    model.lm_head.register_forward_hook(centered)
    scorer = TransformersPolicy(model, TOKENIZER)
    scorer._forward.vocabulary.slice = 50
    with pytest.warns(UserWarning, match="slices of the head failed their self-check"):
        result = answer(scorer)
    assert result.path.startswith("tree (whole vocabulary, since slices of the head failed")
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4
    assert result.reused > 0


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_on_the_head_uses_the_whole_head():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    model = peft.get_peft_model(tiny_models.make_model("llama"), config).eval()
    scorer = TransformersPolicy(model, TOKENIZER)
    assert scorer._forward.vocabulary.slice is None
    assert worst(answer(scorer), tiny_models.naive(model, GROUP)) < 1e-4


class Int8Head(torch.nn.Linear):
    """A head with weights of eight bits, as libraries for quantization define them."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__(head.in_features, head.out_features, bias=False)
        self.scale = head.weight.detach().abs().amax() / 127
        levels = (head.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = torch.nn.Parameter(levels, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ (self.weight.float() * self.scale).t()


class PackedHead(torch.nn.Module):
    """A head whose weights are not a tensor, as in `torch.ao.nn.quantized`."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.inner = Int8Head(head)

    def weight(self) -> torch.Tensor:
        return self.inner.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden)


def test_a_quantized_head_is_used_as_a_whole():
    model = tiny_models.make_model("llama")
    model.lm_head = Int8Head(model.lm_head)
    scorer = TransformersPolicy(model, TOKENIZER)
    assert scorer._forward.vocabulary.slice is None
    result = answer(scorer)
    assert result.path == "tree"
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def test_a_head_without_a_tensor_of_weights_uses_the_forward_pass_of_the_model():
    model = tiny_models.make_model("llama")
    model.lm_head = PackedHead(model.lm_head)
    scorer = TransformersPolicy(model, TOKENIZER)
    with pytest.warns(UserWarning, match="the head alone failed its self-check"):
        result = answer(scorer)
    assert result.path.startswith("plain (whole logits, since the head alone failed")
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def test_a_head_with_the_weights_of_the_embeddings():
    config = tiny_models.configurations()["llama"]()
    config.tie_word_embeddings = True
    model = tiny_models.make_model("llama", config=config)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    scorer = TransformersPolicy(model, TOKENIZER)
    scorer._forward.vocabulary.slice = 50
    result = answer(scorer)
    assert result.path == "tree"
    assert scorer._forward.vocabulary._is_product
    assert worst(result, tiny_models.naive(model, GROUP)) < 1e-4


def test_plain_scoring_on_request():
    scorer = policy(plain=True)
    result = answer(scorer)
    assert (result.path, result.reused) == ("plain", 0)
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_only_requested_pairs():
    request = ScoreRequest(CONTEXTS, RESPONSES, pairs=((2, 4), (0, 4), (0, 1)))
    scorer = policy()
    assert worst(answer(scorer, request), tiny_models.naive(scorer.model, request)) < 1e-4


def test_a_wrong_cache_causes_plain_scoring(monkeypatch):
    scorer = policy("gemma2")

    def forgetful(cache, rows):
        from transformers import DynamicCache

        return DynamicCache(config=scorer.model.config)

    monkeypatch.setattr("rag_rewards.models.transformers.scoring.copy_cache", forgetful)
    with pytest.warns(UserWarning, match="failed its self-check"):
        result = answer(scorer)
    assert result.path.startswith("plain (sharing a cache failed its self-check: values differ")
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_a_wrong_tree_causes_copies_of_the_cache(monkeypatch):
    """A kernel of a device can have another convention for log Σ exp, or fail."""
    module = "rag_rewards.models.transformers.tree._attention"
    attention = tree_module._attention

    def base_two(*args):
        output, total = attention(*args)
        return output, total / math.log(2)

    def missing(*args):
        raise RuntimeError("no kernel image is available")

    for change, reason in ((base_two, "values differ"), (missing, "no kernel image")):
        monkeypatch.setattr(module, change)
        scorer = policy()
        with pytest.warns(UserWarning, match="the tree failed its self-check"):
            result = answer(scorer)
        assert result.path.startswith("shared (the tree failed its self-check: ")
        assert reason in result.path
        assert result.reused > 0
        assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_a_kernel_that_fails_for_long_sequences_only(monkeypatch):
    """The self-check is too short to find it."""
    attention = tree_module._attention

    def short(query, key, *args):
        if key.shape[2] > 64:
            raise RuntimeError("too many keys")
        return attention(query, key, *args)

    monkeypatch.setattr(tree_module, "_attention", short)
    scorer = policy()
    with pytest.warns(UserWarning, match="qwen2: tree failed: RuntimeError: too many keys"):
        result = answer(scorer)
    assert result.path == "shared (tree failed: RuntimeError: too many keys)"
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4
    assert result.reused > 0
    few = ScoreRequest((FULL[:20],), RESPONSES)
    assert answer(scorer, few).path == "tree"


def test_a_wrong_head_causes_whole_logits():
    scorer = policy()
    scorer._forward.backbone = torch.nn.Identity()
    with pytest.warns(UserWarning, match="the head alone failed"):
        result = answer(scorer)
    assert result.path.startswith("plain (whole logits, since the head alone failed")
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_a_model_in_training_is_restored():
    scorer = policy()
    expected = tiny_models.naive(scorer.model, GROUP)
    scorer.model.train()
    scorer.model.model.norm.eval()
    assert worst(answer(scorer), expected) < 1e-4
    assert scorer.model.training
    assert not scorer.model.model.norm.training
    assert "forward" not in vars(scorer.model.model)
    assert all(p.grad is None and p.requires_grad for p in scorer.model.parameters())
    loss = scorer.model(torch.tensor([FULL]), labels=torch.tensor([FULL])).loss
    loss.backward()  # what scoring left behind does not stand in the way of training


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_an_adapter_in_training_with_gradient_checkpointing():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = peft.get_peft_model(tiny_models.make_model("qwen2"), config)
    expected = tiny_models.naive(model.eval(), GROUP)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model.train()
    before = model.get_base_model().config._attn_implementation
    scorer = TransformersPolicy(model, TOKENIZER, prefill=32)
    result = answer(scorer)
    assert result.path == "tree"
    assert worst(result, expected) < 1e-4
    assert model.training
    assert model.get_base_model().config._attn_implementation == before
    model(torch.tensor([FULL]), labels=torch.tensor([FULL])).loss.backward()


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
def test_an_interrupted_forward_pass_restores_the_model(monkeypatch, family):
    scorer = policy(family)
    expected = answer(scorer)
    before = scorer.model.config._attn_implementation
    last = scorer.model.model.layers[-1]

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(last, "forward", interrupted)
        scorer.model.train()
        with pytest.raises(KeyboardInterrupt):
            scorer.score_sync([GROUP])
    assert scorer.model.training
    assert scorer.model.config._attn_implementation == before
    assert not {"forward"} & vars(scorer.model.model).keys()
    assert answer(scorer) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_use_the_tree(dtype):
    model = tiny_models.make_model("qwen2").to(dtype)
    scorer = TransformersPolicy(model, TOKENIZER, prefill=32)
    result = answer(scorer)
    assert result.path == "tree"
    tolerance = {torch.bfloat16: 0.5, torch.float16: 0.1, torch.float64: 1e-5}[dtype]
    assert worst(result, tiny_models.naive(model, GROUP)) < tolerance


def test_bfloat16_and_float32_logits():
    exact = tiny_models.naive(tiny_models.make_model("qwen2"), GROUP)
    model = tiny_models.make_model("qwen2").to(torch.bfloat16)
    rough = TransformersPolicy(model, TOKENIZER)
    fine = TransformersPolicy(model, TOKENIZER, float32_logits=True)
    assert rough.precision == "bfloat16"
    assert fine.precision == "bfloat16+float32 logits"
    assert rough.fingerprint != fine.fingerprint
    plain = TransformersPolicy(model, TOKENIZER, plain=True)
    same = {pair: list(values) for pair, values in answer(plain).logprobs.items()}
    assert worst(answer(rough), same) < 0.5
    assert worst(answer(fine), exact) < 1.0
    assert "forward" not in vars(model.get_output_embeddings())


def test_new_weights_have_their_version():
    scorer = policy()
    scorer.weight_version = 1
    before, old = answer(scorer), scorer.fingerprint
    other = tiny_models.make_model("qwen2", seed=1)
    scorer.refresh(other.state_dict(), version=2)
    after = answer(scorer)
    assert (before.weight_version, after.weight_version) == (1, 2)
    assert scorer.fingerprint != old
    assert worst(after, tiny_models.naive(other, GROUP)) < 1e-4
    with pytest.raises(UsageError, match=r"weights that the model does not have: no\.such"):
        scorer.refresh({"no.such": torch.zeros(1)}, version=3)
    assert answer(scorer).weight_version == 2


def test_new_weights_reach_the_float32_head():
    scorer = TransformersPolicy(
        tiny_models.make_model("granite").to(torch.bfloat16), TOKENIZER, float32_logits=True
    )
    before = answer(scorer)
    new = {name: tensor * 0.5 for name, tensor in scorer.model.state_dict().items()}
    scorer.refresh(new, version=2)
    assert answer(scorer).logprobs[0, 2] != before.logprobs[0, 2]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_a_lora_adapter_affects_values_and_fingerprint(tmp_path):
    peft = pytest.importorskip("peft")
    path = tiny_models.save(tmp_path / "base")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    adapted = peft.get_peft_model(tiny_models.make_model("qwen2"), config)
    adapted.save_pretrained(str(tmp_path / "adapter"))
    plain = TransformersPolicy.load(path, dtype="float32", device="cpu")
    with_adapter = TransformersPolicy.load(
        path, dtype="float32", device="cpu", adapter=str(tmp_path / "adapter")
    )
    assert plain.fingerprint != with_adapter.fingerprint
    result = answer(with_adapter)
    assert result.path == "tree"
    assert worst(result, tiny_models.naive(adapted.eval(), GROUP)) < 1e-4
    with pytest.raises(UsageError, match="none cannot be loaded: "):
        TransformersPolicy.load(path, device="cpu", adapter=str(tmp_path / "none"))


def test_a_layer_of_another_model_is_scored_by_a_method_that_passes_the_self_check():
    scorer = policy()
    assert answer(scorer).path == "tree"
    # Its own configuration does not choose the attention of the tree.
    scorer.model.model.layers[0] = tiny_models.make_model("qwen2", seed=1).model.layers[0]
    with pytest.warns(UserWarning, match="the tree failed its self-check"):
        result = answer(scorer)
    assert worst(result, tiny_models.naive(scorer.model, GROUP)) < 1e-4


def test_the_argument_for_the_cache_is_that_of_the_model():
    class Old(torch.nn.Module):
        def forward(self, input_ids=None, past_key_values=None, use_cache=None): ...

    class New(torch.nn.Module):
        def forward(self, input_ids=None, cache=None, use_cache=None): ...

    assert [cache_argument(Old()), cache_argument(New())] == ["past_key_values", "cache"]


def test_equal_weights_have_equal_fingerprints(tmp_path):
    path = tiny_models.save(tmp_path / "m")
    loaded = TransformersPolicy.load(path, dtype="float32", device="cpu")
    assert loaded.fingerprint == TransformersPolicy.load(path, device="cpu").fingerprint
    assert loaded.fingerprint.startswith("transformers m float32 ")
    assert loaded.max_length == 4096
    assert isinstance(loaded, Policy)
    other = tiny_models.save(tmp_path / "n" / "m", seed=1)
    assert loaded.fingerprint != TransformersPolicy.load(other, device="cpu").fingerprint


def test_the_self_check_passes():
    asyncio.run(policy().selfcheck())


def test_unusable_models_are_rejected():
    with pytest.raises(UsageError, match="dtype must be one of"):
        TransformersPolicy.load("x", dtype="int4")
    small = tiny_models.configurations()["qwen2"]()
    small.vocab_size = 100
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(small)
    with pytest.raises(UsageError, match="the tokenizer does not fit the model"):
        TransformersPolicy(model, TOKENIZER)
    sharded = tiny_models.make_model("qwen2")
    next(sharded.parameters()).ds_id = 0
    with pytest.raises(UsageError, match="the weights are sharded"):
        TransformersPolicy(sharded, TOKENIZER)


def test_one_bad_request_fails_alone():
    scorer = policy()
    good, bad = scorer.score_sync([GROUP, ScoreRequest(((),), ((5,),))])
    assert isinstance(good, ScoreAnswer)
    assert isinstance(bad, BackendError)
    assert "context 0 is empty" in str(bad)


@pytest.mark.parametrize("odd", [-100, tiny_models.VOCABULARY])
def test_invalid_token_ids_fail_alone(odd):
    scorer = policy()
    bad = ScoreRequest((FULL,), ((5, 6, odd),))
    good, broken = scorer.score_sync([GROUP, bad])
    assert isinstance(good, ScoreAnswer)
    assert f"token id {odd} is not in the vocabulary of the model (0 to 319)" in str(broken)
    requests = [GenerateRequest(FULL), GenerateRequest((*FULL[1:], odd))]
    continuation, refused = scorer.generate_sync(requests)
    assert continuation.text
    assert f"token id {odd}" in str(refused)


def test_a_trained_model_is_scored_with_its_new_weights():
    model = tiny_models.make_model("granite").to(torch.bfloat16)
    scorer = TransformersPolicy(model, TOKENIZER, float32_logits=True)
    before, old = answer(scorer), scorer.fingerprint
    with torch.no_grad():
        model.lm_head.weight.mul_(3.0)
    assert answer(scorer).logprobs[0, 2] != before.logprobs[0, 2]
    assert scorer.fingerprint != old


def test_the_autocast_around_a_model_is_ignored():
    scorer = policy()
    model = scorer.model
    expected = tiny_models.naive(model, GROUP)
    model._original_forward = model.forward
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    result = answer(scorer)
    assert (result.path, scorer.precision) == ("tree", "float32")
    assert worst(result, expected) < 1e-4
    assert vars(model)["forward"] is not model._original_forward


def test_values_that_are_not_finite_are_an_error():
    scorer = policy()
    answer(scorer)
    with torch.no_grad():
        scorer.model.model.norm.weight[0] = float("nan")
    (result,) = scorer.score_sync([GROUP])
    assert isinstance(result, BackendError)
    assert "not finite" in str(result)


METHODS = pytest.mark.parametrize(("family", "method"), [("qwen2", "run_step"), ("gemma2", "run")])
"""A family whose keys are stored once, and one that copies its cache, with what runs tokens."""


@METHODS
def test_exhausted_memory_halves_the_budget(monkeypatch, family, method):
    scorer = policy(family, token_budget=4096)
    expected = tiny_models.naive(scorer.model, GROUP)
    run = getattr(ModelForward, method)

    def hungry(self, *arguments):
        if scorer.token_budget > 1024:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return run(self, *arguments)

    answer(scorer)
    monkeypatch.setattr(ModelForward, method, hungry)
    with pytest.warns(UserWarning, match="continuing with a token budget of"):
        result = answer(scorer)
    assert (scorer.token_budget, scorer.prefill) == (1024, 512)
    assert worst(result, expected) < 1e-4


@METHODS
def test_insufficient_memory_is_an_error_of_the_group(monkeypatch, family, method):
    scorer = policy(family, token_budget=512)
    answer(scorer)

    def full(self, *arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ModelForward, method, full)
    with pytest.warns(UserWarning, match="out of memory"):
        (result,) = scorer.score_sync([GROUP])
    assert isinstance(result, BackendError)
    assert "out of memory with a token budget of 256" in str(result)
    assert scorer.token_budget == 512  # what one group needs does not slow the others
    assert result.__traceback__ is None


def test_concurrent_calls_run_one_after_the_other():
    scorer = policy()
    expected = answer(scorer)
    results: list[ScoreAnswer] = []
    threads = [threading.Thread(target=lambda: results.append(answer(scorer))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.logprobs for result in results] == [expected.logprobs] * 4


# --- generating --------------------------------------------------------------------------------


def generate(of: TransformersPolicy, *requests: GenerateRequest):
    return of.generate_sync(requests)


def greedy(model, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the most probable next tokens, one at a time, by definition."""
    continuation: tuple[int, ...] = ()
    with torch.no_grad():
        while len(continuation) < count:
            token = int(model(torch.tensor([prompt + continuation])).logits[0, -1].argmax())
            if token == 2:
                break
            continuation += (token,)
    return continuation


@pytest.mark.parametrize("family", ["qwen2", "gemma2", "lfm2"])
def test_greedy_generation_selects_the_most_probable_tokens(family):
    scorer = policy(family)
    prompts = [tokens(12, 1), tokens(12, 2), tokens(20, 3)]
    result = generate(scorer, *(GenerateRequest(prompt, max_tokens=10) for prompt in prompts))
    assert [f.token_ids for f in result] == [greedy(scorer.model, p, 10) for p in prompts]
    assert {f.finish_reason for f in result} <= {"stop", "length"}


LENGTHS = (12, 3, 40, 40, 25, 12, 1, 33)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_different_lengths_are_generated_together(family, monkeypatch):
    """The continuations are those of each prompt alone, whose batch has no padding."""
    scorer = policy(family, token_budget=4 * 60)
    requests = [
        GenerateRequest(tokens(length, seed), max_tokens=8 + 4 * (seed % 2), stop=("zz",))
        for seed, length in enumerate(LENGTHS)
    ]
    alone = [generate(scorer, request)[0] for request in requests]
    widths = []
    run = scorer.model.generate
    monkeypatch.setattr(
        scorer.model, "generate", lambda ids, **more: widths.append(ids.shape) or run(ids, **more)
    )
    together = generate(scorer, *requests)
    assert together == generate(scorer, *requests)
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert together == alone
    assert [tuple(width) for width in widths[-2:]] == [(4, 40), (4, 40)]


def test_padding_that_a_model_reads_separates_prompts_by_their_lengths(monkeypatch):
    scorer = policy("qwen2")
    run = scorer.model.generate

    def unmasked(ids, attention_mask, **options):
        return run(ids, attention_mask=torch.ones_like(attention_mask), **options)

    monkeypatch.setattr(scorer.model, "generate", unmasked)
    prompts = [tokens(length, seed) for seed, length in enumerate(LENGTHS)]
    requests = [GenerateRequest(prompt, max_tokens=6) for prompt in prompts]
    with pytest.warns(UserWarning, match="prompts of the same length together: padded values"):
        result = generate(scorer, *requests)
    assert [each.token_ids for each in result] == [greedy(scorer.model, p, 6) for p in prompts]


def test_a_model_without_numbers_generates_nothing():
    model = tiny_models.make_model("qwen2")
    scorer = TransformersPolicy(model, TOKENIZER)
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    requests = [GenerateRequest(tokens(length, 0), max_tokens=4) for length in (5, 9)]
    for count in (1, 2):
        answers = generate(scorer, *requests[:count])
        assert [str(answer) for answer in answers] == [
            "the logits of the model are not numbers (NaN)"
        ] * count


def test_positions_that_depend_on_the_length_have_no_padding():
    """Beyond the original length, padding would change the positions of shorter prompts."""
    config = long_rope()
    scorer = TransformersPolicy(tiny_models.make_model("phi3", config=config), TOKENIZER)
    prompts = [tokens(length, length) for length in (20, 55, 61, 90)]
    requests = [GenerateRequest(prompt, max_tokens=6) for prompt in prompts]
    alone = [generate(scorer, request)[0] for request in requests]
    assert generate(scorer, *requests) == alone


def test_generation_ends_before_a_stop_string():
    scorer = policy()
    prompt = tokens(12, 1)
    (whole,) = generate(scorer, GenerateRequest(prompt, max_tokens=30))
    stop = whole.text[3:6]
    (cut,) = generate(scorer, GenerateRequest(prompt, max_tokens=30, stop=(stop,)))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"


def test_sampling_depends_on_the_seed_only():
    scorer = policy()
    request = GenerateRequest(tokens(12, 1), max_tokens=12, temperature=1.0, seed=7)
    before = torch.random.get_rng_state()
    first, again = generate(scorer, request), generate(scorer, request)
    other = generate(scorer, GenerateRequest(request.prompt, 12, 1.0, (), 8))
    assert first == again
    assert first != other
    assert torch.equal(before, torch.random.get_rng_state())


def test_sampling_from_the_most_likely_tokens():
    scorer, prompt = policy(), tokens(12, 1)
    (greedy,) = generate(scorer, GenerateRequest(prompt, max_tokens=12))
    sampled = GenerateRequest(prompt, max_tokens=12, temperature=1.0, seed=7, top_p=1e-6)
    assert generate(scorer, sampled)[0].token_ids == greedy.token_ids
    everything = replace(sampled, top_p=1.0)
    assert generate(scorer, everything)[0].token_ids != greedy.token_ids


def test_generation_ignores_the_defaults_of_the_model():
    plain, scorer = policy(), policy()
    own = scorer.model.generation_config
    own.repetition_penalty, own.top_p, own.top_k, own.num_beams = 3.0, 0.01, 1, 1
    own.do_sample, own.temperature = True, 0.7
    greedily = GenerateRequest(tokens(12, 1), max_tokens=12)
    sampled = GenerateRequest(tokens(12, 1), max_tokens=12, temperature=1.0, seed=3)
    for request in (greedily, sampled):
        assert generate(scorer, request) == generate(plain, request)
    assert scorer.model.generation_config is own


def test_a_failed_generation_fails_alone(monkeypatch):
    scorer = policy()
    real = scorer.model.generate

    def picky(ids, **options):
        if (ids[:, 0] == 7).any():
            raise RuntimeError("out of memory")
        return real(ids, **options)

    monkeypatch.setattr(scorer.model, "generate", picky)
    prompts = [(start, *tokens(9, 1)) for start in (5, 6, 7, 8)]
    result = generate(scorer, *(GenerateRequest(prompt, max_tokens=3) for prompt in prompts))
    assert [isinstance(each, BackendError) for each in result] == [False, False, True, False]

"""Attention to shared keys by the kernels of each device, against its definition.

The kernels of a GPU run as doubles (see `attention_doubles`), whose contract is tested as well.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch.nn.attention.varlen", reason="torch is older than 2.10")
pytest.importorskip("transformers", reason="transformers is not installed")

import attention_doubles
import read_flashinfer
import tiny_models
import torch
import transformers
from torch.nn.attention import varlen

from rag_rewards.errors import MissingExtraError, UsageError
from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest
from rag_rewards.models.runs import Plan, Run, Step, steps
from rag_rewards.models.transformers import (
    TransformersPolicy,
    ragged_attention,
    tree_attention,
)
from rag_rewards.models.transformers.attention_kernels import NotInTreeError
from rag_rewards.models.transformers.flashinfer_attention import FlashInferAttention
from rag_rewards.models.transformers.forward import ModelForward, PolicyUsage
from rag_rewards.models.transformers.padded_attention import PaddedAttention
from rag_rewards.models.transformers.ragged_attention import RaggedAttention, can_be_ragged
from rag_rewards.models.transformers.tree_attention import TreeAttention, attention_in_tree

has_ragged_attention = pytest.mark.skipif(
    not ragged_attention._is_in_torch(), reason="torch is older than 2.12"
)
KERNELS = {
    "padded": PaddedAttention,
    "ragged": RaggedAttention,
    "flashinfer": FlashInferAttention,
}
IN_TREES = ("qwen2", "qwen3", "qwen3-experts", "llama", "deepseek-v3", "granite", "gpt2")
CONTEXT = tuple(range(3, 83))
GROUP = ScoreRequest(
    (CONTEXT, CONTEXT[:20] + CONTEXT[40:], CONTEXT[:50]),
    (tuple(range(100, 130)), (*range(100, 105), *range(140, 150)), (7,), tuple(range(200, 209))),
)


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch):
    """A kernel by its name, on doubles where it needs a GPU."""
    monkeypatch.setattr(varlen, "varlen_attn", attention_doubles.varlen_attn)
    monkeypatch.setitem(sys.modules, "flashinfer", attention_doubles.FlashInfer)
    return KERNELS[request.param]


def projections(rows: int, keys: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return query, key and value of 4 heads of which 2 share keys, as a model provides them."""
    generator = torch.Generator().manual_seed(rows)
    sizes = ((rows, 4, 16), (keys, 2, 16), (keys, 2, 16))
    return [
        torch.randn(size, generator=generator, dtype=dtype).transpose(0, 1)[None] for size in sizes
    ]


def definition(query, key, value, causal, scale):
    output, total = attention_doubles.by_definition(
        *(part[0].transpose(0, 1) for part in (query, key, value)), causal, scale
    )
    return output.transpose(0, 1)[None].float(), total.t()[None]


def close(result, expected, tolerance=1e-5):
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert (one - other).abs().max() < tolerance


@pytest.mark.parametrize("lengths", [(5,), (4, 4, 4), (7, 1, 3, 300, 2), (260, 260, 9)])
def test_attention_within_runs(kernel, lengths):
    attention = kernel()
    for scale in (0.25, 0.5):  # layers can have different scales
        starts = list(itertools.accumulate(lengths, initial=0))
        query, key, value = projections(starts[-1], starts[-1])
        runs = tuple(Run(0, [0] * length) for length in lengths)
        output, total = attention.to_runs(runs, query, key, value, scale)
        for start, stop in itertools.pairwise(starts):
            own = [part[:, :, start:stop] for part in (query, key, value)]
            expected = definition(*own, True, scale)
            close((output[:, :, start:stop], total[:, :, start:stop]), expected)


def test_runs_of_the_next_step(kernel):
    """A kernel prepares for the runs of a step once, and again for those of the next one."""
    attention = kernel()
    for lengths in ((6, 2), (3, 5), (8,)):
        runs = tuple(Run(0, [0] * length) for length in lengths)
        rows = projections(8, 8)
        for _ in range(2):
            output, _ = attention.to_runs(runs, *rows, 0.25)
            first = [part[:, :, : lengths[0]] for part in rows]
            close([output[:, :, : lengths[0]]], definition(*first, True, 0.25)[:1])


def test_flashinfer_plans_once_for_all_layers_of_a_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", attention_doubles.FlashInfer)
    wrapper = attention_doubles.FlashInfer.BatchPrefillWithRaggedKVCacheWrapper
    attention, before = FlashInferAttention(), wrapper.plans
    for number in (1, 2):
        runs = (Run(0, [0] * 8),)
        for _layer in range(5):
            attention.to_runs(runs, *projections(8, 8), 0.25)
        assert wrapper.plans - before == number


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (3, 40), (40, 3)])
def test_attention_to_a_block(kernel, rows, keys):
    query, key, value = projections(rows, keys)
    close(kernel().to_block(query, key, value, 0.3), definition(query, key, value, False, 0.3))


def test_attention_to_a_part_of_the_keys(kernel):
    """Blocks are parts of larger tensors, which are not contiguous."""
    query, key, value = projections(40, 40)
    parts = query[:, :, 30:], key[:, :, 5:20], value[:, :, 5:20]
    close(kernel().to_block(*parts, 0.3), definition(*parts, False, 0.3))


@pytest.mark.parametrize("kernel", ["ragged", "flashinfer"], indirect=True)
def test_the_keys_of_a_block_are_read_where_they_are(kernel, monkeypatch):
    by_definition, storages = attention_doubles.by_definition, []

    def spy(query, key, value, *options):
        storages.extend(part.untyped_storage().data_ptr() for part in (key, value))
        return by_definition(query, key, value, *options)

    monkeypatch.setattr(attention_doubles, "by_definition", spy)
    path = torch.ones(1, 2, 40, 16), torch.ones(1, 2, 40, 16)
    kernel().to_block(torch.ones(1, 4, 3, 16), *(part[:, :, 5:20] for part in path), 0.3)
    assert storages == [part.untyped_storage().data_ptr() for part in path]


@pytest.mark.parametrize("family", IN_TREES)
def test_models_have_the_values_of_plain_scoring(kernel, family, monkeypatch):
    model = tiny_models.make_model(family)
    scorer = TransformersPolicy(model, tiny_models.make_tokenizer(), prefill=32)
    used = []
    monkeypatch.setattr(
        tree_attention, "choose_kernel", lambda *_: used.append(kernel()) or used[-1]
    )
    (result,) = scorer.score_sync([GROUP])
    assert isinstance(result, ScoreAnswer)
    assert result.path == "tree"
    assert used
    expected = tiny_models.naive(model, GROUP)
    gaps = [
        abs(a - b)
        for pair, values in expected.items()
        for a, b in zip(result.logprobs[pair], values, strict=True)
    ]
    assert max(gaps) < 1e-4


@pytest.mark.parametrize(
    ("kernel", "length"),
    [("padded", 16), ("ragged", 16), ("flashinfer", 12)],
    indirect=["kernel"],
)
def test_values_that_are_shorter_than_keys(kernel, length, monkeypatch):
    """The operations of torch need values as long as keys. FlashInfer has kernels for others."""
    to_runs, lengths = kernel.to_runs, []

    def spy(self, runs, query, key, value, scale):
        lengths.append(value.shape[3])
        return to_runs(self, runs, query, key, value, scale)

    monkeypatch.setattr(kernel, "to_runs", spy)
    monkeypatch.setattr(tree_attention, "choose_kernel", lambda *_: kernel())
    query, key, value = projections(8, 8)
    value = value[..., :12].contiguous()
    tree = TreeAttention(8).of(Step((Run(0, [0] * 8),), (), ()))
    layer = SimpleNamespace(layer_idx=0)
    output, _ = tree_attention.tree_attention(layer, query, key, value, None, tree=tree)
    expected, _ = definition(query, key, value, True, 0.25)
    assert lengths == [length]
    assert (output.transpose(1, 2) - expected).abs().max() < 1e-5


def test_values_that_are_longer_than_keys_are_not_in_the_tree():
    query, key, _ = projections(8, 8)
    value = torch.zeros(1, 2, 8, 20)
    layer, tree = SimpleNamespace(layer_idx=0), TreeAttention(8)
    with pytest.raises(NotInTreeError, match="values that are longer than keys"):
        tree_attention.tree_attention(layer, query, key, value, None, tree=tree)


# --- the choice --------------------------------------------------------------------------------


@has_ragged_attention
def test_the_kernel_of_a_device():
    def chosen(device, dtype, attention="torch"):
        query = torch.empty(1, 1, 1, 8, device=device, dtype=dtype)
        return type(tree_attention.choose_kernel(attention, query))

    assert chosen("cpu", torch.float32) is PaddedAttention
    assert chosen("cpu", torch.bfloat16) is PaddedAttention
    with torch._subclasses.FakeTensorMode():
        assert chosen("cuda", torch.bfloat16) is RaggedAttention
        assert chosen("cuda", torch.float16) is RaggedAttention
        assert chosen("cuda", torch.float32) is PaddedAttention
        assert chosen("cuda", torch.bfloat16, "flashinfer") is FlashInferAttention


def test_layers_on_several_devices_have_a_kernel_each(monkeypatch):
    """A kernel keeps tensors on its device."""

    class Kernel(PaddedAttention):
        def __init__(self, device):
            self.device = device

        def to_runs(self, runs, query, key, value, scale):
            assert query.device == self.device
            return query, query[..., 0]

    devices = []

    def choose(_, query):
        devices.append(query.device.type)
        return Kernel(query.device)

    monkeypatch.setattr(tree_attention, "choose_kernel", choose)
    tree = TreeAttention(8).of(Step((Run(0, [0] * 8),), (), ()))
    for layer, device in enumerate(("cpu", "meta", "cpu", "meta")):
        tree.attend(layer, *(part.to(device) for part in projections(8, 8)), 0.25)
    assert devices == ["cpu", "meta"]


def test_torch_without_shared_heads_uses_padded_runs(monkeypatch):
    """The attention of torch 2.10 and 2.11 has no parameter for heads that share keys."""

    def varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None):
        raise AssertionError

    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(ragged_attention, "_is_in_torch", ragged_attention._is_in_torch.__wrapped__)
    with torch._subclasses.FakeTensorMode():
        assert not can_be_ragged(torch.empty(1, device="cuda", dtype=torch.bfloat16))


def test_options_that_cannot_run():
    model, tokenizer = tiny_models.make_model("qwen2"), tiny_models.make_tokenizer()
    with pytest.raises(UsageError, match="must be one of torch, flashinfer, found 'xformers'"):
        TransformersPolicy(model, tokenizer, attention="xformers")
    with pytest.raises(UsageError, match="'flashinfer' requires a GPU, found the device cpu"):
        TransformersPolicy(model, tokenizer, attention="flashinfer")


def on_gpu(dtype):
    """Return the device and the precision of a model on a GPU."""
    return SimpleNamespace(device=torch.device("cuda"), dtype=dtype)


def test_flashinfer_requires_half_precision(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", attention_doubles.FlashInfer)
    for dtype in (torch.bfloat16, torch.float16):
        tree_attention.check_attention("flashinfer", on_gpu(dtype), is_live=False)
    with pytest.raises(UsageError, match="requires bfloat16 or float16, found float32: load"):
        tree_attention.check_attention("flashinfer", on_gpu(torch.float32), is_live=False)


def test_flashinfer_for_a_model_in_training_is_checked_at_its_first_use(monkeypatch):
    """DeepSpeed moves a model to the GPU, and converts it, at the start of the training."""
    monkeypatch.setitem(sys.modules, "flashinfer", attention_doubles.FlashInfer)
    model = tiny_models.make_model("qwen2")
    scorer = TransformersPolicy(
        model, tiny_models.make_tokenizer(), attention="flashinfer", is_live=True
    )
    with pytest.warns(UserWarning, match="requires a GPU, found the device cpu: use"):
        (result,) = scorer.score_sync([GROUP])
    assert result.path.startswith("shared (the tree failed its self-check: ")


def test_flashinfer_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(MissingExtraError, match=r"rag-rewards\[flashinfer\]"):
        tree_attention.check_attention("flashinfer", on_gpu(torch.bfloat16), is_live=False)


@has_ragged_attention
def test_the_shapes_of_a_model_with_the_attention_of_torch(monkeypatch):
    """The device meta has the shapes of a GPU, without values."""
    monkeypatch.setattr(tree_attention, "choose_kernel", lambda *_: RaggedAttention())
    config = tiny_models.configurations()["qwen2"]()
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    forward = ModelForward(model, float32_logits=False, usage=PolicyUsage())
    plan = Plan()
    plan.add(GROUP)
    with forward.inference(), attention_in_tree(forward.causal, 200) as tree:
        for step in steps(plan.runs, 64):
            hidden = forward.run_step(step.tokens, step.positions, tree.of(step))
            assert hidden.shape == (len(step.tokens), config.hidden_size)
            assert hidden.dtype == torch.bfloat16


# --- the contracts of the doubles ---------------------------------------------------------------


@has_ragged_attention
def test_the_double_of_torch_has_the_parameters_and_shapes_of_torch():
    def parameters(function):
        return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]

    assert parameters(varlen.varlen_attn) == parameters(attention_doubles.varlen_attn)
    assert varlen.AuxRequest(lse=True).lse

    def call(function, device):
        query, key = torch.ones(10, 4, 16, device=device), torch.ones(10, 2, 16, device=device)
        starts = torch.tensor([0, 4, 10], dtype=torch.int32, device=device)
        options = {"return_aux": varlen.AuxRequest(lse=True), "scale": 1.0, "enable_gqa": True}
        return function(query, key, key, starts, starts, 6, 6, window_size=(-1, 0), **options)

    # The device meta has the shapes of a GPU, without values.
    real, double = call(varlen.varlen_attn, "meta"), call(attention_doubles.varlen_attn, "cpu")
    assert [(part.shape, part.dtype) for part in real] == [
        (part.shape, part.dtype) for part in double
    ]


FLASHINFER = json.loads(read_flashinfer.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", FLASHINFER)
def test_the_double_of_flashinfer_has_the_parameters_of_flashinfer(version):
    """`read_flashinfer.py` reads the parameters from the wheels of FlashInfer."""
    wrapper = attention_doubles.FlashInfer.BatchPrefillWithRaggedKVCacheWrapper
    ours = {
        "single_prefill_with_kv_cache": attention_doubles.FlashInfer.single_prefill_with_kv_cache,
        **{
            f"{read_flashinfer.CLASS}.{name}": getattr(wrapper, name)
            for name in ("__init__", "plan", "run")
        },
    }
    for name, function in ours.items():
        own = inspect.signature(function).parameters.values()
        real = FLASHINFER[version][name]
        by_place = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [each.rstrip("=") for each in real[: len(by_place)]] == by_place
        by_name = {p.name for p in own if p.kind is p.KEYWORD_ONLY}
        assert by_name <= {each.rstrip("=") for each in real}
        required = {each for each in real if not each.endswith("=")}
        assert required <= {p.name for p in own}
    assert FLASHINFER[version]["base of log Σ exp"] == [2]


# --- the operations of torch without a public form ----------------------------------------------


@pytest.mark.parametrize("rows", [1, 32, 70])
def test_the_shapes_of_log_denominators_on_a_gpu(rows):
    """The kernels of GPUs have shapes, but no values, on the device meta."""
    aten = torch.ops.aten
    half = [torch.empty(3, 4, rows, 64, device="meta", dtype=torch.bfloat16)] * 3
    output, total = aten._scaled_dot_product_flash_attention(*half, 0.0, True, scale=1.0)[:2]
    assert (output.shape, total.shape) == ((3, 4, rows, 64), (3, 4, rows))
    full = [torch.empty(3, 4, rows, 64, device="meta")] * 3
    output, total = aten._scaled_dot_product_efficient_attention(
        *full, None, True, 0.0, True, scale=1.0
    )[:2]
    assert output.shape == (3, 4, rows, 64)
    assert total.shape[:2] == (3, 4)
    assert rows <= total.shape[2]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_compiled_attention_has_no_denominators_on_a_cpu():
    """As soon as this fails, `flex_attention` can replace the private operation on a CPU."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    compiled = torch.compile(flex_attention)
    rows = projections(32, 32)
    with torch.no_grad(), pytest.raises(Exception, match="is not supported yet"):
        compiled(*rows, enable_gqa=True, return_aux=AuxRequest(lse=True))


def test_the_logarithm_has_the_base_e():
    """One key has the weight 1, so that log Σ exp is its score."""
    query, key, value = (torch.full((1, 1, 1, 4), 1.0) for _ in range(3))
    output, total = PaddedAttention().to_block(query, key, value, 0.5)
    assert output.tolist() == value.tolist()
    assert math.isclose(total.item(), 2.0, rel_tol=1e-6)

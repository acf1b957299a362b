"""Attention to shared keys against its definition."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_models
import torch

from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest
from rag_rewards.models.runs import Run, Step
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.models.transformers import tree as tree_module
from rag_rewards.models.transformers.tree import (
    NotInTreeError,
    TreeAttention,
    attention_in_tree,
    attention_to_block,
)
from rag_rewards.models.transformers.vocabulary import Vocabulary

CONTEXT = tuple(range(3, 83))
GROUP = ScoreRequest(
    (CONTEXT, CONTEXT[:20] + CONTEXT[40:], CONTEXT[:50]),
    (tuple(range(100, 130)), (*range(100, 105), *range(140, 150)), (7,), tuple(range(200, 209))),
)


def projections(rows: int, keys: int) -> list[torch.Tensor]:
    """Return query, key and value of 4 heads of which 2 share keys, as a model provides them."""
    generator = torch.Generator().manual_seed(rows)
    sizes = ((rows, 4, 16), (keys, 2, 16), (keys, 2, 16))
    return [torch.randn(size, generator=generator).transpose(0, 1)[None] for size in sizes]


def definition(query, key, value, causal, scale):
    """Return the attention [1, H, N, V] and log Σ exp [1, H, N] in float32."""
    each = query.shape[1] // key.shape[1]
    keys, values = (part.repeat_interleave(each, 1).double() for part in (key, value))
    scores = query.double() @ keys.transpose(2, 3) * scale
    if causal:
        later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return (scores.softmax(-1) @ values).float(), scores.logsumexp(-1).float()


def close(result, expected):
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-5


def within_runs(tree, lengths, rows, scale=0.25):
    step = Step(tuple(Run(0, [0] * length) for length in lengths), (), ())
    return tree.of(step)._within_runs(*rows, scale)


@pytest.mark.parametrize("lengths", [(5,), (4, 4, 4), (7, 1, 3, 300, 2), (260, 260, 9)])
@pytest.mark.parametrize("scale", [0.25, 0.5])
def test_attention_within_runs(lengths, scale):
    starts = list(itertools.accumulate(lengths, initial=0))
    rows = projections(starts[-1], starts[-1])
    output, total = within_runs(TreeAttention(999), lengths, rows, scale)
    for start, stop in itertools.pairwise(starts):
        own = [part[:, :, start:stop] for part in rows]
        expected = definition(*own, True, scale)
        close((output[:, :, start:stop], total[:, :, start:stop]), expected)


def test_runs_of_the_next_step():
    tree = TreeAttention(999)
    for lengths in ((6, 2), (3, 5), (8,)):
        rows = projections(8, 8)
        for _ in range(2):
            output, _ = within_runs(tree, lengths, rows)
            first = [part[:, :, : lengths[0]] for part in rows]
            close([output[:, :, : lengths[0]]], definition(*first, True, 0.25)[:1])


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (3, 40), (40, 3)])
def test_attention_to_a_block(rows, keys):
    parts = projections(rows, keys)
    close(attention_to_block(*parts, 0.3), definition(*parts, False, 0.3))


def test_attention_to_a_part_of_the_keys():
    """Blocks are parts of larger tensors, which are not contiguous."""
    query, key, value = projections(40, 40)
    parts = query[:, :, 30:], key[:, :, 5:20], value[:, :, 5:20]
    close(attention_to_block(*parts, 0.3), definition(*parts, False, 0.3))


def test_the_logarithm_has_the_base_e():
    """One key has the weight 1, so that log Σ exp is its score."""
    query, key, value = (torch.full((1, 1, 1, 4), 1.0) for _ in range(3))
    output, total = attention_to_block(query, key, value, 0.5)
    assert output.tolist() == value.tolist()
    assert math.isclose(total.item(), 2.0, rel_tol=1e-6)


def test_values_that_are_shorter_than_keys():
    query, key, value = projections(8, 8)
    value = value[..., :12].contiguous()
    tree = TreeAttention(8).of(Step((Run(0, [0] * 8),), (), ()))
    layer = SimpleNamespace(layer_idx=0)
    output, _ = tree_module.tree_attention(layer, query, key, value, None, tree=tree)
    close([output.transpose(1, 2)], definition(query, key, value, True, 0.25)[:1])


def test_values_that_are_longer_than_keys_are_not_in_the_tree():
    query, key, _ = projections(8, 8)
    value = torch.zeros(1, 2, 8, 20)
    layer, tree = SimpleNamespace(layer_idx=0), TreeAttention(8)
    with pytest.raises(NotInTreeError, match="values that are longer than keys"):
        tree_module.tree_attention(layer, query, key, value, None, tree=tree)


# --- other devices than a CPU --------------------------------------------------------------------


def test_a_model_on_a_gpu_is_not_in_the_tree():
    causal = SimpleNamespace(device=torch.device("cuda"))
    with pytest.raises(NotInTreeError, match="a model on cuda"), attention_in_tree(causal, 8):
        pass


def test_a_device_without_the_operation_shares_a_cache_and_says_so_once(monkeypatch):
    monkeypatch.setattr(tree_module, "DEVICES", ())
    monkeypatch.setattr("rag_rewards.models.transformers.policy.DEVICES", ())
    model = tiny_models.make_model("qwen2")
    scorer = TransformersPolicy(model, tiny_models.make_tokenizer(), name="qwen2", prefill=32)
    with pytest.warns(UserWarning, match="qwen2: shared on cpu: each response has a copy"):
        scorer.score_sync([GROUP])
    scorer._methods = ()  # as after a change of the modules
    (result,) = scorer.score_sync([GROUP])  # a second warning would be an error
    assert isinstance(result, ScoreAnswer)
    assert result.path == "shared"
    assert result.reused > 0
    for pair, values in tiny_models.naive(model, GROUP).items():
        assert list(result.logprobs[pair]) == pytest.approx(values, abs=1e-4)


def test_the_head_on_a_gpu_is_used_as_a_whole():
    head = torch.nn.Linear(2, 3)
    causal = SimpleNamespace(device=torch.device("cuda"), get_output_embeddings=lambda: head)
    assert Vocabulary(causal, None, float32=False).slice is None
    causal.device = torch.device("cpu")
    assert Vocabulary(causal, None, float32=False).slice == 1_024


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_compiled_attention_has_no_denominators_on_a_cpu():
    """As soon as this fails, `flex_attention` can replace the private operation on a CPU."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    compiled = torch.compile(flex_attention)
    rows = projections(32, 32)
    with torch.no_grad(), pytest.raises(Exception, match="is not supported yet"):
        compiled(*rows, enable_gqa=True, return_aux=AuxRequest(lse=True))

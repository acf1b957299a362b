"""The fingerprint of the weights: every change is visible, and equal weights are equal."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_models
import torch

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import GenerateRequest, ScoreRequest
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.models.transformers.weights import hash_weights

torch.set_num_threads(1)
TOKENIZER = tiny_models.make_tokenizer()
GROUP = ScoreRequest(
    (tuple(range(3, 60)), tuple(range(3, 40))), ((7, 71, 72), tuple(range(80, 92)))
)


def policy() -> TransformersPolicy:
    return TransformersPolicy(tiny_models.make_model("qwen2"), TOKENIZER, name="qwen2")


def scores(scorer):
    (answer,) = scorer.score_sync([GROUP])
    return answer.logprobs


def gap(values, expected):
    pairs = [ab for pair in expected for ab in zip(values[pair], expected[pair], strict=True)]
    return max(abs(a - b) for a, b in pairs)


def step(optimizer, **options):
    """Return a change by a step of an optimizer."""

    def change(model):
        parameters = [model.lm_head.weight, model.model.norm.weight]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer(parameters, lr=0.1, **options).step()
        for parameter in parameters:
            parameter.grad = None

    return change


def in_mode(mode):
    """Return a change in place within a mode of torch."""

    def change(model):
        with mode():
            model.lm_head.weight.mul_(1.5)

    return change


def swap_tensors(model):
    new = torch.nn.Parameter(model.lm_head.weight.detach() * 1.5)
    torch.utils.swap_tensors(model.lm_head.weight, new)


def new_parameter(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() * 1.5)


def flatten(model):
    """Return one tensor with all weights, of which the parameters are views from now on."""
    own = list(dict.fromkeys(model.parameters()))
    flat = torch.cat([parameter.detach().flatten() for parameter in own])
    parts = flat.split([parameter.numel() for parameter in own])
    for parameter, part in zip(own, parts, strict=True):
        parameter.data = part.view(parameter.shape)
    return flat


def set_flat(model):
    """Change the weights as ZeRO and FSDP do: by one flat tensor for all of them."""
    flatten(model).mul_(1.01)


def reshard(model):
    """Free the memory of the weights, and gather other ones into it, as FSDP does."""
    flat = flatten(model)
    new, memory = flat * 1.01, flat.untyped_storage()
    size = memory.nbytes()
    memory.resize_(0)
    memory.resize_(size)
    flat.copy_(new)


def new_layer(model):
    model.model.layers[0] = type(model.model.layers[0])(model.config, 0)


def new_backbone(model):
    model.model = type(model.model)(model.config)


def set_data(model):
    model.lm_head.weight.data = model.lm_head.weight.data * 1.5


def set_row(model):
    model.lm_head.weight.data[7] *= 1.5


def set_element(model):
    """Change the last bit of one number."""
    row = model.model.layers[1].mlp.up_proj.weight.data.view(torch.int32)
    row[5, 3] += 1


def swap_rows(model):
    weight = model.lm_head.weight.data
    weight[[7, 9]] = weight[[9, 7]]


def set_shared_memory(model):
    model.lm_head.weight.detach().numpy()[7] *= 1.5


def new_head(model):
    head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    model.set_output_embeddings(head)


CHANGES = {
    "no_grad": in_mode(torch.no_grad),
    "inference_mode": in_mode(torch.inference_mode),
    "data.mul_": lambda model: model.lm_head.weight.data.mul_(1.5),
    "data.neg_": lambda model: model.lm_head.weight.data.neg_(),
    "data.copy_": lambda model: model.lm_head.weight.data.copy_(model.lm_head.weight * 1.5),
    "data =": set_data,
    "row": set_row,
    "element": set_element,
    "swapped rows": swap_rows,
    "numpy": set_shared_memory,
    "swap_tensors": swap_tensors,
    "parameter": new_parameter,
    "flat": set_flat,
    "resharded": reshard,
    "SGD": step(torch.optim.SGD, foreach=False),
    "SGD foreach": step(torch.optim.SGD, foreach=True),
    "SGD fused": step(torch.optim.SGD, fused=True),
    "AdamW": step(torch.optim.AdamW, foreach=False),
    "AdamW foreach": step(torch.optim.AdamW, foreach=True),
    "AdamW fused": step(torch.optim.AdamW, fused=True),
    "load_state_dict": lambda model: model.load_state_dict(
        tiny_models.make_model("qwen2", seed=1).state_dict()
    ),
    "load_state_dict assign": lambda model: model.load_state_dict(
        tiny_models.make_model("qwen2", seed=1).state_dict(), assign=True
    ),
    "layer": new_layer,
    "backbone": new_backbone,
    "head": new_head,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_the_weights_changes_the_fingerprint(change):
    scorer = policy()
    before = scores(scorer)
    old = scorer.fingerprint
    assert old == scorer.fingerprint
    change(scorer.model)
    assert scorer.fingerprint != old
    expected = tiny_models.naive(scorer.model, GROUP)
    assert gap(scores(scorer), expected) < 1e-4
    if change is not set_element:
        assert gap(before, expected) > 1e-3


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_every_change_of_an_adapter_changes_the_fingerprint():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    model = peft.get_peft_model(tiny_models.make_model("qwen2"), config)
    model.add_adapter("other", config)
    scorer = TransformersPolicy(model, TOKENIZER)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    seen = [scorer.fingerprint]
    layer.lora_A["default"].weight.data[1, 3] += 1
    seen.append(scorer.fingerprint)
    layer.scaling["default"] *= 2
    seen.append(scorer.fingerprint)
    model.set_adapter("other")
    seen.append(scorer.fingerprint)
    with model.disable_adapter():
        seen.append(scorer.fingerprint)
    model.merge_adapter()
    seen.append(scorer.fingerprint)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
@pytest.mark.parametrize("count", [1, 3, 4097, 2**21 + 5])
def test_the_hash_of_weights_reads_every_element(dtype, count):
    weight = torch.nn.Module()
    weight.register_buffer("w", torch.zeros(count, dtype=torch.float32).to(dtype))
    seen = {hash_weights(weight)}
    places = sorted({0, count // 2, count - 1})
    for place in places:
        weight.w[place] = torch.ones((), dtype=torch.float32).to(dtype)
        seen.add(hash_weights(weight))
    assert len(seen) == len(places) + 1


@pytest.mark.parametrize("changed", [slice(2), slice(4096)])
def test_the_hash_of_weights_reads_the_signs_of_several_elements(changed):
    weight = torch.nn.Module()
    weight.register_buffer("w", torch.ones(5000))
    before = hash_weights(weight)
    weight.w[changed] = -1
    assert hash_weights(weight) != before


def test_the_hash_of_weights_does_not_depend_on_their_memory():
    first, second = torch.nn.Module(), torch.nn.Module()
    values = torch.arange(40.0).to(torch.bfloat16)
    first.register_buffer("w", values[1:].reshape(3, 13))  # not aligned to words
    second.register_buffer("w", values[1:].reshape(3, 13).t().contiguous().t())
    assert hash_weights(first) == hash_weights(second)


# --- equal weights -------------------------------------------------------------------------------


def gather_again(model):
    """Free the memory of the weights, and gather the same ones into it."""
    flat = flatten(model)
    same, memory = flat.clone(), flat.untyped_storage()
    size = memory.nbytes()
    memory.resize_(0)
    memory.resize_(size)
    flat.copy_(same)


def use(model):
    scorer = TransformersPolicy(model, TOKENIZER)
    scores(scorer)
    scorer.generate_sync([GenerateRequest((5, 6, 7), max_tokens=3)])


def train_without_a_step(model):
    model.train()
    ids = torch.tensor([GROUP.contexts[0]])
    model(ids, labels=ids).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.0).step()


def assign_equal(model):
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


@pytest.mark.parametrize("change", [gather_again, use, train_without_a_step, assign_equal])
def test_equal_weights_keep_the_fingerprint(change):
    scorer = policy()
    before = scorer.fingerprint
    change(scorer.model)
    assert scorer.fingerprint == before


def test_equal_weights_have_the_same_hash_in_another_process():
    program = (
        "import torch\n"
        "from rag_rewards.models.transformers.weights import hash_weights\n"
        "torch.manual_seed(0)\n"
        "print(hash_weights(torch.nn.TransformerEncoderLayer(8, 2, 16)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "1", "PATH": ""},
    )
    torch.manual_seed(0)
    assert done.stdout.strip() == hash_weights(torch.nn.TransformerEncoderLayer(8, 2, 16))


class Wrapper(torch.nn.Module):
    """A data-parallel wrapper, which has the model as `module`."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_wrapper_keeps_the_hash():
    model = tiny_models.make_model("qwen2")
    assert hash_weights(Wrapper(model)) == hash_weights(model)


# --- sharded weights -----------------------------------------------------------------------------


def freed(model):
    flatten(model).untyped_storage().resize_(0)


def partitioned(model):
    """Replace the weights by empty ones until they are gathered, as ZeRO-3 does."""
    for parameter in model.parameters():
        parameter.ds_id = 0
        parameter.data = torch.empty(0)


def fully_shard(model):
    fsdp = pytest.importorskip("torch.distributed.fsdp", reason="torch has no FSDP")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    fsdp.fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))


@pytest.mark.parametrize("shard", [freed, partitioned, fully_shard])
def test_weights_that_are_sharded_later_are_refused(shard):
    scorer = policy()
    scores(scorer)
    try:
        shard(scorer.model)
        with pytest.raises(UsageError, match="the weights are sharded"):
            _ = scorer.fingerprint
        with pytest.raises(UsageError, match="the weights are sharded"):
            scores(scorer)
        with pytest.raises(UsageError, match="the weights are sharded"):
            scorer.generate_sync([GenerateRequest((5, 6, 7), max_tokens=3)])
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

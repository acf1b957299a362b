"""The published training values, copied by hand from the papers, in the recipes and the scripts."""

from __future__ import annotations

import ast
import re

import pytest

from rag_rewards.recipes import RECIPES
from rag_rewards.scripts.start import SEARCH_TOKENS

# CTRL-RAG, appendix A: group size 8, batch of 1,024 rollouts, learning rate 1e-6, no KL penalty.
# Eq. 5: the mean over the tokens of a response, then over the responses.
CTRL_RAG = {
    "group": 8,
    "prompts": 1024 // 8,
    "learning_rate": 1e-6,
    "kl": "none",
    "kl_weight": 0.0,
    "loss_aggregation": "response",
}
# ARENA, appendix E: batch of 256, learning rate 3e-6, 7 rollouts, temperature 0.9, β = 0.04, one
# iteration per batch, ε = 0.2. Section 3.2: the KL estimator k2.
ARENA = {
    "prompts": 256,
    "learning_rate": 3e-6,
    "group": 7,
    "temperature": 0.9,
    "kl": "k2",
    "kl_weight": 0.04,
    "iterations": 1,
    "clip": 0.2,
}
# Ground-GRPO, section 3.1: 8 responses, 4 epochs, batch of 384, 1e-5, cosine, warm-up of 0.1.
GROUND_GRPO = {
    "group": 8,
    "epochs": 4,
    "prompts": 384 // 8,
    "learning_rate": 1e-5,
    "schedule": "cosine",
    "warmup": 0.1,
}
# Search-R1, authors' code at a14dc3a, train_grpo_format.sh.
SEARCH_R1 = {
    "prompts": 512,
    "group": 5,
    "learning_rate": 5e-7,
    "warmup": 0.285,
    "kl": "k3",
    "kl_weight": 0.001,
    "temperature": 1.0,
    "prompt_tokens": 4096,
    "response_tokens": 500,
}
# StepSearch, authors' code at 43215ba.
STEPSEARCH = {"learning_rate": 5e-7, "kl_weight": 0.001}
# IGPO, authors' code at 745078b, train.sh.
IGPO = {"prompts": 32, "group": 16, "learning_rate": 1e-6, "kl_weight": 0.001}
# CaRR, released code at c97e7e8, training_run_4b-C-GRPO-rubric0.3.sh.
CARR = {
    "prompts": 128,
    "group": 8,
    "learning_rate": 2e-6,
    "kl": "none",
    "kl_weight": 0.0,
    "clip": 0.2,
    "response_tokens": 65_536,
}
# Binary RAR, released code at d97ea69, train.py.
BINARY_RAR = {
    "prompts": 16,
    "group": 8,
    "learning_rate": 1e-6,
    "kl": "k3",
    "kl_weight": 0.001,
}
# CANOE, released code at c6b215c: qwen_7b_2epoch_10k.yaml, and the defaults of its copy of TRL.
CANOE = {
    "prompts": 7 * 2 * 8,
    "group": 7,
    "learning_rate": 1e-6,
    "schedule": "cosine",
    "warmup": 0.1,
    "epochs": 2,
    "kl": "k3",
    "kl_weight": 0.04,
    "loss_aggregation": "response",
    "temperature": 0.9,
    "prompt_tokens": 1024,
    "response_tokens": 1024,
}
# s3, released code at ba08d58, train_s3.sh.
S3 = {
    "prompts": 120,
    "learning_rate": 1e-6,
    "kl_weight": 0.001,
    "temperature": 0.6,
    "prompt_tokens": 8000,
    "response_tokens": 500,
}
# DR Tulu, released code at 6188f34, train_dr_tulu.sh.
DR_TULU = {
    "prompts": 32,
    "group": 8,
    "learning_rate": 5e-7,
    "schedule": "constant",
    "kl": "k3",
    "kl_weight": 0.001,
    "temperature": 1.0,
    "prompt_tokens": 2048,
    "response_tokens": 16_384,
}
# RLCR, released code at 8904bed, configs/Qwen-7B/hotpot/RLCR.yaml.
RLCR = {
    "group": 32,
    "learning_rate": 1e-6,
    "warmup": 0.05,
    "epochs": 1,
    "kl": "none",
    "kl_weight": 0.0,
    "temperature": 0.7,
    "prompt_tokens": 3072,
    "response_tokens": 1536,
}
# AutoRefine, released code at 8363788, train.sh.
AUTOREFINE = {
    "prompts": 256,
    "group": 5,
    "learning_rate": 1e-6,
    "kl": "k3",
    "kl_weight": 0.001,
    "temperature": 1.0,
}
# IKEA, released code at 79c38e8, train_grpo_kb.sh.
IKEA = {
    "prompts": 256,
    "group": 16,
    "learning_rate": 1e-7,
    "warmup": 0.75,
    "epochs": 2,
    "kl": "k3",
    "kl_weight": 0.001,
    "temperature": 1.0,
}
# HiPRAG, released code at 3e64036, train_grpo_format.sh.
HIPRAG = SEARCH_R1 | {"prompt_tokens": 8192}
PAPERS = {
    "rlcr": RLCR,
    "autorefine": AUTOREFINE,
    "ikea": IKEA,
    "canoe": CANOE,
    "s3": S3,
    "search-r1": SEARCH_R1,
    "hiprag": HIPRAG,
    "rag-env": {},
    "stepsearch": STEPSEARCH,
    "igpo": IGPO,
    "carr": CARR,
    "binary-rar": BINARY_RAR,
    "dr-tulu": DR_TULU,
    "rubric": {},
    "ruler": {},
    "ctrl-rag": CTRL_RAG,
    "ctrl-rag-clr": CTRL_RAG,
    "rag-total": CTRL_RAG,
    "arena": ARENA,
    "naive-grpo": {**ARENA, "kl": "k3"},  # section 4.3: the original GRPO
    "ground-grpo-stage1": GROUND_GRPO,
    "ground-grpo": GROUND_GRPO,
    # LEAR, section 4.1: one epoch, 1e-6, ε = 0.2, β = 0.01, minimum standard deviation of 0.1.
    # Eq. 12: one term for each response.
    "lear": {
        "epochs": 1,
        "learning_rate": 1e-6,
        "clip": 0.2,
        "kl": "k3",
        "kl_weight": 0.01,
        "std_floor": 0.1,
        "loss_aggregation": "response",
    },
    # TruthRL, appendix A: constant 1e-6, batch of 64, β = 0.001, ε = 0.2, 16,384 and 2,048 tokens,
    # temperature and top-p of 1. Section 3.2: the mean over the tokens, then over the responses.
    "truthrl": {
        "learning_rate": 1e-6,
        "schedule": "constant",
        "prompts": 64,
        "kl_weight": 0.001,
        "clip": 0.2,
        "prompt_tokens": 14_336,  # 16,384 tokens with the 2,048 generated ones
        "tensor_parallel": 2,
        "memory_share": 0.8,
        "response_tokens": 2_048,
        "temperature": 1.0,
        "top_p": 1.0,
        "loss_aggregation": "response",
    },
}
TRL = {
    "group": "num_generations",
    "prompts": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "schedule": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "epochs": "num_train_epochs",
    "kl_weight": "beta",
    "clip": "epsilon",
    "iterations": "num_iterations",
    "temperature": "temperature",
    "top_p": "top_p",
    "response_tokens": "max_completion_length",
}


@pytest.mark.parametrize("name", RECIPES)
def test_values_of_the_papers(name):
    """Only these values have a paper as their source. Others come from code or are not stated."""
    stated = {
        field: value.value
        for field, value in RECIPES[name].training.items()
        if not re.search("not state|^ARENA, authors' code$", value.source)
    }
    assert stated == PAPERS[name]


@pytest.mark.parametrize("name", RECIPES)
def test_values_in_the_script_of_trl(cli, tmp_path, name):
    cli("init", "trl", "-r", name, "-o", tmp_path / "run", code=0)
    tree = ast.parse((tmp_path / "run" / "train.py").read_text("utf-8"))
    [settings] = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "settings"
    )
    setup = {"output_dir", "bf16"}  # expressions
    written = {
        each.arg: ast.literal_eval(each.value)
        for each in settings.keywords
        if each.arg not in setup
    }
    expected = {TRL[field]: value for field, value in PAPERS[name].items() if field in TRL}
    if name in ("search-r1", "hiprag", "s3"):  # 500 tokens are those of one turn
        expected["max_completion_length"] = SEARCH_TOKENS
    assert written.items() >= expected.items()
    own_advantages = (
        "lear",
        "igpo",
        "stepsearch",
    )  # computed by the reward or by the trainer of turns
    assert written.get("scale_rewards") == ("none" if name in own_advantages else None)

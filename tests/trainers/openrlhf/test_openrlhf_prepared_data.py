"""Files of `rag-rewards prepare`, read by OpenRLHF's own data set."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rag_rewards_adapters.openrlhf import reward_function

from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare

sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
import tiny_models


def prompt_dataset() -> Any:
    """Load OpenRLHF's class from its file, because its package imports modules that need a GPU."""
    folder = importlib.util.find_spec("openrlhf").submodule_search_locations[0]
    path = Path(folder) / "datasets" / "prompts_dataset.py"
    spec = importlib.util.spec_from_file_location("prompts_dataset", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PromptDataset


def test_prepared_prompts_and_labels(tmp_path: Path, shared: Path) -> None:
    out = tmp_path / "train.jsonl"
    source = shared / "data/nq/nq_open_oracle_first25.jsonl"
    prepare(PrepareOptions("nq", str(source), str(out), "arena", "openrlhf"))
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    data = SimpleNamespace(input_key="input", label_key="label", apply_chat_template=True)
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), is_rank_0=lambda: False)
    read = prompt_dataset()(rows, tiny_models.make_tokenizer(), strategy)
    reward = reward_function(recipe="arena")
    assert len(read.prompts) == 25
    for prompt, label in zip(read.prompts, read.labels, strict=True):
        gold = json.loads(label)
        assert gold["question"] in prompt
        answer = gold["answers"][0][0]
        text = f"<relevance>[1]</relevance><analysis>x</analysis><answer>{answer}</answer>"
        assert reward([prompt + text], [prompt], [label])["rewards"] == 13.0
        assert reward([prompt + "none"], [prompt], [label])["rewards"] == 0.0

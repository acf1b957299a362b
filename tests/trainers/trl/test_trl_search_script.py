"""The script of `init trl` for a search agent: it runs with a search engine, and not without."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.trl import TurnGRPOTrainer
from trl_runs import make_model, qwen3_tokenizer

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import init

CORPUS = [
    {"id": "a", "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": "b", "title": "Lyon", "text": "Lyon lies on the Rhône."},
]
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "river of Lyon"}}\n</tool_call>'
SMALL = [
    *("--use_cpu", "--bf16", "False", "--max_steps", "1", "--save_strategy", "no"),
    *("--gradient_accumulation_steps", "1", "--report_to", "none", "--disable_tqdm", "True"),
    *("--per_device_train_batch_size", "2", "--num_generations", "2", "--logging_steps", "1"),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a script, with a model and data."""
    policy, data = tmp_path / "model", tmp_path / "train.jsonl"
    make_model("qwen2").save_pretrained(policy)
    qwen3_tokenizer().save_pretrained(policy)
    prompt = [{"role": "user", "content": "Which river runs through Lyon?"}]
    row = {"prompt": prompt, "answers": ["Rhône"], "supporting": ["b"]}
    data.write_text("".join(f"{json.dumps({**row, 'id': str(i)})}\n" for i in range(2)))
    folder = tmp_path / "run"
    settings = ("--set", "process=coverage", "--set", "keys.weight=0")
    options = ("--policy", str(policy), "--data", str(data), *settings)
    written = init("trl", "stepsearch", folder, *options)
    assert (written.returncode, written.stderr) == (0, "")
    return folder


def test_the_script_searches_with_the_example(run: Path, monkeypatch: Any) -> None:
    """One step, in which one of two rollouts calls the tool. The texts replace the model's own."""
    (run / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in CORPUS))
    search = run / "search.py"
    search.write_text(search.read_text().replace('CORPUS = ""', 'CORPUS = "corpus.jsonl"'))
    turns = iter([[CALL, "<answer>Seine</answer>"], ["<answer>Rhône</answer>"]])
    runs: list[Any] = []

    def sampled(trainer: Any, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        runs.append(trainer)
        tokenizer, texts = trainer.processing_class, next(turns)
        assert len(texts) == len(prompt_ids)
        return [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts], None

    monkeypatch.setattr(TurnGRPOTrainer, "_generate_single_turn", sampled)
    monkeypatch.setattr(sys, "argv", ["train.py", *SMALL])
    monkeypatch.syspath_prepend(str(run))
    monkeypatch.delitem(sys.modules, "search", raising=False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(run / "cache"))
    runpy.run_path(str(run / "train.py"), run_name="__main__")
    trainer = runs[0]
    assert trainer.max_tool_calling_iterations == 3
    searched, direct = trainer.reward.last_rollouts
    first, last = searched.steps()
    assert first.queries == ("river of Lyon",)
    assert [result.id for result in first.results] == ["b"]
    assert last.answer == "Rhône"
    assert len(direct.steps()) == 1
    assert trainer.reward.last_scores[0].turns[0] > 0  # the search found the gold document
    [logged] = [entry for entry in trainer.state.log_history if "tools/call_frequency" in entry]
    assert logged["tools/call_frequency"] == 0.5

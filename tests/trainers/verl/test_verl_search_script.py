"""The script of `init verl` for a search agent: a step of the V1 trainer with its tool."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import v1_trainer as v1

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import init

CORPUS = [
    {"id": "a", "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": "b", "title": "Lyon", "text": "Lyon lies on the Rhône."},
]
CALL = '<tool_call>{"name": "search", "arguments": {"query": "river of Lyon"}}</tool_call>'
ANSWER = "<answer>Rhône</answer>"
LENGTHS = v1.LENGTHS | {"response_length": 1500, "max_model_len": 2800}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    options = ("--set", "process=coverage", "--set", "keys.weight=0", "--policy", "model")
    written = init("verl", "stepsearch", folder, *options)
    assert (written.returncode, written.stderr) == (0, "")
    return folder


def test_the_tool_of_the_script_searches_in_a_step(run: Path, tmp_path: Path) -> None:
    (run / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in CORPUS))
    search = run / "search.py"
    search.write_text(search.read_text().replace('CORPUS = ""', 'CORPUS = "corpus.jsonl"'))
    question = v1.question("Lyon")
    del question["extra_info"]["documents"]
    gold = {"answers": ["Rhône"], "supporting": ["b"]}
    question["reward_model"]["ground_truth"] = json.dumps(gold)
    rows = v1.write(tmp_path / "train.parquet", [question])
    folder = v1.save(tmp_path / "model")
    replies: dict[str, Any] = {"Lyon": [CALL, ANSWER], CORPUS[1]["text"]: [ANSWER]}
    rollout = "actor_rollout_ref.rollout"
    with v1.cluster():
        config = v1.configuration(
            folder,
            "stepsearch",
            *search_settings(run),
            *v1.trainer_overrides(rows, rows),
            *(f"{rollout}.{name}={value}" for name, value in LENGTHS.items()),
            f"data.max_response_length={LENGTHS['response_length']}",
            "data.train_batch_size=1",
            "actor_rollout_ref.actor.ppo_mini_batch_size=1",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
            f"{rollout}.n=2",
            "trainer.total_training_steps=1",
            "trainer.val_before_train=False",
            "trainer.test_freq=-1",
            "algorithm.adv_estimator=rag_turn_return",
        )
        server = ray.remote(v1.Engine).remote(folder, replies, LENGTHS["max_model_len"])
        (batch,) = v1.train(config, server, tmp_path / "log.jsonl").batches
    (group,) = v1.groups_of(batch).values()
    runs = sorted(sum(m["response_mask"]) < len(m["response_mask"]) for m in group)
    assert runs == [False, True]  # one of the two rollouts contains results
    rewards = [sum(value > 0 for value in member["rm_scores"]) for member in group]
    assert sorted(rewards) == [1, 2]  # its search found the gold document


def search_settings(folder: Path) -> list[str]:
    """Return the settings of the script that concern the recipe and its searches."""
    text = (folder / "train.sh").read_text("utf-8")
    array = text[text.index("settings=(") + len("settings=(") : text.index("\n)\n")]
    words = shlex.split(array, comments=True)
    keys = ("multi_turn", "agent_loop_config_path", "reward_kwargs.settings")
    return [word.replace("$PWD", str(folder)) for word in words if any(key in word for key in keys)]

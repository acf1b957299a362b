"""The section about ms-swift of docs/start-training.md, which trains one step on the CPU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
from tiny_models import make_model, make_tokenizer, save
from walkthrough import commands, follow, lay_out

ROOT = Path(__file__).resolve().parents[3]

TINY = " --model_type qwen2 --template qwen2_5 --use_cpu true --load_from_cache_file false"
"""ms-swift recognizes a released model by its name, and a random one by its type."""


def test_the_commands_of_the_page_train_one_step(tmp_path: Path, shared: Path) -> None:
    prepare, init, start, small = commands("ms-swift")
    assert small.startswith(f"{start} --")
    lay_out(tmp_path, shared)
    for command in (prepare, f"{init} --dump rollouts.jsonl", small + TINY):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert "'global_step/max_steps': '1/1'" in ran.stdout + ran.stderr
    path = tmp_path / "rollouts.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(row["step"], row["error"]) for row in rows] == [(1, None)] * 2
    assert rows[0]["signature"].endswith("arena")
    assert rows[0]["supporting"]


def test_the_trial_trains_a_tiny_model_with_different_rewards(tmp_path: Path) -> None:
    init, train = commands("Trial with a tiny model", "ms-swift")
    for command in (init, f"{train} --use_cpu true --load_from_cache_file false"):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    output = ran.stdout + ran.stderr
    assert "'global_step/max_steps': '2/2'" in output
    assert all(3 < float(mean) < 14 for mean in re.findall(r"'reward': '([\d.]+)'", output))
    assert all(float(std) > 0 for std in re.findall(r"'reward_std': '([\d.]+)'", output))


QWEN = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template of Qwen2.5 for a chat without a system message."""


def test_the_types_of_a_folder_are_those_of_its_prompt(tmp_path: Path) -> None:
    """Two types of ms-swift have the architecture of the model, and one of them many templates."""
    make_model("qwen2", 0).save_pretrained(tmp_path / "policy")
    tokenizer = make_tokenizer()
    tokenizer.chat_template = QWEN
    tokenizer.save_pretrained(tmp_path / "policy")
    rows = ROOT / "examples" / "arena.jsonl"
    small = "--max_steps 1 --gradient_accumulation_steps 1 --per_device_train_batch_size 2"
    for command in (
        f"rag-rewards prepare rows {rows} -o train.jsonl -r arena -t ms-swift",
        "rag-rewards init ms-swift -r arena --policy policy --data train.jsonl -o run",
        f"run/train.sh {small} --num_generations 2 --max_completion_length 16 --use_cpu true "
        "--load_from_cache_file false",
    ):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert "    --model_type qwen2\n    --template qwen2_5\n" in (
        (tmp_path / "run" / "train.sh").read_text()
    )
    assert "'global_step/max_steps': '1/1'" in ran.stdout + ran.stderr


def test_a_folder_with_a_prompt_of_its_own_gets_a_note(tmp_path: Path) -> None:
    save(tmp_path / "policy")
    ran = follow("rag-rewards init ms-swift -r arena --policy policy -o run", tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    script = (tmp_path / "run" / "train.sh").read_text()
    assert "# add --model_type and --template" in script
    assert "    --model_type" not in script

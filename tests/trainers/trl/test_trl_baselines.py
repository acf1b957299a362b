"""SFT and DPO with the scripts of `rag-rewards init`: the commands of docs/start-training.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rag_rewards.cli.init import check

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import init
from walkthrough import commands, follow

RIVERS = {"Paris": "Seine", "Lyon": "Rhône", "Vienna": "Danube", "London": "Thames"}
SMALL = (
    "--use_cpu --bf16 False --max_steps 1 --gradient_accumulation_steps 2 --report_to none "
    "--logging_steps 1 --save_strategy no"
)


def rollouts() -> list[dict[str, object]]:
    """Return a right, a wrong and an abstaining response to each question."""
    return [
        {
            "group": city,
            "question": f"Which river runs through {city}?",
            "documents": [{"text": f"The {river} runs through {city}."}],
            "answers": [river],
            "response": f"<think>I read document 1.</think>\\boxed{{{answer}}}",
        }
        for city, river in RIVERS.items()
        for answer in (river, "Nile", "I don't know")
    ]


def test_the_commands_of_the_page_train_one_step(tmp_path: Path) -> None:
    from tiny_models import save

    save(tmp_path / "path" / "to" / "model")
    lines = (json.dumps(row) for row in rollouts())
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines), "utf-8")
    for command in commands("Supervised fine-tuning and DPO"):
        is_training = command.startswith("python")
        ran = follow(f"{command} {SMALL}" if is_training else command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
        if is_training:
            assert "'loss': " in ran.stdout
    for name in ("rft-model", "dpo-model"):
        assert (tmp_path / name / "model.safetensors").is_file()
        assert (tmp_path / name / "tokenizer.json").is_file()
    [first, *_] = (tmp_path / "pairs.jsonl").read_text("utf-8").splitlines()
    assert set(json.loads(first)) >= {"prompt", "chosen", "rejected"}


def test_the_script_of_lear_trains_an_adapter(tmp_path: Path) -> None:
    from tiny_models import save

    save(tmp_path / "path" / "to" / "model")
    rows = [{"prompt": f"Where is {city}?", "completion": river} for city, river in RIVERS.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    init = "rag-rewards init sft -r lear --policy path/to/model --data train.jsonl -o run"
    for command in (init, f"python run/train.py --output_dir adapter {SMALL}"):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    adapter = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))
    assert adapter["r"] == 16


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_the_trainer_accepts_every_setting(tmp_path: Path, method: str) -> None:
    for recipe in ("arena", "truthrl"):
        ran = init(method, recipe, tmp_path / recipe)
        assert (ran.returncode, ran.stderr) == (0, "")
    path = tmp_path / "arena" / "train.py"
    path.write_text(path.read_text().replace("warmup_steps", "warm_steps"))
    assert check(method, tmp_path / "arena") == "warm_steps"

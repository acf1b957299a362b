"""The command of docs/ms-swift.md with a tiny model: two steps on the CPU."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from processes import WAIT_SECONDS
from rag_rewards_adapters.callables import batch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "models"))
PAGE = (ROOT / "docs" / "ms-swift.md").read_text("utf-8")
TINY = (
    "--model model --model_type qwen2 --template qwen2_5 --tuner_type full --torch_dtype float32 "
    "--num_generations 4 --per_device_train_batch_size 4 --gradient_accumulation_steps 1 "
    "--max_completion_length 24 --max_steps 2 --logging_steps 1 --save_strategy no "
    "--use_vllm false --output_dir out --add_version false --report_to none "
    "--load_from_cache_file false --dataloader_num_workers 0 --log_completions true "
    "--reward_funcs arena long --external_plugins plugin.py more.py"
)
"""Options for a small run, and a reward that differs even for random texts."""
LONG = {"eta": -1.0, "cost.budget": 1}


def block(language: str) -> str:
    match = re.search(rf"^```{language} ms-swift\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def arguments() -> list[str]:
    """Return the arguments of the page, with the options of a small run."""
    words = shlex.split(block("sh").replace("\\\n", " "))
    assert words[:2] == ["swift", "rlhf"]
    small = shlex.split(TINY)
    page_words: list[str] = []
    skipping = False
    for word in words[2:]:
        if word.startswith("--"):
            skipping = word in small
        if not skipping:
            page_words.append(word)
    return [*page_words, *small]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_models import make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("swift")
    make_model("qwen2").save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    row = json.loads(block("json"))
    rows = [json.dumps({**row, "id": str(i)}) for i in range(4)]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    (folder / "plugin.py").write_text(block("python"), "utf-8")
    (folder / "more.py").write_text(
        "from rag_rewards_adapters.ms_swift import register\n"
        f'register("long", recipe="rag-total", settings={LONG!r})\n'
    )
    command = [sys.executable, "-m", "swift.cli.rlhf", *arguments()]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_rewards_of_a_real_run(folder: Path) -> None:
    """Check the logged completions, their rewards and advantages, and the means of a step."""
    logged = [line for line in lines(folder / "out/logging.jsonl") if "reward" in line]
    completions = {line["step"][0]: line for line in lines(folder / "out/completions.jsonl")}
    assert len(logged) == len(completions) == 2
    row = json.loads(block("json"))
    row.pop("messages")
    for step, line in zip(logged, completions.values(), strict=True):
        rows = [{**row, "response": text} for text in line["completion"]]
        arena = batch("arena", settings={"bonus.value": 5})(rows)
        long = batch("rag-total", settings=LONG)(rows)
        assert (line["arena"], line["long"]) == (pytest.approx(arena), pytest.approx(long))
        summed = [a + b for a, b in zip(arena, long, strict=True)]  # type: ignore[operator]
        scale = stdev(summed) + 1e-4
        assert stdev(summed) > 0.1
        golden = [(reward - fmean(summed)) / scale for reward in summed]
        assert line["advantages"] == pytest.approx(golden, abs=1e-4)
        assert step["rewards/long/mean"] == pytest.approx(fmean(line["long"]), abs=1e-6)

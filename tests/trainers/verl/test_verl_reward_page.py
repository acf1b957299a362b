"""The settings of docs/verl.md in the real trainer."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reward_batches import (
    ResponseRow,
    batch_of,
    compose_config,
    saved_tokenizer,
    score_batch,
    worker_of,
)
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "verl.md").read_text("utf-8")
BLOCKS = [block.split() for block in re.findall(r"^```flags verl\n(.*?)^```", PAGE, re.S | re.M)]


@pytest.mark.parametrize("flags", BLOCKS, ids=lambda flags: flags[0].rpartition(".")[2])
def test_the_flags_are_valid_and_start_a_reward_worker(flags: list[str], tmp_path: Path) -> None:
    saved_tokenizer(tmp_path)
    config = compose_config(tmp_path, *flags)
    if any("reward_kwargs" in flag for flag in flags):
        assert asyncio.run(_made(config)).reward_manager
    else:
        assert get_adv_estimator_fn(config.algorithm.adv_estimator)


async def _made(config: object) -> object:
    return worker_of(config)


def test_the_first_flags_score_a_rollout(tmp_path: Path) -> None:
    tokenizer = saved_tokenizer(tmp_path)
    text = "<relevance>[1]</relevance><analysis>1.</analysis><answer>Seine</answer>"
    (result,) = score_batch(
        compose_config(tmp_path, *BLOCKS[0]), batch_of(tokenizer, [ResponseRow(text)])
    )
    assert result["reward_extra_info"]["acc"] == 1.0


def test_the_command_that_checks_the_plugin() -> None:
    [command] = re.findall(r"^```sh verl\n(.*?)^```", PAGE, re.S | re.M)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert "'rag_group': 'registered'" in done.stdout, done.stderr

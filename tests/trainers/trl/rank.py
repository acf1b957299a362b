"""Train on one rank of two, and write a report. `python rank.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rag_rewards_adapters.displacement import DisplacementMonitor
from rag_rewards_adapters.trl import RagReward
from test_trl_training import RecordingReward, clr_twin
from trl_runs import rows, says, trainer

from rag_rewards.errors import UsageError


def error_of_divided_group(folder: Path) -> str:
    """Return the error of `bind` for a group of 4 with members on both ranks."""
    reward = RagReward("ctrl-rag")
    run = trainer(folder, reward, args={"per_device_train_batch_size": 2})
    try:
        reward.bind(run)
    except UsageError as error:
        return str(error)
    return ""


def displacement(folder: Path) -> dict[str, Any]:
    """Return the changes that the monitor measures on this rank, and the logged mean."""
    reward = RagReward("naive-grpo", displacement_every=1)
    changes: list[float] = []
    step = DisplacementMonitor.step

    async def recorded(*arguments: Any) -> list[Any]:
        own = await step(*arguments)
        changes.extend(each.change for each in own)
        return own

    DisplacementMonitor.step = recorded
    texts = says("<answer>Seine</answer>", "no idea")
    run = trainer(folder, reward, train_dataset=rows(8), rollout_func=texts)
    reward.bind(run)
    run.train()
    logged = run.state.log_history[1]["naive-grpo/right_logprob_change"]
    return {"changes": changes, "logged": logged}


def main(folder: Path) -> None:
    refused = error_of_divided_group(folder)
    reward = RecordingReward("ctrl-rag-clr")
    run = trainer(folder, reward, train_dataset=rows(8), args={"max_steps": 2})
    reward.bind(run)
    reward.twin = clr_twin(run)
    run.train()
    report = {
        "refused": refused,
        "wrapped": type(run.model_wrapped).__name__,
        "history": reward.history,
        "expected": reward.expected,
        "versions": reward.versions,
        "rewards": list(run._logs["rewards"]["ctrl-rag-clr"]),
        "displacement": displacement(folder),
        "logged": run.state.log_history[1],
    }
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Train with turn credit on one rank of two, and write a report. `python rank_turns.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rag_rewards_adapters.trl import RagReward
from test_trl_turn_credit import ENVIRONMENT, RETURN, rollouts, rows, turn_trainer

MEMBERS = ((0.8, 1.1, 1.0), (-0.2, 0.0), (0.3, 1.0), (0.5, 0.2, 0.0))
"""The rewards of the turns of a group of four, of which each rank has two."""


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    run = turn_trainer(
        folder,
        RagReward(ENVIRONMENT),
        rollout_func=rollouts(replace(RETURN, rewards=MEMBERS), first=2 * rank),
        credit="return",
        args={"num_generations": 4, "per_device_train_batch_size": 2, "max_steps": 2},
        train_dataset=rows(8),
    )
    advantages = []
    generate = run._generate_and_score_completions

    def recorded(inputs: Any) -> Any:
        output = generate(inputs)
        advantages.append(output["advantages"].tolist())
        return output

    run._generate_and_score_completions = recorded
    run.train()
    report = {
        "wrapped": type(run.model_wrapped).__name__,
        "advantages": advantages,
        "logged": run.state.log_history[0],
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The warning for a recipe of search agents in a trainer without searches."""

from __future__ import annotations

from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import rows, says, trainer

SEARCHED = (
    "<think>a</think><search>Paris</search>\n\n<information>Doc 1(Title: P) On the Seine."
    "</information>\n\n<think>b</think><answer>Seine</answer>"
)
ALONE = "<think>b</think><answer>Seine</answer>"
WARNING = "none of the first 16 rollouts has search results, but search-r1 reads searches"


@pytest.mark.parametrize(("text", "warnings"), [(ALONE, 1), (SEARCHED, 0)])
def test_rollouts_without_search_results_are_reported_once(
    text: str, warnings: int, tmp_path: Any, caplog: Any
) -> None:
    reward = RagReward("search-r1")
    args = {"max_steps": 3, "max_completion_length": 96, "per_device_train_batch_size": 8}
    data = rows(4, question="Which river runs through Paris?").remove_columns("prompt")
    data = data.add_column("prompt", [f"Question {i}?" for i in range(4)])
    run = trainer(tmp_path, reward, rollout_func=says(text), train_dataset=data, args=args)
    reward.bind(run)
    run.train()
    messages = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith(WARNING) for message in messages) == warnings

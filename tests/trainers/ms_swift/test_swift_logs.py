"""Means of components in TensorBoard, which the environment of ms-swift contains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from rag_rewards_adapters.ms_swift import reward_class
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_components_are_logged_beside_the_events_of_the_trainer(tmp_path: Path) -> None:
    args = SimpleNamespace(report_to=["tensorboard"], logging_dir=str(tmp_path))
    reward = reward_class("arena", recipe="arena")(args=args)
    right = "<relevance>[1]</relevance><analysis>1</analysis><answer>Seine</answer>"
    columns = {"answers": [["Seine"]] * 2, "supporting": [[1]] * 2, "prompt_id": ["p", "p"]}
    for updates in (0, 1):
        state = SimpleNamespace(global_step=updates)
        assert reward([right, "no"], trainer_state=state, **columns) == [13.0, 0.0]
    events = EventAccumulator(str(tmp_path / "rag_rewards")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("arena/bonus")] == [
        (1, 5.0),
        (2, 5.0),
    ]

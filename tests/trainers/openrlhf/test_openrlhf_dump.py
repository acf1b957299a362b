"""The dump of the agent executor in OpenRLHF's own rollout actor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollout_actor import Engine, Trainer
from test_openrlhf_agent import CITED, agent, rewards, run, sample_prompt, trainer  # noqa: F401

from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer


def test_a_group_is_reproduced_without_the_engine(
    trainer: Trainer,  # noqa: F811
    agent: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "rollouts.jsonl"
    arguments = f'recipe="ctrl-rag", settings={{"threshold": None}}, dump={str(path)!r}'
    actor = trainer.actor(agent(arguments), Engine(CITED))
    outputs = run(sample_prompt(actor))
    actor.executor.scoring.scorer(None).dump.flush()
    lines = path.read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["reward"] for row in rows] == rewards(outputs)
    assert len({row["group"] for row in rows}) == 1
    assert rows[0]["group"].startswith("row-7/")
    assert rows[0]["supporting"] == [1]
    scores = Scorer.load("ctrl-rag", {"threshold": None}).score_each(list(map(decode_row, lines)))
    assert [score.value for score in scores] == [row["reward"] for row in rows]

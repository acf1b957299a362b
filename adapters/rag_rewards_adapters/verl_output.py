"""An output of verl's agent loops with a value at each token. It imports verl."""

from __future__ import annotations

from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput


class TurnOutput(AgentLoopOutput):  # type: ignore[misc]
    """An AgentLoopOutput whose `rm_scores` are not the reward at the last token.

    rag_token_values  the value of each token of the response
    """

    rag_token_values: list[float]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of a trajectory, as verl stores them."""
        output: dict[str, Any] = super().as_dict()
        values = output.pop("rag_token_values")
        output["rm_scores"] = torch.tensor(values, dtype=torch.float32)
        return output

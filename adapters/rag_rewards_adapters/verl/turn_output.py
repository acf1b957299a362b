"""An output of verl's agent loops with a value at each token. It imports verl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from rag_rewards.errors import UsageError


class TurnOutput(AgentLoopOutput):  # type: ignore[misc]
    """An AgentLoopOutput whose `rm_scores` are not the reward at the last token.

    rag_token_values  the value of each token of the response
    """

    rag_token_values: list[float]

    @classmethod
    def of(cls, output: Any, values: Sequence[float]) -> TurnOutput:
        """Return an output with these values.

        Raises UsageError for another class than AgentLoopOutput, whose fields would be lost.
        """
        if type(output) is not AgentLoopOutput:
            raise UsageError(
                f"the inner agent loop returns {type(output).__name__}: rewards of turns require "
                "AgentLoopOutput"
            )
        # A default that was changed in place is not in the set of fields, so all are copied.
        result: TurnOutput = cls.model_construct(
            _fields_set={*output.model_fields_set, "extra_fields", "rag_token_values"},
            **{name: getattr(output, name) for name in AgentLoopOutput.model_fields},
            rag_token_values=list(values),
        )
        return result

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of a trajectory, as verl stores them."""
        output: dict[str, Any] = super().as_dict()
        values = output.pop("rag_token_values")
        output["rm_scores"] = torch.tensor(values, dtype=torch.float32)
        return output

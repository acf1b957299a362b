"""What the trainers with the KL penalty k2 in TRL and ms-swift have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rag_rewards.training.kl import k2


class PenaltyTrainer:
    """A part of a GRPO trainer that replaces its KL penalty k3 by `penalty`.

    Both trainers compute k3 within their loss, in the code that calls
    `_get_per_token_logps_and_entropies`, and add it if `beta` is not 0. A subclass computes that
    loss with `self.own_loss()` and adds its own penalty to it.
    """

    penalty = staticmethod(k2)
    """Estimator of the KL divergence of each token, from log π and log π_ref."""
    beta: float
    _policy_logps: Any = None

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **options: Any) -> Any:
        outputs = super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
            *arguments, **options
        )
        self._policy_logps = outputs[0]
        return outputs

    @contextmanager
    def own_loss(self) -> Iterator[None]:
        """Compute the trainer's own loss without k3."""
        beta, self.beta = self.beta, 0.0
        try:
            yield
        finally:
            self.beta = beta

    def pop_policy_logps(self) -> Any:
        """Return log π of the tokens in the last forward pass, and release it."""
        logps, self._policy_logps = self._policy_logps, None
        return logps

"""ARENA's ablations in the tiny world: naive GRPO against the full reward, k2 against k3."""

import sys
from collections.abc import Callable
from typing import Any

from experiment import Experiment, Variant, main

BETA = 0.04


def penalised(estimator: str) -> Callable[[], Any]:
    """GRPOTrainer with a KL penalty of this package's: TRL itself has k3 alone."""
    return {"k2": _with_k2, "k3": _with_k3}[estimator]


def _with_k2() -> Any:
    return _trainer("k2")


def _with_k3() -> Any:
    return _trainer("k3")


def _trainer(estimator: str) -> Any:
    from trl import GRPOTrainer

    from rag_rewards.training import kl

    penalty = getattr(kl, estimator)

    class Penalised(GRPOTrainer):
        """The trainer's own loss without its KL term, and ours in its place."""

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            import torch

            beta, self.beta = self.beta, 0.0
            try:
                loss = super()._compute_loss(model, inputs)
            finally:
                self.beta = beta
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            mask = inputs["completion_mask"]
            logps = self._get_per_token_logps_and_entropies(model, ids, seen, mask.shape[1])[0]
            divergence = penalty(logps, inputs["ref_per_token_logps"]) * mask
            self._metrics["train"][estimator].append((divergence.sum() / mask.sum()).item())
            return loss + beta * divergence.sum() / mask.sum()

    return Penalised


def variant(name: str, recipe: str, estimator: str | None = None, **more: Any) -> Variant:
    kl = {"trainer": {"beta": BETA}, "kind": penalised(estimator)} if estimator else {}
    return Variant(name, {"recipe": recipe}, steps=60, **kl, **more)


EXPERIMENT = Experiment(
    name="arena",
    title="ARENA: the full reward, and how far the policy may move",
    form="arena",
    variants=(
        Variant("base", None),
        variant("naive (format + accuracy)", "naive-grpo"),
        variant("full", "arena"),
        variant("full, k2 penalty", "arena", "k2"),
        variant("full, k3 penalty", "arena", "k3"),
    ),
    columns=("format", "answer", "relevance", "abstains"),
    panels=("answer", "relevance", "abstains"),
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

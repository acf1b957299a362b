"""ARENA's ablations in the tiny world: naive GRPO against the full reward, k2 against k3."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main

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


def moved(model: Any, words: Any, fresh: Sequence[Any], temperature: float, start: Path) -> Figures:
    """How far the policy went from its base: KL(policy, base) a token, in nats, over all words.

    Along responses of the policy to a part of the questions.
    """
    import torch
    from tiny_world.formats import ARENA
    from tiny_world.model import load
    from tiny_world.play import rollouts

    before, _ = load(start)
    said = rollouts(model, words, ARENA, fresh[:200], temperature=temperature)
    total, count = 0.0, 0
    for each in said:
        prompt = words.encode(each.prompt)
        ids = [*prompt, *words.encode(each.response, add_special_tokens=False), words.eos_token_id]
        with torch.no_grad():
            now, then = (
                torch.log_softmax(net(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1], -1)
                for net in (model.eval(), before.eval())
            )
        total += float((now.exp() * (now - then)).sum())
        count += len(now)
    return {"KL to base": total / count}


def variant(name: str, recipe: str, estimator: str | None = None, **more: Any) -> Variant:
    kl = {"trainer": {"beta": BETA}, "kind": penalised(estimator)} if estimator else {}
    return Variant(name, {"recipe": recipe}, steps=60, further=moved, **kl, **more)


EXPERIMENT = Experiment(
    name="arena",
    title="ARENA: the full reward, and how far the policy may move",
    form="arena",
    variants=(
        Variant("base", None, further=moved),
        variant("naive (format + accuracy)", "naive-grpo"),
        variant("full", "arena"),
        variant("full, k2 penalty", "arena", "k2"),
        variant("full, k3 penalty", "arena", "k3"),
    ),
    columns=("format", "answer", "relevance", "abstains", "KL to base"),
    panels=("answer", "relevance", "abstains"),
    seeds=(0, 2, 3),
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""A trainer's columns, labels and extra information, as rollouts."""

from rag_rewards.labels import GOLD, HAPPENED, READ, gold_of, opened, plain, rollout_of

__all__ = ["GOLD", "HAPPENED", "READ", "gold_of", "opened", "plain", "rollout_of"]

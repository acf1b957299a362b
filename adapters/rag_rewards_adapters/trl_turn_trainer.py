"""The trainer with an advantage for each turn, by the name that training scripts import."""

from rag_rewards_adapters.trl.trainers import TurnGRPOTrainer as TurnGRPOTrainer

"""The trainers with the KL penalty k2, by the name that training scripts import."""

from rag_rewards_adapters.trl.trainers import K2Trainer as K2Trainer
from rag_rewards_adapters.trl.trainers import K2TurnTrainer as K2TurnTrainer

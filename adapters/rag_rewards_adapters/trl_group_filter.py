"""The trainer without groups without signal, by the name that training scripts import."""

from rag_rewards_adapters.trl.trainers import FilteredGRPOTrainer as FilteredGRPOTrainer
from rag_rewards_adapters.trl.trainers import GroupFilter as GroupFilter

"""Recipes as reward functions of TRL's GRPOTrainer, and trainers with further methods.

from rag_rewards_adapters.trl import RagReward

reward = RagReward("ctrl-rag")
trainer = GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=rows)
reward.bind(trainer)
trainer.train()
"""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)

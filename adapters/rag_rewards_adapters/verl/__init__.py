"""verl: rewards as plain functions, a reward manager, an agent loop and replay buffers.

    reward.custom_reward_function.path=pkg://rag_rewards_adapters.verl
    +reward.custom_reward_function.reward_kwargs.recipe=arena

verl also loads this file by its path, as a module with another name.
"""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names("rag_rewards_adapters.verl")

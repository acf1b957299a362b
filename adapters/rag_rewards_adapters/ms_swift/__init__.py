"""Recipes as reward functions of ms-swift's GRPO.

A plugin file of two lines,

    from rag_rewards_adapters.ms_swift import register
    register("arena", settings={"bonus.value": 5})

is used with `--external_plugins plugin.py --reward_funcs arena`. The columns of the data set have
the names of a row's fields (`answers`, `documents`, `supporting`, …), beside `messages`.
"""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)

"""Reward functions for reinforcement learning of retrieval-augmented generators.

>>> import rag_rewards as rr
>>> row = {"response": "<think>…</think><answer>Paris</answer>", "answers": "Paris"}
>>> rr.recipe("naive-grpo")([rr.decode_row(row)])[0].value
2.0
"""

from rag_rewards.public_names import public_names

__version__ = "0.8.0"
__getattr__, __dir__, __all__ = public_names(__name__)
__all__ += ["__version__"]

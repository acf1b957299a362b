"""Rewards. Each is a plain function of plain values and a frozen dataclass that calls it."""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)

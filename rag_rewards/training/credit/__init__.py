"""Credit: from the rewards of turns to the advantages of turns.

Each method takes one group: for each member, the rewards of its turns. An entry is None for a turn
without a reward, and a member is None if it is unscored. The last entry is the outcome, and the
others are process rewards. The result contains one advantage per turn, and None for an unscored
member, which does not affect its group. The order of the members has no effect.

A group of one gets the advantage 0. With `single="raw"`, it gets its rewards without normalization,
as in verl. Each method normalizes within the group, so the trainer must not normalize again.
"""

from rag_rewards.training.credit.faithful import faithful_advantages, faithful_modulation
from rag_rewards.training.credit.gigpo import GigpoCredit, gigpo
from rag_rewards.training.credit.groups import METHODS, credit_of_groups
from rag_rewards.training.credit.mt_grpo import mt_grpo
from rag_rewards.training.credit.pools import GdpoPreset, gdpo, igpo, whiten
from rag_rewards.training.credit.returns import return_to_go
from rag_rewards.training.credit.settings import Credit, CreditSettings
from rag_rewards.training.credit.tokens import place, spread

__all__ = [
    "METHODS",
    "Credit",
    "CreditSettings",
    "GdpoPreset",
    "GigpoCredit",
    "credit_of_groups",
    "faithful_advantages",
    "faithful_modulation",
    "gdpo",
    "gigpo",
    "igpo",
    "mt_grpo",
    "place",
    "return_to_go",
    "spread",
    "whiten",
]

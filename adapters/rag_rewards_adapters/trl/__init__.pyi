# The public names of the package. `public_names` reads them when the package is imported.

from rag_rewards_adapters.trl.reward import AsyncRagReward as AsyncRagReward
from rag_rewards_adapters.trl.reward import RagReward as RagReward
from rag_rewards_adapters.trl.trainers import FilteredGRPOTrainer as FilteredGRPOTrainer
from rag_rewards_adapters.trl.trainers import GroupFilter as GroupFilter
from rag_rewards_adapters.trl.trainers import K2Trainer as K2Trainer
from rag_rewards_adapters.trl.trainers import K2TurnTrainer as K2TurnTrainer
from rag_rewards_adapters.trl.trainers import TurnGRPOTrainer as TurnGRPOTrainer

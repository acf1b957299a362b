# The public names of the package. `public_names` reads them when the package is imported.

from rag_rewards_adapters.ms_swift.plugin import register as register
from rag_rewards_adapters.ms_swift.plugin import register_search as register_search
from rag_rewards_adapters.ms_swift.plugin import use_k2_penalty as use_k2_penalty
from rag_rewards_adapters.ms_swift.reward import AsyncRagReward as AsyncRagReward
from rag_rewards_adapters.ms_swift.reward import Options as Options
from rag_rewards_adapters.ms_swift.reward import RagReward as RagReward
from rag_rewards_adapters.ms_swift.reward import reward_class as reward_class

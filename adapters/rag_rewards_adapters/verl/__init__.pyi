# The public names of the package. `public_names` reads them when the package is imported.

from rag_rewards_adapters.verl.credit import grpo_clip_std as grpo_clip_std
from rag_rewards_adapters.verl.group import RagGroupAgentLoop as RagGroupAgentLoop
from rag_rewards_adapters.verl.reward_function import ComputeScore as ComputeScore
from rag_rewards_adapters.verl.reward_function import compute_score as compute_score
from rag_rewards_adapters.verl.reward_function import compute_score_async as compute_score_async

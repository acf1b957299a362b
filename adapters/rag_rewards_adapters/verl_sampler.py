"""The replay buffers, by the name that configurations of verl use."""

from rag_rewards_adapters.verl.sampler import RagReplayBuffer as RagReplayBuffer
from rag_rewards_adapters.verl.sampler import RagReplayBufferAsync as RagReplayBufferAsync

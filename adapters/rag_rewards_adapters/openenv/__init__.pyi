# The public names of the package. `public_names` reads them when the package is imported.

from rag_rewards_adapters.openenv.environment import SearchAction as SearchAction
from rag_rewards_adapters.openenv.environment import SearchClient as SearchClient
from rag_rewards_adapters.openenv.environment import SearchEnvironment as SearchEnvironment
from rag_rewards_adapters.openenv.environment import SearchObservation as SearchObservation
from rag_rewards_adapters.openenv.environment import environments as environments
from rag_rewards_adapters.openenv.rubric import RagRubric as RagRubric
from rag_rewards_adapters.openenv.rubric import turn_of as turn_of
from rag_rewards_adapters.openenv.tools import ScoredSearchTools as ScoredSearchTools
from rag_rewards_adapters.openenv.tools import SearchTools as SearchTools

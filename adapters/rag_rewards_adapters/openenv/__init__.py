"""OpenEnv: a recipe as a rubric, an environment with a search engine, and its tools for TRL.

    from rag_rewards_adapters.openenv import RagRubric

    rubric = RagRubric("search-r1", settings={"dialect": "tools"})    # in your own environment

`SearchEnvironment` is an environment with such a rubric, `SearchClient` its client, and
`ScoredSearchTools` its tools in TRL's GRPOTrainer. `rag-rewards init openenv` writes the folder of
an environment, which `openenv push` publishes.

The package is `openenv`, which TRL imports. `openenv-core` is an older one with the same modules.
"""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)

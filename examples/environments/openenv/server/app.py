"""The server of the environment: uvicorn server.app:app --port 8000"""

from pathlib import Path

import uvicorn
from openenv.core.env_server.http_server import create_app
from rag_rewards_adapters.openenv import SearchAction, SearchObservation, environments

from .search import search

ROWS = Path(__file__).resolve().parents[1] / "train.jsonl"
factory = environments(ROWS, "search-r1", settings={'dialect': 'tools'}, search=search)
# Search-R1, authors' code at a14dc3a: train_grpo_format.sh: 512 prompts with 5 rollouts
SESSIONS = 2560
app = create_app(
    factory, SearchAction, SearchObservation, env_name="rag_search_r1", max_concurrent_envs=SESSIONS
)


def main() -> None:
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()

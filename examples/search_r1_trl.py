"""Train a search agent in TRL with the reward of Search-R1, in place of a copied `qa_em.py`.

python examples/search_r1_trl.py --model_name_or_path MODEL --dataset_name DATA --output_dir DIR

The copied reward compares the last <answer> of the whole text with the gold answers. It also pays
for an answer section in a page or in results that the policy wrote itself, for one in thinking that
is never closed, and for several guesses of which the last is right. For other responses, the recipe
gives the same reward. It does not pay for the first three, and with `hardened=True` for none.

DATA has the columns `question` and `golden_answers`, and SEARCH_URL is a retrieval server of
Search-R1. If it fails in the first batch or in three batches in a row, the training ends. The
options of GRPOConfig, ModelConfig and ScriptArguments can be used.
"""

import json
import os
from urllib.request import Request, urlopen

from datasets import load_dataset
from rag_rewards_adapters.trl import RagReward
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

import rag_rewards as rr

PROMPT = rr.RECIPES["search-r1"].baselines["tools"]


class Search:
    """The search tool of a rollout. RagReward leaves a rollout with `environment_error` unscored.

    TRL gives the policy the errors of tools, so that a rollout would get the reward 0 without it.
    """

    def reset(self, **_: object) -> None:
        """Begin a rollout."""
        self.environment_error: str | None = None

    def search(self, query: str) -> str:
        """Search for documents.

        Args:
            query: A question or a few keywords.

        Returns:
            The documents in JSON.
        """
        if not isinstance(query, str):
            raise ValueError(f"query={query!r}: it must be text")
        try:
            return documents(query)
        except Exception as error:
            self.environment_error = f"{type(error).__name__}: {error}"
            raise


def documents(query: str) -> str:
    """Return the documents that the retrieval server finds."""
    url = os.environ.get("SEARCH_URL", "http://127.0.0.1:8000/retrieve")
    body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=60) as reply:  # noqa: S310
        [pages] = json.load(reply)["result"]
    return json.dumps([{"text": page["document"]["contents"]} for page in pages])


def prompt(row: dict) -> dict:
    return {"prompt": PROMPT.messages(rr.Rollout(question=row["question"], response=""))}


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
    # TRL counts the results of searches too. Its default, 512 tokens, would drop most of them.
    parser.set_defaults(max_completion_length=4096, max_tool_calling_iterations=3)
    data, args, model = parser.parse_args_and_config()
    rows = load_dataset(data.dataset_name, split=data.dataset_train_split).map(prompt)
    reward = RagReward("search-r1", columns={"answers": "golden_answers"})
    name = model.model_name_or_path
    trainer = GRPOTrainer(name, reward, args, rows, environment_factory=Search)
    reward.bind(trainer)
    trainer.train()

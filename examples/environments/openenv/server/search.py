"""The search engine of a training with the reward search-r1: edit this file.

The policy searches in the dialect tools: write it into the prompts with
`rag-rewards prepare --prompt tools` if the recipe has prompts of dialects.
"""

import json
from pathlib import Path

from rag_rewards.errors import UsageError
from rag_rewards.text.bm25 import Index

# your setup: a JSONL file with {"id": ..., "title": ..., "text": ...} in each line, which BM25
# searches. To use another search engine, replace all code of this file by your own `search`.
CORPUS = "corpus.jsonl"
RESULTS = 3

if not CORPUS:
    raise UsageError(
        f"the policy has no search engine: edit {__file__}: set CORPUS to a JSONL file of "
        "documents, or replace the code by your own function search(query)"
    )
with (Path(__file__).resolve().parent / CORPUS).open(encoding="utf-8") as file:
    documents = [json.loads(line) for line in file if line.strip()]
index = Index([f"{document.get('title') or ''} {document['text']}" for document in documents])


def search(query: str) -> list[dict]:
    """Return the documents for a query of the policy, each with a `text`."""
    return [documents[i] for i in index.best(query, RESULTS)]

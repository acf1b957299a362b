"""The rollouts of R1-Searcher in the folder `shared`, and what a person read in 30 of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

LISTED: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("r1_searcher.jsonl").read_text("utf-8").splitlines()
]
"""Rollouts by file and position. For each search, digests of its query and of its documents."""


def digest(text: str) -> str:
    """Return the digest of a text without outer white space."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def rollouts(shared: Path, name: str) -> list[dict[str, Any]]:
    """Return the rollouts of a file as rows of this package."""
    lines = (shared / "data" / "r1_searcher" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [
        {
            "id": f"{name}-{position}",
            "question": raw["question"],
            "answers": raw["answer"],
            "response": raw["gen_text_store"],
            "response_prefix": "<think>",
        }
        for position, raw in enumerate(map(json.loads, lines))
    ]

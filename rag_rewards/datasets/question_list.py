"""Files with a list of questions, for example questions that are left out."""

from __future__ import annotations

from hashlib import blake2b

from rag_rewards.datasets.records import Records
from rag_rewards.errors import UsageError
from rag_rewards.text.normalize import squad


def question_digest(text: str) -> bytes:
    """Return the digest of the text of a question, see `digest`."""
    return blake2b((squad(text) or text).encode("utf-8", "replace"), digest_size=8).digest()


def questions_in(path: str) -> frozenset[bytes]:
    """Return the digests of the questions of a file. Raises UsageError for another file."""
    digests: set[bytes] = set()
    with Records(path) as records:
        for number, row in records:
            text = row.get("question") if isinstance(row, dict) else None
            if not isinstance(text, str):
                raise UsageError(f"{path}: row {number} has no `question`: add it")
            digests.add(question_digest(text))
    return frozenset(digests)

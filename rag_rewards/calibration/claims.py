"""Rows with a premise and a claim, for the calibration of entailment models.

    {"premise": "…", "claim": "…", "label": true, "scores": {"model": 0.93}}

`premise` can be called `source`, and can be a list of documents; `claim` can be called `summary`.
"""

from __future__ import annotations

import msgspec

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.rows import decode_line, line_key
from rag_rewards.text.statements import sentences


class Claim(msgspec.Struct, frozen=True):
    """A premise and a claim, under one of the names that data sets use."""

    premise: str | list[str] | None = None
    source: str | list[str] | None = None
    claim: str | None = None
    summary: str | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """The premise and the claim. Raises DataError if one of them is missing or empty."""
        premise = self.source if self.premise is None else self.premise
        claim = self.summary if self.claim is None else self.claim
        text = premise if isinstance(premise, str) else "\n\n".join(premise or ())
        if not text.strip():
            raise DataError("missing or empty; add the text that supports the claim", "premise")
        if not (claim or "").strip():
            raise DataError("missing or empty; add the text to check", "claim")
        return text, str(claim)


_CLAIM = msgspec.json.Decoder(Claim)


def read_claim(line: bytes) -> tuple[str, str]:
    """Return the premise and the claim of a row. Raises a RolloutError for an invalid row."""
    claim = decode_line(line, _CLAIM)  # type: ignore[type-var]
    if isinstance(claim, RolloutError):
        raise claim
    return claim.texts


def claim_key(line: bytes) -> str | None:
    """Return the group of a row or, without one, its premise. Claims about it are not independent.

    >>> claim_key(b'{"premise": "A.", "claim": "B."}')
    'A.'
    """
    key = line_key(line)
    if key is not None:
        return key
    try:
        return read_claim(line)[0]
    except RolloutError:
        return None


def claim_statements(claim: str) -> list[str]:
    """Return the sentences and list items of a claim. A piece without a word is left out.

    >>> claim_statements("A won. B lost. …")
    ['A won.', 'B lost.']
    """
    pieces = [piece.strip() for piece in sentences(claim)]
    return [piece for piece in pieces if any(map(str.isalnum, piece))] or [claim]

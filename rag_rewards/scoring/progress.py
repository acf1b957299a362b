"""The interface of progress displays."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from rag_rewards.rows import Totals

if TYPE_CHECKING:
    from rag_rewards.evidence.exchange import EvidenceUsage


class Progress(AbstractContextManager["Progress"], Protocol):
    """Shows the progress of a run. `position` is the number of bytes that were scored."""

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None: ...

"""The counts of a preparation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.datasets.gold import Gold

BROKEN = frozenset(("broken row", "not JSON"))
"""Reasons that are errors of the file. All other reasons are expected."""


@dataclass
class PrepareResult:
    """The counts of a preparation."""

    read: int = 0
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """The first row for each reason."""
    unsupported: Counter[str] = field(default_factory=Counter)
    """Rows that were written without `supporting`, by reason."""
    answerable: Counter[str] = field(default_factory=Counter)
    documents: Counter[int] = field(default_factory=Counter)
    """Rows by number of documents."""
    supporting: Counter[int] = field(default_factory=Counter)
    """Rows by number of supporting documents."""
    hops: Counter[Any] = field(default_factory=Counter)
    without_evidence: int = 0
    """Rows whose document is empty, because their response lacks the section."""
    missing: Counter[str] = field(default_factory=Counter)
    """Number of written rows without a field that the recipe reads and only the user can add."""

    @property
    def broken(self) -> int:
        """Number of rows that are not JSON or have a field of the wrong type."""
        return sum(self.dropped[reason] for reason in BROKEN)

    @property
    def not_sampled(self) -> int:
        """Number of usable rows that were not sampled."""
        return self.read - self.written - self.dropped.total()

    def count(self, gold: Gold) -> None:
        """Count a row that was written."""
        self.written += 1
        names = {True: "answerable", False: "unanswerable", None: "not known"}
        self.answerable[names[gold.answerable]] += 1
        self.documents[len(gold.documents)] += 1
        self.without_evidence += bool(gold.documents) and not any(d.text for d in gold.documents)
        if "hops" in gold.source_fields:
            self.hops[gold.source_fields["hops"]] += 1
        if gold.supporting is not None:
            self.supporting[len(gold.supporting)] += 1
        elif gold.unsupported:
            self.unsupported[gold.unsupported.reason] += 1

    def counts(self, *, with_evidence: bool) -> dict[str, Any]:
        """Return the counts of a data card."""
        return {
            "read": self.read,
            "written": self.written,
            "not chosen": self.not_sampled,
            "dropped": dict(self.dropped.most_common()),
            "first of each": self.examples,
            "kept without supporting": dict(self.unsupported.most_common()),
            "answerable": dict(self.answerable),
            **({"without": dict(self.missing)} if self.missing else {}),
            **({"without evidence": self.without_evidence} if with_evidence else {}),
            "rows by documents": dict(sorted(self.documents.items())),
            "rows by supporting documents": dict(sorted(self.supporting.items())),
            **({"rows by hops": dict(sorted(self.hops.items()))} if self.hops else {}),
        }

    @classmethod
    def from_counts(cls, counts: dict[str, Any]) -> PrepareResult:
        """Return the result with the counts of a data card."""
        return cls(
            read=counts["read"],
            written=counts["written"],
            dropped=Counter(counts["dropped"]),
            examples=counts["first of each"],
            unsupported=Counter(counts["kept without supporting"]),
            answerable=Counter(counts["answerable"]),
            missing=Counter(counts.get("without", {})),
            without_evidence=counts.get("without evidence", 0),
            documents=Counter(counts["rows by documents"]),
            supporting=Counter(counts["rows by supporting documents"]),
            hops=Counter(counts.get("rows by hops", {})),
        )

"""The counts of a preparation, and its data card: content, source, and how to reproduce it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_rewards.datasets.catalog import DataSet
from rag_rewards.datasets.gold import Gold
from rag_rewards.errors import cannot_resume

BROKEN = frozenset(("broken row", "not JSON"))
"""Reasons that are errors of the file. All other reasons are expected."""


@dataclass
class PrepareResult:
    """The counts of a preparation, and its data card: content, source, and how to reproduce it."""

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


# --- the data card -------------------------------------------------------------------------------

_NO_DOCUMENTS = "none, because the rows contain no documents"
_BODY = """\
# {title}, prepared for {recipe}

{written:,} questions of {title} ({source}), license: {licence}. The license of the data also
applies to this file.

Supporting documents: {supporting}.

{dropped}
The prompt, with its placeholders:

{prompt}
"""


def data_card(data_set: DataSet, facts: dict[str, Any], prompt: str) -> str:
    """Return a data card: the facts as YAML, followed by Markdown."""
    import yaml

    head = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
    counts = facts["counts"]
    dropped = "".join(
        f"- {reason}: {count:,} rows omitted\n" for reason, count in counts["dropped"].items()
    )
    body = _BODY.format(
        title=data_set.title,
        recipe=facts["recipe"],
        written=counts["written"],
        source=data_set.source,
        licence=data_set.licence,
        supporting=data_set.supporting if any(counts["rows by documents"]) else _NO_DOCUMENTS,
        dropped=dropped + "\n" if dropped else "No row was omitted.\n",
        prompt="\n".join(f"    {line}".rstrip() for line in prompt.splitlines()),
    )
    return f"---\n{head}---\n\n{body}"


def read_card(path: str) -> dict[str, Any] | None:
    """Return the facts of a data card, or None if there is no card.

    Raises UsageError for another file of this name.
    """
    import yaml

    try:
        _, head, _ = Path(path).read_text("utf-8").split("---\n", 2)
        facts: dict[str, Any] = yaml.safe_load(head)
        PrepareResult.from_counts(facts["counts"])
        return facts if facts["signature"] and facts["output"]["sha256"] else None
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, yaml.YAMLError):
        raise cannot_resume(path, "it is not a data card of this command") from None

"""The work of the models that provide evidence."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class EvidenceUsage:
    """The work of the models so far, after equal requests were merged.

    groups     number of scored groups
    computed   number of tokens that a policy was run on for log-probabilities
    reused     number of further tokens that separate scoring of each pair would have run
    generated  number of generated tokens
    pairs      number of text pairs for entailment and similarity
    verdicts   number of questions to the judge
    seconds    seconds of all calls of `gather`
    path       method of the last log-probabilities, see `ScoreAnswer.path`
    """

    groups: int = 0
    computed: int = 0
    reused: int = 0
    generated: int = 0
    pairs: int = 0
    verdicts: int = 0
    seconds: float = 0.0
    path: str = ""

    @property
    def reuse(self) -> float:
        """Share of the tokens of separate scoring that no model was run on, 0 to 1."""
        total = self.computed + self.reused
        return self.reused / total if total else 0.0

    def add(self, other: EvidenceUsage) -> None:
        """Add the work of other calls."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.path = other.path or self.path

    def since(self, earlier: EvidenceUsage) -> EvidenceUsage:
        """Return the work after an earlier state of this counter."""
        work = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return EvidenceUsage(**work, path=self.path)

    def __str__(self) -> str:
        """Return the work in a few words, or "" if there was none."""
        parts = []
        if self.computed:
            rate = self.computed / max(self.seconds, 1e-9)
            parts.append(f"{self.computed:,} tokens, {rate:,.0f}/s, {self.reuse:.0%} reused")
        if self.path not in ("", "tree", "shared"):
            parts.append(self.path)
        if self.generated:
            parts.append(f"{self.generated:,} tokens generated")
        if self.pairs:
            parts.append(f"{self.pairs:,} pairs")
        if self.verdicts:
            parts.append(f"{self.verdicts:,} verdicts")
        return " · ".join(parts)


_COUNTERS = tuple(field.name for field in fields(EvidenceUsage) if field.name != "path")

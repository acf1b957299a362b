"""Is the response formatted as the recipe wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import Rollout, Score
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.sections import Cut, Tags


def format_match(
    cut: Cut, tags: Tags, filled: tuple[str, ...] = (), *, words: bool = False
) -> float:
    """1 when the response is exactly the sections of `tags`, in order, each once, else 0.

    `filled` names the sections that must not be empty; with `words` a letter or digit must stand
    in them beside citation markers, so that "." and "[1]" are empty too.

    >>> from rag_rewards.text.sections import cut
    >>> t = Tags(("think", "answer"))
    >>> format_match(cut("<think></think> <answer>Paris</answer>", t), t)
    1.0
    """
    if not cut.exact:
        return 0.0
    for name in filled:
        content = cut.content[name]
        if not content.strip() or (words and not _has_word(content)):
            return 0.0
    return 1.0


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, strip_markers(text, _MARKERS)))


_MARKERS = compiled()


def tag_count(cut: Cut, tags: Tags) -> float:
    """(1/|T|) Σ_t 1[t occurs exactly once] over the opening and closing tags. Range 0 to 1.

    Source: Ground-GRPO, Eq. 3.
    """
    if cut.exact:
        return 1.0
    counts = cut.counts
    once = sum(
        (counts.get(f"<{name}>") == 1) + (counts.get(f"</{name}>") == 1) for name in tags.names
    )
    return once / (2 * len(tags.names))


@dataclass(frozen=True)
class Format:
    """1 when the response is exactly these sections, in order, each once; else 0."""

    tags: Tags
    filled: tuple[str, ...] = ()
    words: bool = False
    name: str = "format"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def of(self, rollout: Rollout) -> float:
        return format_match(rollout.parsed.cut(self.tags), self.tags, self.filled, words=self.words)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [_YES if self.of(rollout) else _NO for rollout in rollouts]


@dataclass(frozen=True)
class TagCount:
    """Share of the recipe's tags that occur exactly once. Range 0 to 1."""

    tags: Tags
    name: str = "tag_count"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [Score(tag_count(r.parsed.cut(self.tags), self.tags)) for r in rollouts]


_YES, _NO = Score(1.0), Score(0.0)

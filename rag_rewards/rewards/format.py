"""Format of the response: its sections and tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from unicodedata import category

from rag_rewards.reward import RolloutReward
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.sections import Cut, Tags


def format_match(
    cut: Cut, tags: Tags, filled: tuple[str, ...] = (), *, words: bool = False
) -> float:
    """Return 1 if the response consists of the sections of `tags`, in order, each once, else 0.

    White space around the sections is allowed. The sections in `filled` must not be empty. With
    `words`, they must contain a letter, a digit or an emoji outside citation markers, so that "."
    and "[1]" are empty too. Source: ARENA, section 3.3.

    >>> from rag_rewards.text.sections import cut
    >>> t = Tags(("think", "answer"))
    >>> format_match(cut("<think></think> <answer>Paris</answer>", t), t)
    1.0
    """
    if not cut.exact:
        return 0.0
    for name in filled:
        content = cut.content[name]
        if not content or content.isspace() or (words and not has_word(content)):
            return 0.0
    return 1.0


def has_word(text: str) -> bool:
    """Return whether a text has a letter, a digit or a symbol such as an emoji.

    >>> has_word("[1]: ..."), has_word("42")
    (False, True)
    """
    return text[:1].isalpha() or any(
        character.isalnum() or category(character) == _SYMBOL
        for character in strip_markers(text, _MARKERS)
    )


_MARKERS = compiled()
_SYMBOL = "So"  # the Unicode category of emojis and signs, without marks of punctuation


def tag_count(cut: Cut, tags: Tags) -> float:
    """Return the share of the opening and closing tags T that occur exactly once.

    (1/|T|) Σ_t 1[t occurs exactly once]. Range 0 to 1. Source: Ground-GRPO, Eq. 3.

    >>> from rag_rewards.text.sections import cut
    >>> t = Tags(("think", "answer"))
    >>> tag_count(cut("<think>x</think>Paris", t), t)
    0.5
    """
    if cut.exact:
        return 1.0
    counts = cut.counts
    once = sum(
        (counts.get(f"<{name}>") == 1) + (counts.get(f"</{name}>") == 1) for name in tags.names
    )
    return once / (2 * len(tags.names))


@dataclass(frozen=True)
@check_choices
class Format(RolloutReward):
    """1 if the response consists of these sections, in order, each once, else 0.

    filled  sections that must not be empty
    """

    tags: Tags = Tags(("answer",))
    filled: tuple[str, ...] = ()
    words: Annotated[
        bool,
        about(
            "the sections in which the response says something must contain a letter, a digit or "
            "an emoji outside citation markers",
            "ours: off, as published",
        ),
    ] = False
    name: str = "format"
    scope: Literal["rollout"] = "rollout"

    def of(self, rollout: Rollout) -> float:
        """Return the value of one rollout."""
        return format_match(rollout.parsed.cut(self.tags), self.tags, self.filled, words=self.words)

    def score(self, rollout: Rollout) -> Score:
        return _YES if self.of(rollout) else _NO


@dataclass(frozen=True)
@check_choices
class TagCount(RolloutReward):
    """The share of the tags of an output form that occur exactly once. Range 0 to 1.

    Source: Ground-GRPO, Eq. 3.
    """

    tags: Tags = Tags(("answer",))
    name: str = "tag_count"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        return Score(tag_count(rollout.parsed.cut(self.tags), self.tags))


_YES, _NO = Score(1.0), Score(0.0)

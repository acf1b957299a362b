"""Format of the response: its sections and tags, and the confidence that it states (RLCR)."""

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


_LONGEST = 40
"""Number of characters up to which a text can be a number."""


def stated_confidence(text: str | None) -> float | None:
    """Return the number from 0 to 1 that a text consists of, else None.

    The text is a number as Python's `float` reads it. White space around it is allowed; a
    percentage, words and NaN are not. Source: RLCR, released code at 8904bed: reward_fns.py, which
    also accepts NaN.

    >>> [stated_confidence(text) for text in (" 0.9 ", "1", "90%", "90", "nan", None)]
    [0.9, 1.0, None, None, None, None]
    """
    if text is None or len(bare := text.strip()) > _LONGEST:
        return None
    try:
        value = float(bare)
    except ValueError:
        return None
    return abs(value) if 0 <= value <= 1 else None


def calibration(format: float, correct: float, confidence: float) -> float:
    """Return f·(1 − (c − p)²), for the format f, the correctness c and the confidence p.

    All of them are from 0 to 1, and so is the value. Source: RLCR, released code at 8904bed:
    brier_reward.

    >>> calibration(1, 1, 0.5), calibration(0, 1, 1)
    (0.75, 0.0)
    """
    return format * (1.0 - (correct - confidence) ** 2)


@dataclass(frozen=True)
@check_choices
class StatedConfidence(RolloutReward):
    """The confidence in the section <confidence>, 0 to 1, or None without a valid number.

    Components: `confidence`, the same number, and `format`, 1 if the response has the sections of
    `format` and a valid confidence, else 0. Source: RLCR, released code at 8904bed: format_reward.
    """

    format: Format = Format(Tags(("answer", "confidence")))
    name: str = "confidence"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        content = rollout.parsed.cut(self.format.tags).content
        confidence = stated_confidence(content.get("confidence"))
        form = 0.0 if confidence is None else self.format.of(rollout)
        return Score(confidence, {"format": form, "confidence": confidence})

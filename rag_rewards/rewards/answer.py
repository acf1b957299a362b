"""The answer of a response, compared with the gold answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.correctness import (
    UNDECIDED,
    Correctness,
    Decision,
    Metric,
    Undecided,
)
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.normalize import (
    NORMALIZER,
    Normalizer,
    NormalizerName,
    normalizer,
    squad,
)
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import sentences

Reads = Literal["answer", "response", "final"]


@dataclass(frozen=True)
@check_choices
class AnswerMatch(RolloutReward):
    """Compares the answer of a response with the gold answers of its row. Range 0 to 1.

    The best alias counts. With several required answers, `f1` is the mean, and the others require
    all of them. The metric `lenient` guesses where `matching.decide` leaves the answer undecided,
    see `matching.lenient`; the details contain the rule. A policy can exploit it. With `cascade`,
    an answer is right or wrong by rules, or a judge decides.

    tags  section names of the output form

    Raises DataError for a row without gold answers, or without a verdict that it needs.

    >>> AnswerMatch()([Rollout(response="<answer>Paris.</answer>", answers="Paris")])[0].value
    1.0
    """

    name: str = "accuracy"
    metric: Annotated[
        Metric,
        about("how the answer is compared with the gold answers", "SQuAD v1.1, evaluation script"),
    ] = "exact"
    normalizer: Annotated[NormalizerName, about(NORMALIZER, "SQuAD v1.1, evaluation script")] = (
        "squad"
    )
    reads: Annotated[
        Reads,
        about(
            "answer: the answer section; response: the response without its thinking, but with "
            "its tags, which are words; final: the answer section, or else the last statement",
            "ours: the section that the prompt requests",
        ),
    ] = "answer"
    undecided: Annotated[Undecided, about(*UNDECIDED)] = "match"
    extra: Annotated[
        Literal["allow", "reject"],
        about(
            "with an exact match and several required answers, whether the answer, a list with "
            "commas, may contain other items",
            "ours: a list is right if it has all answers",
        ),
    ] = "allow"
    tags: Tags = Tags(("answer",))
    scope: Literal["rollout"] = "rollout"

    @cached_property
    def correctness(self) -> Correctness:
        """How the text that is read is compared."""
        return Correctness(
            self.metric, self.undecided, self.extra, self.name, normalize=self.normalize
        )

    @cached_property
    def exact(self) -> Correctness:
        """The same comparison by exact match, for whether an answer is right."""
        is_same = self.is_decided or self.metric == "exact"
        return self.correctness if is_same else replace(self, metric="exact").correctness

    @cached_property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        return self.correctness.is_decided

    def needs(self, rollout: Rollout) -> list[Need]:
        if not self.correctness.can_ask:
            return []
        return self.correctness.needs(rollout, self.read(rollout))

    def decide(self, rollout: Rollout, text: str | None) -> Decision:
        """Return the decision on a text as the answer."""
        return self.correctness.decide(rollout, text)

    def value_of(self, rollout: Rollout, text: str | None) -> float:
        """Return the value of a text as the answer of a rollout, 0 to 1."""
        return self.correctness.value_of(rollout, text)

    @property
    def normalize(self) -> Normalizer:
        return normalizer(self.normalizer, spellings=self.metric == "exact")

    def read(self, rollout: Rollout) -> str | None:
        """Return the text that is compared, or None if the response has none."""
        response = rollout.parsed
        if self.reads == "response":
            return response.visible
        answer = response.cut(self.tags).content.get("answer")
        if self.reads == "answer" or answer is not None:
            return answer
        if "answer" in response.cut(self.tags).repeated:
            return None
        if len(rollout.gold) > 1:
            return response.visible  # several answers can be in several statements
        return _last_statement(response.visible)

    def score(self, rollout: Rollout) -> Score:
        text = self.read(rollout)
        if self.metric == "lenient":
            return _lenient_score(rollout, text or "")
        if self.reads == "answer" and text and not self.is_decided:
            text = text.strip()
        value, decision = self.correctness.decided_value(rollout, text)
        if self.is_decided or self.reads == "answer":
            return Score(value, details={"answer": text, **decision})
        return Score(value)


def _lenient_score(rollout: Rollout, text: str) -> Score:
    from rag_rewards.matching.lenient import lenient_matches  # few settings need it

    matches = lenient_matches(text, rollout.gold, rollout.question or "")
    details = {"answer": text, "matches": [match._asdict() for match in matches]}
    return Score(float(all(matches)), details=details)


def _last_statement(text: str) -> str | None:
    """Return the last sentence with content, without markers, or None."""
    bare = strip_markers(text, compiled())
    return next((s.strip() for s in reversed(sentences(bare)) if _has_content(s)), None)


def _has_content(sentence: str) -> bool:
    """Return whether a sentence contains words other than the heading of a list of sources."""
    words = squad(sentence).split()
    return bool(set(words) - _HEADINGS) or (not words and any(map(str.isalnum, sentence)))


_HEADINGS = frozenset(
    "sources source references reference citations citation see documents document also".split()
)

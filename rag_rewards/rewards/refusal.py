"""Refusals: whether a response refuses to answer, and its reward (Ground-GRPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.evidence.needs import SimilarityNeed
from rag_rewards.rollout import Rollout
from rag_rewards.settings import about, check_choices
from rag_rewards.text.absence import declines, paraphrases
from rag_rewards.text.refusal import (
    REFUSAL,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)

Matcher = Literal["ratio", "partial_ratio", "semantic"]


@dataclass(frozen=True)
@check_choices
class RefusalDetector:
    """Detects a refusal by r, the similarity of an answer to a gold refusal, 0 to 1.

    With strict=true, one sentence refuses, the others report what the sources lack, and nothing is
    cited; see `text.refusal.strict_refusal`. A refusal in other words or in another language is a
    refusal of r, also below the threshold; see `text.absence`.

    Source: Ground-GRPO, section 2.2 and Eq. 6.
    """

    texts: Annotated[tuple[str, ...], about("gold refusals", "Trust-Align, data")] = (REFUSAL,)
    matcher: Annotated[
        Matcher,
        about(
            "how an answer is compared with the gold refusals; ratio: r of the whole answer, a "
            "refusal if r ≥ threshold; partial_ratio: as Trust-Score, a refusal if r > threshold; "
            "semantic: by a similarity model",
            "Ground-GRPO: a fuzzy matching algorithm",
        ),
    ] = "ratio"
    threshold: Annotated[
        float,
        about(
            "minimum similarity of a refusal to a gold refusal",
            "Ground-GRPO, Eq. 6, which does not define the case of exactly 0.85",
            ge=0,
            le=1,
        ),
    ] = 0.85
    strict: Annotated[
        bool,
        about(
            "a refusal must be a single sentence without other content", "ours: off, as published"
        ),
    ] = False

    def needs(self, answer: str) -> list[SimilarityNeed]:
        """Return the similarities that an answer needs."""
        if self.matcher != "semantic":
            return []
        return [SimilarityNeed(answer.strip(), text) for text in self.texts]

    def similarity(self, rollout: Rollout, answer: str) -> float:
        """Return r of the whole answer. With `ratio`, a value below the threshold becomes 0."""
        if self.matcher == "partial_ratio":
            return trust_score_refusal(answer, self.texts)
        if self.matcher == "semantic":
            return max(float(need.read(rollout)) for need in self.needs(answer))
        return refusal_similarity(answer, self.texts, cutoff=self.threshold)

    def refused(
        self,
        rollout: Rollout,
        answer: str,
        *,
        cites: bool = False,
        gold: tuple[str, ...] = (),
    ) -> tuple[bool, float]:
        """Return whether an answer is a refusal, and r.

        `cites` states whether the answer has citations. `gold` contains the gold answers in the
        form of `squad`.
        """
        if self.strict:
            return self._strict(rollout, answer, cites, gold)
        r = self.similarity(rollout, answer)
        return self._is_enough(r), r

    def _is_enough(self, r: float) -> bool:
        return r > self.threshold if self.matcher == "partial_ratio" else r >= self.threshold

    def _strict(
        self, rollout: Rollout, answer: str, cites: bool, gold: tuple[str, ...]
    ) -> tuple[bool, float]:
        question = rollout.question or ""
        r = 0.0
        if not cites and self.matcher == "semantic":
            r = self.similarity(rollout, answer)
        elif not cites:
            r = strict_refusal(
                answer,
                lambda sentence: self.similarity(rollout, sentence),
                self.texts,
                threshold=self.threshold,
                gold=gold,
                question=question,
            )
        if self._is_enough(r) or not declines(answer, gold):
            return self._is_enough(r), r
        if rollout.answerable:
            return True, 0.0
        if cites or self.matcher == "semantic" or not paraphrases(answer, question):
            return False, 0.0
        return True, refusal_similarity(answer, self.texts)


def refusal_reward(*, answerable: bool, refused: bool, r: float, bonus: float = 0.5) -> float:
    """Return the reward for answering or refusing. Range 0 to 1.

    An answer to an answerable question earns `bonus`, a refusal of an unanswerable question earns
    its similarity r, and anything else earns 0. Source: Ground-GRPO, Eq. 6.

    >>> refusal_reward(answerable=True, refused=False, r=0.1)
    0.5
    """
    if answerable:
        return 0.0 if refused else bonus
    return r if refused else 0.0

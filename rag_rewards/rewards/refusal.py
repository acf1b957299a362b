"""Does the response refuse, and should it (Ground-GRPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import SimilarityNeed, unmet
from rag_rewards.rollout import Rollout
from rag_rewards.text.refusal import (
    REFUSAL,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)

Matcher = Literal["ratio", "partial_ratio", "semantic"]


@dataclass(frozen=True)
class RefusalDetector:
    """r, the similarity of an answer to the gold refusal (0 to 1), and whether it refuses.

    `ratio`: over the whole answer, refused at r ≥ threshold. `partial_ratio`: Trust-Score's
    detector, refused strictly above. `semantic`: the `similarity` evidence of the answer to each
    of `texts`. `strict`: one bare refusing sentence, the others speak of absence and cite
    nothing; see `text.refusal.strict_refusal`.
    """

    texts: tuple[str, ...] = (REFUSAL,)
    matcher: Matcher = "ratio"
    threshold: float = 0.85
    strict: bool = False

    def needs(self, answer: str) -> list[SimilarityNeed]:
        if self.matcher != "semantic":
            return []
        return [SimilarityNeed(answer.strip(), text) for text in self.texts]

    def similarity(self, rollout: Rollout, answer: str) -> float:
        """r of the whole answer; under `ratio` 0 stands for anything below the threshold."""
        if self.matcher == "partial_ratio":
            return trust_score_refusal(answer, self.texts)
        if self.matcher == "semantic":
            return max(self._semantic(rollout, answer, text) for text in self.texts)
        return refusal_similarity(answer, self.texts, cutoff=self.threshold)

    def refused(
        self,
        rollout: Rollout,
        answer: str,
        *,
        cites: bool = False,
        gold: tuple[str, ...] = (),
    ) -> tuple[bool, float]:
        """(refused, r). `cites`: the answer has citations; `gold`: squad-normalised answers."""
        r = (
            self._strict(rollout, answer, cites, gold)
            if self.strict
            else self.similarity(rollout, answer)
        )
        above = r > self.threshold if self.matcher == "partial_ratio" else r >= self.threshold
        return above, r

    def _strict(self, rollout: Rollout, answer: str, cites: bool, gold: tuple[str, ...]) -> float:
        if cites:
            return 0.0
        if self.matcher == "semantic":
            return self.similarity(rollout, answer)

        def of(sentence: str) -> float:
            return self.similarity(rollout, sentence)

        return strict_refusal(answer, of, self.texts, threshold=self.threshold, gold=gold)

    def _semantic(self, rollout: Rollout, answer: str, text: str) -> float:
        known = rollout.similarity_to(answer, text)
        if known is None:
            raise unmet(SimilarityNeed(answer.strip(), text))
        return known


def refusal_reward(*, answerable: bool, refused: bool, r: float, bonus: float = 0.5) -> float:
    """0.5 for answering the answerable, r for refusing the unanswerable, else 0.

    Source: Ground-GRPO, Eq. 6.

    >>> refusal_reward(answerable=True, refused=False, r=0.1)
    0.5
    """
    if answerable:
        return 0.0 if refused else bonus
    return r if refused else 0.0

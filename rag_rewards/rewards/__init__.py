"""Rewards. Each is a plain function of plain values and a frozen dataclass that calls it."""

from typing import TYPE_CHECKING

from rag_rewards.lazy import lazy_names

if TYPE_CHECKING:
    from rag_rewards.rewards.answer import (
        AnswerMatch,
        exact_match,
        multiset_f1,
        substring_match,
        token_f1,
    )
    from rag_rewards.rewards.answer_list import list_match
    from rag_rewards.rewards.citation import (
        CitationRecall,
        citation_precision,
        citation_recall,
    )
    from rag_rewards.rewards.contrastive import (
        ContrastiveLikelihood,
        contrastive_likelihood,
        evidential_contribution,
        token_contributions,
    )
    from rag_rewards.rewards.cost import Cost, length_cost, repetition_cost
    from rag_rewards.rewards.document_relevance import Relevance, relevance, relevance_ids
    from rag_rewards.rewards.evidence import (
        Lengths,
        MaskedAnswer,
        evidence_length,
        rationale_length,
    )
    from rag_rewards.rewards.format import Format, TagCount, format_match, tag_count
    from rag_rewards.rewards.grounding import Grounding
    from rag_rewards.rewards.process import Process
    from rag_rewards.rewards.refusal import RefusalDetector, refusal_reward
    from rag_rewards.rewards.truthfulness import (
        Outcome,
        Reasoning,
        combine_reasoning,
        geometric_reward,
        outcome_reward,
    )

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "rag_rewards.rewards.answer": "AnswerMatch exact_match multiset_f1 "
        "substring_match token_f1",
        "rag_rewards.rewards.answer_list": "list_match",
        "rag_rewards.rewards.citation": "CitationRecall citation_precision citation_recall",
        "rag_rewards.rewards.contrastive": "ContrastiveLikelihood contrastive_likelihood "
        "evidential_contribution token_contributions",
        "rag_rewards.rewards.cost": "Cost length_cost repetition_cost",
        "rag_rewards.rewards.evidence": "Lengths MaskedAnswer evidence_length rationale_length",
        "rag_rewards.rewards.format": "Format TagCount format_match tag_count",
        "rag_rewards.rewards.grounding": "Grounding",
        "rag_rewards.rewards.process": "Process",
        "rag_rewards.rewards.refusal": "RefusalDetector refusal_reward",
        "rag_rewards.rewards.document_relevance": "Relevance relevance relevance_ids",
        "rag_rewards.rewards.truthfulness": (
            "Outcome Reasoning combine_reasoning geometric_reward outcome_reward"
        ),
    },
)

__all__ = [
    "AnswerMatch",
    "CitationRecall",
    "ContrastiveLikelihood",
    "Cost",
    "Format",
    "Grounding",
    "Lengths",
    "MaskedAnswer",
    "Outcome",
    "Process",
    "Reasoning",
    "RefusalDetector",
    "Relevance",
    "TagCount",
    "citation_precision",
    "citation_recall",
    "combine_reasoning",
    "contrastive_likelihood",
    "evidence_length",
    "evidential_contribution",
    "exact_match",
    "format_match",
    "geometric_reward",
    "length_cost",
    "list_match",
    "multiset_f1",
    "outcome_reward",
    "rationale_length",
    "refusal_reward",
    "relevance",
    "relevance_ids",
    "repetition_cost",
    "substring_match",
    "tag_count",
    "token_contributions",
    "token_f1",
]

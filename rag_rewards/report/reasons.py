"""Why a rollout got its score, in one line, from what the recipe parsed."""

from __future__ import annotations

from typing import Any

from rag_rewards.report.shorten import shorten
from rag_rewards.rollout import Rollout, Score


def reason(rollout: Rollout, score: Score) -> str:
    """What decided the score: the answer, the citations, the evidence; then what went wrong."""
    details = score.details
    said = [
        *_answer(details, score),
        *_relevance(details, rollout),
        *_statements(details),
        *_likelihood(details),
        *_lengths(details),
    ]
    if score.components.get("format") == 0.0:
        said.append("format broken")
    if rollout.finish_reason == "length":
        said.append("cut at the length limit")
    return "; ".join(said) or "nothing parsed"


def _answer(details: Any, score: Score) -> list[str]:
    if "truth" in details:
        answer = details.get("answer")
        return [f"{details['truth']}: box {_quote(answer)}" if answer else "incorrect: no box"]
    if details.get("refused"):
        return [f"refuses (similarity {details.get('refusal_similarity', 1.0):.2f})"]
    if "answer" not in details:
        accuracy = score.components.get("accuracy")
        return [] if accuracy is None else ["answer found" if accuracy else "no right answer found"]
    answer = details["answer"]
    if not answer:
        return ["no answer"]
    right = score.correct
    verdict = (
        ""
        if right is None
        else {1.0: " is right", 0.0: " is wrong"}.get(right, f" is right to {right:.2f}")
    )
    return [_quote(answer) + verdict]


def _relevance(details: Any, rollout: Rollout) -> list[str]:
    if "relevance" in details:
        named = details["relevance"]
        if named is None:
            return ["no list of ids"]
        wanted = ", ".join(rollout.supporting_labels) or "none"
        return [f"names {', '.join(named) or 'none'}, supporting {wanted}"]
    if "cited" in details:
        return [f"cites {', '.join(details['cited']) or 'nothing'}"]
    return []


def _statements(details: Any) -> list[str]:
    found = details.get("statements")
    if found is None or details.get("refused"):
        return []
    holding = [s for s in found if s["answers"]]
    supported = sum(bool(s.get("supported")) for s in holding)
    return [f"{len(holding)} of {len(found)} statements hold an answer, {supported} well cited"]


def _likelihood(details: Any) -> list[str]:
    if "critical_document" not in details:
        return []
    lost = details["logprob"] - details["logprob_without"]
    document = details["critical_document"]
    return [f"{lost:+.1f} nats from document {document} over {details['tokens']} tokens"]


def _lengths(details: Any) -> list[str]:
    lengths = details.get("tokens")
    if not isinstance(lengths, dict):
        return []
    return [
        f"{lengths['reason']} words of reason, {lengths['extract']} of "
        f"{lengths['documents']} extracted"
    ]


def _quote(text: str) -> str:
    return f"“{shorten(text, 48)}”"

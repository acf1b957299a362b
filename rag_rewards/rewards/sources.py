"""Sources of an answer: those that its searches found, and those that it cites (RagEnv)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.errors import DataError, shorten
from rag_rewards.evidence.needs import Need
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.rewards.correctness import f1_of
from rag_rewards.rewards.search import (
    REPEATED_ANSWER,
    RepeatedAnswer,
    answer_of,
    details_of,
)
from rag_rewards.rollout import Rollout, Score, canonical
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import cited_labels, compiled, strip_markers
from rag_rewards.text.hidden import shown
from rag_rewards.text.normalize import squad
from rag_rewards.text.statements import statements
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

_SOURCE = re.compile(r"\[source:\s{0,8}([^\[\]\s][^\[\]]{0,299})\]", re.IGNORECASE)
_MARKER = compiled()
_FIRST_NUMBER = 900_000_000  # of sources without a number, above the labels of documents


def source_reward(
    right: float,
    hit: float,
    citation: float,
    grounding: float,
    brevity: float,
    *,
    weights: tuple[float, float, float, float] = (0.3, 0.3, 0.0, 0.2),
    gated: bool = False,
) -> float:
    """Return r + w_h·h + r·(w_c·c + w_g·g + w_b·b), where a gated r is 0 unless h > 0.

    right r, hit h, citation c, grounding g and brevity b are between 0 and 1; the weights are w_h,
    w_c, w_g and w_b. Range 0 to 1 + Σ w. Source: benchmax #64 (search_env.py) and, gated, #97
    (rag/env.py at 4e7ab42).

    >>> source_reward(1, 0.5, 1, 0, 0.5), source_reward(0, 0.5, 1, 0, 0.5)
    (1.5499999999999998, 0.15)
    """
    w_hit, w_citation, w_grounding, w_brevity = weights
    right = right if hit > 0 or not gated else 0.0
    bonus = w_citation * citation + w_grounding * grounding + w_brevity * brevity
    return right + w_hit * hit + right * bonus


def brevity(length: int, cap: int = 600) -> float:
    """Return 1 − length/cap, at least 0. Both are numbers of characters, white space included.

    >>> brevity(150), brevity(900)
    (0.75, 0.0)
    """
    return max(0.0, 1 - length / cap)


def cited_sources(text: str, rollout: Rollout, *, claims_only: bool = False) -> set[str]:
    """Return the labels that a text cites as [Source: ID] or [ID].

    An id of no document stays as it is. `claims_only` counts only citations that a reader sees
    beside three words or more.
    """
    names: dict[str, str] = {}

    def numbered(source: re.Match[str]) -> str:
        label = rollout.label_of(source[1]) or canonical(source[1])
        return f"[{names.setdefault(label, str(_FIRST_NUMBER + len(names)))}]"

    text = _SOURCE.sub(numbered, shown(text) if claims_only else text)
    count = len(rollout.documents or ()) or None
    if claims_only:
        parts = statements(text, _MARKER, documents=count)
        claims = (each for each in parts if len(squad(each.text).split()) >= 3)
        labels = {label for each in claims for label in each.cited}
    else:
        labels = set(cited_labels(text, _MARKER, count))
    by_number = {number: label for label, number in names.items()}
    return {by_number.get(label, label) for label in labels}


def without_sources(text: str) -> str:
    """Return a text without its citations.

    >>> without_sources("Paris [Source: france.md]. Or [2].")
    'Paris. Or.'
    """
    return strip_markers(_SOURCE.sub("[1]", text), _MARKER)


def retrieved_sources(rollout: Rollout, run: Trajectory) -> set[str]:
    """Return the labels of the results, or of the documents of a rollout without results.

    A result or a document without an id is compared by its title and text.
    """
    if not any(turn.results is not None for turn in run.turns):
        return set(rollout.labels)
    texts = {result.titled_text for result in run.results}
    without_id = {result.titled_text for result in run.results if result.id is None}
    documents = zip(rollout.labels, rollout.documents or (), strict=True)
    ids = [result.id for result in run.results if result.id is not None]
    same = {
        label
        for label, each in documents
        if each.titled_text in (texts if each.id is None else without_id)
    }
    return same | set(rollout.labels_of(ids))


def check_comparable(rollout: Rollout, run: Trajectory) -> None:
    """Raise DataError if nothing can show whether the results contain a supporting document.

    That is so if no result has an id, and no document of the rollout is a supporting one.
    """
    gold = rollout.supporting_labels
    lacks_ids = bool(run.results) and all(result.id is None for result in run.results)
    if gold and lacks_ids and set(gold).isdisjoint(rollout.labels):
        ids = shorten(", ".join(gold), 60)
        raise DataError(
            f"the results have no ids, and the documents contain none of {ids}: add the field id "
            "to the results, or the supporting documents to the field documents",
            "supporting",
        )


@dataclass(frozen=True)
@check_choices
class SourceComponents(RolloutReward):
    """The components of RagEnv's reward. The value is the outcome.

    outcome    comparison of the answer, without its citations, with the gold answers
    hit        share of the supporting documents that the answer cites or, gated, that were found
    citation   how the cited documents agree with the supporting documents
    grounding  share of the cited documents that were found
    brevity    1 − length/cap, at least 0

    Without an answer, all of them are 0. Raises DataError for a row without `supporting` and,
    gated, for results that cannot be compared with it.
    """

    answer: AnswerMatch = AnswerMatch("outcome")
    gated: Annotated[
        bool,
        about(
            "a right answer counts only if the results contain a supporting document, and hit is "
            "the share of the supporting documents in the results; false: the share of those that "
            "the answer cites",
            "benchmax #64: false; #97: true",
        ),
    ] = False
    measure: Annotated[
        Literal["precision", "recall", "f1"],
        about(
            "how the cited documents are compared with the supporting documents",
            "benchmax #64: precision; #97: recall",
        ),
    ] = "precision"
    claims_only: Annotated[
        bool,
        about(
            "count a citation only if a reader sees it beside three words or more",
            "ours: off, as published",
        ),
    ] = False
    cap: Annotated[
        int,
        about(
            "length in characters from which an answer earns nothing for its brevity",
            "benchmax #64: ANSWER_LENGTH_CAP",
            ge=1,
        ),
    ] = 600
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    reading: Reading = READING
    name: str = "source_parts"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        text = answer_of(rollout.trajectory(self.reading), self.repeated)
        return self.answer.correctness.needs(rollout, without_sources(text or ""))

    def score(self, rollout: Rollout) -> Score:
        run, gold = rollout.trajectory(self.reading), rollout.supporting_labels
        text = (answer_of(run, self.repeated) or "").strip()
        answer = without_sources(text)
        outcome, decision = self.answer.correctness.decided_value(rollout, answer)
        if self.gated:
            check_comparable(rollout, run)
        retrieved = retrieved_sources(rollout, run) if text else set()
        cited = cited_sources(text, rollout, claims_only=self.claims_only)
        recall, precision = citation_recall(cited, gold), citation_precision(cited, gold)
        citation = {"recall": recall, "precision": precision, "f1": f1_of(precision, recall)}
        components = {
            "outcome": outcome,
            "hit": citation_recall(retrieved, gold) if self.gated else recall,
            "citation": citation[self.measure],
            "grounding": len(cited & retrieved) / len(cited) if cited else 0.0,
            "brevity": brevity(len(text), self.cap) if text else 0.0,
        }
        details = details_of(run, text, {}) | {"cited": sorted(cited)} | decision
        return Score(outcome, components, outcome, details)

"""Training sets of Trust-Align: preferred responses, and pairs with hallucinated responses.

They are the baselines of Ground-GRPO (section 3.2). The definitions are those of Trust-Align (Song
et al. 2025), with the measures of Trust-Score: a hallucination is one of five errors, and its
severity is from 0 to 1. A preferred response is a refusal, a list of the gold answers with
citations, or a response without hallucination.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import DataError, RolloutError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.groups import Groups
from rag_rewards.metrics.measurement import MetricNeeds
from rag_rewards.metrics.metric import read_answer
from rag_rewards.metrics.trust_score import MAX_CITATIONS, TrustScore, is_answerable
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.selection.questions import ScoredRollout
from rag_rewards.selection.training_source import TrainingSource
from rag_rewards.selection.written_texts import question_only
from rag_rewards.text.citations import compiled
from rag_rewards.text.statements import statements

PROMPT_NAME, WRITER_PROMPT_NAME = "trust-align", "gold-answers"
_LABEL = compiled(
    r"\[\s{0,8}((?:answer\s{0,8})?\d{1,9}(?:\s{0,8},\s{0,8}(?:answer\s{0,8})?\d{1,9}){0,99})"
    r"\s{0,8}\]"
)
_END = re.compile(r"[.!?。！？]{0,8}\Z")


def hallucinations(row: Rollout, metric: TrustScore) -> dict[str, float]:
    """Return the severity of each hallucination in a response, from 0 (none) to 1.

    excessive_refusal    1 if an answerable question is refused
    over_responsiveness  1 if an unanswerable question is answered
    inaccurate_answer    1 − the calibrated correctness of Trust-Score
    improper_citation    1 − citation recall
    overcitation         1 − citation precision

    The last three are those of an answered, answerable question. Raises RolloutError for a row
    that Trust-Score cannot measure. Source: Trust-Align, the five types of its released code.
    """
    return _severities(metric.parts_of(row))


def _severities(parts: Mapping[str, float]) -> dict[str, float]:
    answered, answerable = parts["answered"], parts["answerable"]
    both = answered * answerable
    return {
        "excessive_refusal": answerable - both,
        "over_responsiveness": answered - both,
        "inaccurate_answer": both * (1 - parts["calibrated"]),
        "improper_citation": both * (1 - parts["citation_recall"]),
        "overcitation": both * (1 - parts["citation_precision"]),
    }


def covering_documents(answers: Sequence[int], row: Rollout) -> tuple[str, ...]:
    """Return the labels of few documents that together support these gold answers.

    The document that supports most of the remaining answers is next; of equal ones, the first. The
    result is empty if an answer has no document or if more documents are needed than Trust-Score
    counts. Source: Trust-Align, which searches the smallest combination.
    """
    left = set(answers)
    labels: list[int] = []
    supports = [
        {i for i, bit in enumerate(document.supports or ()) if bit}
        for document in row.documents or ()
    ]
    while left and len(labels) < MAX_CITATIONS:
        best = max(range(len(supports)), key=lambda at: len(left & supports[at]), default=None)
        if best is None or not left & supports[best]:
            return ()
        labels.append(best)
        left -= supports[best]
    return () if left else tuple(row.labels[at] for at in sorted(labels))


def gold_list(row: Rollout) -> str:
    """Return the gold answers that a document supports as a list, each with one citation.

    Source: Trust-Align, positive responses of QAMPARI.
    """
    items = [f"{row.gold[i][0]} {_markers(covering_documents([i], row))}" for i in _supported(row)]
    return ", ".join(items) + "."


def cite_answers(text: str, row: Rollout) -> str:
    """Replace the numbers of gold answers, such as [Answer 2], by citations of documents.

    A sentence without a number, or with the number of an answer that no document supports, is
    dropped. Source: Trust-Align, positive responses of ASQA and ELI5.
    """
    supported = set(_supported(row))
    cited = []
    for statement in statements(text, _LABEL):
        answers = [int(label) - 1 for label in statement.cited]
        if not answers or not supported.issuperset(answers):
            continue
        labels = covering_documents(answers, row)
        end = _END.search(statement.text)
        at = end.start() if end else len(statement.text)
        if labels:
            cited.append(f"{statement.text[:at]} {_markers(labels)}{statement.text[at:] or '.'}")
    return " ".join(cited)


def _supported(row: Rollout) -> tuple[int, ...]:
    if all(document.supports is None for document in row.documents or ()):
        raise DataError(
            "missing: state which gold answers each document supports", "documents[0].supports"
        )
    return row.supported_gold


def _markers(labels: Sequence[str]) -> str:
    return "".join(f"[{label}]" for label in labels)


# --- scores --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrustAlignScorer:
    """Scores responses by their hallucinations. The entailment model provides missing evidence.

    The value is minus the sum of the severities, which are the components. `correct` is 1 if there
    is no hallucination, otherwise 0.
    """

    gatherer: Gatherer
    metric: TrustScore = TrustScore()

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score for each response, or the error of a row that cannot be measured."""
        rows = [row for row in rollouts if isinstance(row, Rollout)]
        gathered = iter(self.gatherer.gather_sync(MetricNeeds([self.metric]), rows))
        return [
            row if isinstance(row, RolloutError) else self._score(row, next(gathered))
            for row in rollouts
        ]

    def _score(self, row: Rollout, gathered: Rollout | RolloutError) -> ScoreOrError:
        try:
            if isinstance(gathered, RolloutError):
                raise gathered
            parts = self.metric.parts_of(gathered)
            answer = (read_answer(row, self.metric.reads) or "").strip()
        except RolloutError as error:
            return error.with_traceback(None)
        errors = _severities(parts)
        severity = sum(errors.values())
        details = {"refused": not parts["answered"], "answer": answer}
        return Score(-severity, errors, float(severity == 0), details)


def text_request(row: Rollout) -> Rollout | None:
    """Return the question, if a preferred response to it requires a text, otherwise None.

    Raises RolloutError for a row without the gold data.
    """
    if not is_answerable(row) or row.answer_kind == "list":
        return None
    _supported(row)
    return question_only(row)


@dataclass(frozen=True)
class GoldAnswerScorer:
    """Scores texts with numbered gold answers by the cited responses that are made from them.

    The detail `assembled` of a score contains the response.
    """

    scorer: TrustAlignScorer

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score for each text, or the error of a row that cannot be measured."""
        rows = [self._assemble(rollout) for rollout in rollouts]
        return [
            score
            if isinstance(score, RolloutError) or isinstance(row, RolloutError)
            else _marked(score, str(row.response))
            for row, score in zip(rows, self.scorer.score_each(rows), strict=True)
        ]

    def _assemble(self, rollout: Rollout | RolloutError) -> Rollout | RolloutError:
        if isinstance(rollout, RolloutError):
            return rollout
        try:
            response = cite_answers(rollout.parsed.visible, rollout)
        except RolloutError as error:
            return error.with_traceback(None)
        return msgspec.structs.replace(rollout, response=response, nli=None)


def _marked(score: Score, response: str) -> Score:
    details = {**score.details, "assembled": response}
    return Score(score.value, score.components, score.correct, details)


# --- rows ----------------------------------------------------------------------------------------


def trust_sft(source: TrainingSource) -> dict[str, Any] | Problem:
    """The preferred response, without reasoning."""
    preferred = _preferred(source)
    if isinstance(preferred, Problem):
        return preferred
    return source.training_row(prompt=_prompt(source), completion=_message(preferred))


def trust_dpo(source: TrainingSource) -> dict[str, Any] | Problem:
    """The preferred response, and the response with the most severe hallucinations."""
    preferred = _preferred(source)
    if isinstance(preferred, Problem):
        return preferred
    hallucinated = [
        each
        for each in source.question.rollouts
        if "assembled" not in each.score.details and each.is_right is False and _answer(each)
    ]
    complete = [each for each in hallucinated if each.is_complete]
    if not complete:
        return Problem("no complete response with a hallucination" if hallucinated else _NONE)
    worst = max(complete, key=lambda each: -(each.score.value or 0.0))
    row = source.training_row(
        prompt=_prompt(source), chosen=_message(preferred), rejected=_message(_answer(worst))
    )
    return row | {"severity": -(worst.score.value or 0.0), "hallucination": _most_severe(worst)}


_NONE = "no response with a hallucination"


def _preferred(source: TrainingSource) -> str | Problem:
    row = source.question.row
    if not is_answerable(row):
        return source.form.output.abstention or Problem("the recipe has no refusal")
    if row.answer_kind == "list":
        return gold_list(row)
    written = [each for each in source.question.rollouts if "assembled" in each.score.details]
    for candidates in (written, source.question.rollouts):
        right = [each for each in candidates if each.is_right and each.is_complete]
        if right:
            chosen = source.rng.choice(right).score.details
            return str(chosen.get("assembled", chosen["answer"]))
    return Problem("no complete response without a hallucination")


def _answer(rollout: ScoredRollout) -> str:
    return str(rollout.score.details["answer"])


def _most_severe(rollout: ScoredRollout) -> str:
    errors: Mapping[str, float | None] = rollout.score.components
    return max(errors, key=lambda name: errors[name] or 0.0)


def _prompt(source: TrainingSource) -> list[dict[str, str]]:
    """The prompt of the baselines, because the responses contain no reasoning."""
    return source.form.prompts[PROMPT_NAME].messages(source.question.row)


def _message(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]

"""Measure a policy on held-out questions.

Each measure has one value per question, the mean over its responses, or None where it does not
apply. All but the length and the Brier score are shares. See MEANINGS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from language_model.forms import Form
from language_model.plan import TEMPERATURE
from language_model.questions import Question
from language_model.shared_prompt import copy_of, generate, prompt_ids

import rag_rewards as rr
from rag_rewards.groups import raise_errors
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.metrics.metric import read_answer
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.text.citations import cited_labels, compiled
from rag_rewards.text.refusal import is_refusal

PerQuestion = dict[str, list[float | None]]
MEANINGS = {
    "accuracy": "answerable questions: the answer is right and no abstention",
    "hallucination": "all questions: the answer is neither right nor an abstention",
    "abstention": "unanswerable questions: the response abstains",
    "abstention (answerable)": "answerable questions: the response abstains",
    "citation precision": "answerable questions: share of the cited documents that support the "
    "answer; 0 without citations",
    "citation recall": "answerable questions: share of the supporting documents that are cited",
    "relevance": "answerable questions, form `arena`: the list of relevant documents is exactly "
    "that of the supporting ones",
    "cited right": "answerable questions, form `ground`: a statement contains the answer, and each "
    "statement with the answer cites supporting documents only, one of which contains it",
    "brier": "all questions, form `rlcr`: (right − confidence)², 1 without a confidence",
    "format": "the form of the recipe, where the recipe has a component of this name",
    "length": "tokens of a response",
}
"""The meaning of each measure."""
BATCH = 32
"""Responses that are generated together."""


def measure(
    model: Any,
    tokenizer: Any,
    form: Form,
    questions: Sequence[Question],
    *,
    samples: int = 1,
    temperature: float = TEMPERATURE,
    seed: int = 0,
) -> PerQuestion:
    """Return the measures of a model's responses, one value per question."""
    import torch

    torch.manual_seed(seed)
    copy, rows = copy_of(model), [form.row(question) for question in questions]
    texts: list[tuple[str, int]] = []
    size = BATCH // samples
    for start in range(0, len(rows), size):
        prompts = [prompt_ids(tokenizer, row["prompt"]) for row in rows[start : start + size]]
        ids = generate(copy, prompts, samples=samples, tokens=form.tokens, temperature=temperature)
        texts += [(tokenizer.decode(each, skip_special_tokens=True), len(each)) for each in ids]
    return by_question(form, rows, texts)


def by_question(
    form: Form, rows: Sequence[Mapping[str, Any]], texts: Sequence[tuple[str, int]]
) -> PerQuestion:
    """Return the measures of responses and their lengths, as many for each row, in its order."""
    samples = len(texts) // len(rows)
    rollouts = [
        rr.decode_row({**rows[i // samples], "response": text, "group": str(i // samples)})
        for i, (text, _) in enumerate(texts)
    ]
    scores = raise_errors(rr.Scorer(rr.recipe(*form.correct)).score_each(rollouts))
    responses = [
        values_of(rollout, score, length)
        for rollout, score, (_, length) in zip(rollouts, scores, texts, strict=True)
    ]
    groups = [responses[i : i + samples] for i in range(0, len(responses), samples)]
    names = responses[0]
    return {name: [_mean([each[name] for each in group]) for group in groups] for name in names}


def values_of(rollout: rr.Rollout, score: rr.Score, length: int) -> dict[str, float | None]:
    """Return the measures of one response."""
    answer = read_answer(rollout) or ""
    abstains = is_refusal(answer)
    is_right = not abstains and bool(score.correct)
    parts, can = score.components, bool(rollout.answerable)
    cited = cited_labels(rollout.parsed.text, compiled())
    values: dict[str, float | None] = {
        "accuracy": float(is_right) if can else None,
        "hallucination": float(not is_right and not abstains),
        "abstention": None if can else float(abstains),
        "abstention (answerable)": float(abstains) if can else None,
        "citation precision": citation_precision(cited, rollout.supporting_labels) if can else None,
        "citation recall": citation_recall(cited, rollout.supporting_labels) if can else None,
        "length": float(length),
    }
    if "format" in parts:
        values["format"] = parts["format"]
    if "relevance" in parts:
        values["relevance"] = float(parts["relevance"] == 1) if can else None
    if "exact_match" in parts:
        # Each statement with the answer earns 0.5 for the match, and 0.5 or −0.5 for its citations.
        match, citation = parts["exact_match"] or 0.0, parts["citation"] or 0.0
        values["cited right"] = float(0 < match <= citation) if can else None
    if "confidence" in parts:
        stated = parts["confidence"]
        values["brier"] = 1.0 if stated is None else (is_right - stated) ** 2
    return values


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present else None


# --- intervals -----------------------------------------------------------------------------------


def summary(values: Sequence[float | None]) -> list[float] | None:
    """Return the mean with its 95 % bootstrap interval over questions, None without values."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    columns = {"sum": present, "n": [1.0] * len(present)}
    (ends,) = intervals_of([(lambda parts: {"mean": _ratio(parts)}, columns)], Resampling())
    return [round(x, 4) for x in (fmean(present), *(ends["mean"] or ()))]


def _ratio(parts: Mapping[str, float]) -> float | None:
    return parts["sum"] / parts["n"] if parts["n"] else None


def difference(
    after: Sequence[Sequence[float | None]], before: Sequence[Sequence[float | None]]
) -> list[float] | None:
    """Return the mean difference with its interval, paired by question.

    The values of several seeds are averaged within a question first.
    """
    ends = [[_mean(column) for column in zip(*runs, strict=True)] for runs in (after, before)]
    pairs = zip(*ends, strict=True)
    return summary([a - b if a is not None and b is not None else None for a, b in pairs])

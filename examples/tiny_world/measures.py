"""What a policy does in the tiny world, in numbers: shares of fresh questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

import msgspec

import rag_rewards as rr
from rag_rewards.backends.transformers import TransformersPolicy
from rag_rewards.gathering import Gatherer
from rag_rewards.grading import Grader
from rag_rewards.metrics import TrustScore
from rag_rewards.metrics.metric import EvaluatedRow
from rag_rewards.metrics.reading import Common, read_answer
from rag_rewards.models import Models, Policy
from rag_rewards.rollout import Rollout, Score
from rag_rewards.text.refusal import ABSTENTIONS
from tiny_world.formats import ARENA, GROUND, LEAR, PLAIN, TRUTHRL, Format
from tiny_world.play import answers, rollouts, world_models
from tiny_world.world import Question

T = TypeVar("T")
Measures = dict[str, float]
LEAR_SETTINGS = {"decode.max_tokens": 3}
"""A masked answer is a word and its closing tag."""


def measure(
    model: Any, words: Any, form: Format, asked: Sequence[Question], **how: Any
) -> Measures:
    """The measures of a format over what the model says to these questions."""
    said = rollouts(model, words, form, asked, **how)
    if form is LEAR:
        return masked(said, TransformersPolicy(model, words))
    return MEASURES[form.name](said)


def truth(said: Sequence[Rollout]) -> Measures:
    """TruthRL's: over all questions, and apart."""
    kinds = [s.details["truth"] for s in scored("truthrl", said, {"verifier": "exact"})]
    known, unknown = _apart(kinds, said)
    right, wrong = _share(k == "correct" for k in kinds), _share(k == "incorrect" for k in kinds)
    return {
        "accuracy": right,
        "hallucination": wrong,
        "abstention": _share(k == "uncertain" for k in kinds),
        "truthfulness": right - wrong,
        "answerable right": _share(k == "correct" for k in known),
        "unanswerable answered": _share(k == "incorrect" for k in unknown),
    }


def cited(said: Sequence[Rollout]) -> Measures:
    """Of the bare format: answers and citations of the answerable, abstentions of the others."""
    known, unknown = _apart(said, said)
    right = [_says(each, each.gold[0][0]) for each in known]
    return {
        "answer": _share(right),
        "citation": _share(
            a and _says(each, f"[{each.supporting_labels[0]}]")
            for a, each in zip(right, known, strict=True)
        ),
        "abstains": _share(any(p in each.parsed.text for p in ABSTENTIONS) for each in unknown),
    }


def traced(said: Sequence[Rollout]) -> Measures:
    """ARENA's: format over all; answer and relevance of the answerable; abstentions."""
    parts = _parts(scored("arena", said))
    known, unknown = _apart(parts, said)
    return {
        "format": _share(each["format"] for each in parts),
        "answer": _share(each["accuracy"] for each in known),
        "relevance": _share(each["relevance"] == 1 for each in known),
        "abstains": _share(each["accuracy"] for each in unknown),
    }


def trusted(said: Sequence[Rollout]) -> Measures:
    """Ground-GRPO's: format, Trust-Score and its parts; answers, citations, refusals by rows."""
    scores = scored("ground-grpo", said, models=world_models())
    parts = _parts(scores)
    known, _ = _apart(parts, said)
    refused = [bool(score.details.get("refused")) for score in scores]
    return {
        "format": _share(each["format"] for each in parts),
        "answer": _share(each["exact_match"] > 0 for each in known),
        "citation": _share(each["citation"] > 0 for each in known),
        "abstains": _share(_apart(refused, said)[1]),
        **_trust_score(said),
    }


def _trust_score(said: Sequence[Rollout]) -> Measures:
    """Trust-Score over these rows, with the parts that it is the mean of."""
    metric = TrustScore()
    rows = [msgspec.convert(msgspec.to_builtins(each), EvaluatedRow) for each in said]
    gauge, sums = metric.gauge(Common()), dict.fromkeys(metric.parts, 0.0)
    for row in Gatherer(world_models()).gather_sync(metric, rows):
        if isinstance(row, Exception):
            raise row
        for name, part in zip(metric.parts, gauge(row), strict=True):
            sums[name] += part
    values = metric.values(sums)
    return {name: values[name] or 0.0 for name in ("trust-score", "f1_gr", "f1_ac", "f1_gc")}


def masked(said: Sequence[Rollout], policy: Policy) -> Measures:
    """LEAR's: format; the answer, and those from the rationale, the extract, and both."""
    scores = scored("lear", said, LEAR_SETTINGS, Models(policy=policy), LEAR)
    parts = _parts(scores)
    right = [_answer(each) == each.gold[0][0] for each in said]
    known, _ = _apart(parts, said)
    answered, abstained = _apart(right, said)
    names = {"o_r": "answer_rationale", "o_e": "answer_evidence", "o_f": "answer_full"}
    return {
        "format": _share(each["format"] for each in parts),
        "answer": _share(answered),
        **{short: _share(each[name] for each in known) for short, name in names.items()},
        "abstains": _share(abstained),
    }


def reliance(model: Any, words: Any, asked: Sequence[Question], **how: Any) -> float:
    """Right answers with the supporting document, minus those without it: CTRL-RAG's Table 4."""
    known = [each for each in asked if each.answerable]
    shown = [PLAIN.row(each)["prompt"] for each in known]
    alone = [
        text.replace(f"{each.who} {each.answer} [{each.support}] . ", "")
        for text, each in zip(shown, known, strict=True)
    ]
    right = []
    for prompts in (shown, alone):
        said = answers(model, words, prompts, **how)
        right.append(_share(e.answer in text.split() for e, text in zip(known, said, strict=True)))
    return right[0] - right[1]


MEASURES: dict[str, Callable[[Sequence[Rollout]], Measures]] = {
    PLAIN.name: cited,
    TRUTHRL.name: truth,
    ARENA.name: traced,
    GROUND.name: trusted,
}


def scored(
    recipe: str,
    said: Sequence[Rollout],
    settings: dict[str, Any] | None = None,
    models: Models | None = None,
    form: Format | None = None,
) -> list[Score]:
    """Scores of rollouts. What cannot be scored is raised."""
    grader = Grader(rr.recipe(recipe, settings), models, prompt=form.prompt if form else None)
    scores = []
    for result in grader.score_each(said):
        if not isinstance(result, Score):
            raise result
        scores.append(result)
    return scores


def _parts(scores: Sequence[Score]) -> list[dict[str, float]]:
    """The components that are known."""
    return [{k: v for k, v in score.components.items() if v is not None} for score in scores]


def _apart(values: Sequence[T], said: Sequence[Rollout]) -> tuple[list[T], list[T]]:
    """What belongs to answerable questions, and what to the others."""
    pairs = list(zip(values, said, strict=True))
    return [v for v, each in pairs if each.answerable], [
        v for v, each in pairs if not each.answerable
    ]


def _share(marks: Iterable[float]) -> float:
    """A mean of marks between 0 and 1."""
    return fmean(map(float, marks))


def _says(each: Rollout, word: str) -> bool:
    return word in each.parsed.text.split()


def _answer(each: Rollout) -> str:
    return (read_answer(each, "answer") or "").strip()

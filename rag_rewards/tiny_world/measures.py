"""Measure what a policy does in the tiny world, mostly as shares of responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models, Policy
from rag_rewards.groups import raise_errors
from rag_rewards.metrics import TrustScore
from rag_rewards.metrics.metric import AnswerCache, read_answer
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.recipes import recipe
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.tiny_world.evidence import world_models
from rag_rewards.tiny_world.formats import ARENA, GROUND, LEAR, PLAIN, TRUTHRL, ResponseFormat
from rag_rewards.tiny_world.generation import responses, rollouts
from rag_rewards.tiny_world.world import WorldQuestion

T = TypeVar("T")
Measures = dict[str, float]
LEAR_SETTINGS = {"decode.max_tokens": 3}
"""A masked answer is a word and its closing tag."""


def measure(
    model: Any,
    tokenizer: Any,
    form: ResponseFormat,
    questions: Sequence[WorldQuestion],
    **options: Any,
) -> Measures:
    """Return the measures of a format over the model's responses to these questions.

    `options` are those of `generation.responses`.
    """
    samples = rollouts(model, tokenizer, form, questions, **options)
    if form is LEAR:
        return lear_measures(samples, TransformersPolicy(model, tokenizer))
    return MEASURES[form.name](samples)


def plain_measures(samples: Sequence[Rollout]) -> Measures:
    """Return the shares of right answers, right answers with citation, and right abstentions."""
    answerable, unanswerable = _split(samples, samples)
    right = [_has_word(each, each.gold[0][0]) for each in answerable]
    return {
        "answer": _share(right),
        "citation": _share(
            is_right and _has_word(each, f"[{each.supporting_labels[0]}]")
            for is_right, each in zip(right, answerable, strict=True)
        ),
        "abstains": _share(
            any(p in each.parsed.text for p in ABSTENTIONS) for each in unanswerable
        ),
    }


def truthrl_measures(samples: Sequence[Rollout]) -> Measures:
    """Return TruthRL's measures over all questions and over both kinds of questions."""
    outcomes = [s.details["truth"] for s in score_all("truthrl", samples, {"verifier": "exact"})]
    answerable, unanswerable = _split(outcomes, samples)
    right = _share(outcome == "correct" for outcome in outcomes)
    wrong = _share(outcome == "incorrect" for outcome in outcomes)
    return {
        "accuracy": right,
        "hallucination": wrong,
        "abstention": _share(outcome == "uncertain" for outcome in outcomes),
        "truthfulness": right - wrong,
        "answerable right": _share(outcome == "correct" for outcome in answerable),
        "unanswerable answered": _share(outcome == "incorrect" for outcome in unanswerable),
    }


def arena_measures(samples: Sequence[Rollout]) -> Measures:
    """Return ARENA's format over all questions, and its other measures by kind of question."""
    components = _components(score_all("arena", samples))
    answerable, unanswerable = _split(components, samples)
    return {
        "format": _share(each["format"] for each in components),
        "answer": _share(each["accuracy"] for each in answerable),
        "relevance": _share(each["relevance"] == 1 for each in answerable),
        "abstains": _share(each["accuracy"] for each in unanswerable),
    }


def ground_measures(samples: Sequence[Rollout]) -> Measures:
    """Return Ground-GRPO's format, answers, citations, refusals, and Trust-Score."""
    scores = score_all("ground-grpo", samples, models=world_models())
    components = _components(scores)
    answerable, _ = _split(components, samples)
    refusals = [bool(score.details.get("refused")) for score in scores]
    return {
        "format": _share(each["format"] for each in components),
        "answer": _share(each["exact_match"] > 0 for each in answerable),
        "citation": _share(each["citation"] > 0 for each in answerable),
        "abstains": _share(_split(refusals, samples)[1]),
        **_trust_score(samples),
    }


def _trust_score(samples: Sequence[Rollout]) -> Measures:
    """Return Trust-Score with the three measures that it is the mean of."""
    metric = TrustScore()
    rows = [msgspec.convert(msgspec.to_builtins(each), ScoredRow) for each in samples]
    gauge, sums = metric.gauge(AnswerCache()), dict.fromkeys(metric.parts, 0.0)
    for row in raise_errors(Gatherer(world_models()).gather_sync(metric, rows)):
        for name, part in zip(metric.parts, gauge(row), strict=True):
            sums[name] += part
    values = metric.values(sums)
    return {name: values[name] or 0.0 for name in ("trust-score", "f1_gr", "f1_ac", "f1_gc")}


def lear_measures(samples: Sequence[Rollout], policy: Policy) -> Measures:
    """Return LEAR's format, its answer, and the answers from its masked contexts."""
    scores = score_all("lear", samples, LEAR_SETTINGS, Models(policy=policy), LEAR)
    components = _components(scores)
    right = [_answer(each) == each.gold[0][0] for each in samples]
    answerable, _ = _split(components, samples)
    answers, abstentions = _split(right, samples)
    names = {"o_r": "answer_rationale", "o_e": "answer_evidence", "o_f": "answer_full"}
    return {
        "format": _share(each["format"] for each in components),
        "answer": _share(answers),
        **{short: _share(each[name] for each in answerable) for short, name in names.items()},
        "abstains": _share(abstentions),
    }


def reliance(
    model: Any, tokenizer: Any, questions: Sequence[WorldQuestion], **options: Any
) -> float:
    """Return the share of right answers with the supporting document minus that without it.

    Range −1 to 1. Source: CTRL-RAG, section 5.2 (RR).
    """
    answerable = [each for each in questions if each.answerable]
    complete = [PLAIN.row(each)["prompt"] for each in answerable]
    reduced = [
        prompt.replace(f"{each.person} {each.answer} [{each.support}] . ", "")
        for prompt, each in zip(complete, answerable, strict=True)
    ]
    with_support, without_support = (
        _share(
            each.answer in text.split()
            for each, text in zip(
                answerable, responses(model, tokenizer, prompts, **options), strict=True
            )
        )
        for prompts in (complete, reduced)
    )
    return with_support - without_support


MEASURES: dict[str, Callable[[Sequence[Rollout]], Measures]] = {
    PLAIN.name: plain_measures,
    TRUTHRL.name: truthrl_measures,
    ARENA.name: arena_measures,
    GROUND.name: ground_measures,
}


def score_all(
    name: str,
    samples: Sequence[Rollout],
    settings: dict[str, Any] | None = None,
    models: Models | None = None,
    form: ResponseFormat | None = None,
) -> list[Score]:
    """Score rollouts with a recipe. Raises the error of a rollout that cannot be scored."""
    scorer = Scorer(recipe(name, settings), models, prompt=form.prompt if form else None)
    return raise_errors(scorer.score_each(samples))


def _components(scores: Sequence[Score]) -> list[dict[str, float]]:
    """Return the components that have a value."""
    return [{k: v for k, v in score.components.items() if v is not None} for score in scores]


def _split(values: Sequence[T], samples: Sequence[Rollout]) -> tuple[list[T], list[T]]:
    """Split the values of rollouts into those of answerable and of unanswerable questions."""
    pairs = list(zip(values, samples, strict=True))
    return [value for value, each in pairs if each.answerable], [
        value for value, each in pairs if not each.answerable
    ]


def _share(values: Iterable[float]) -> float:
    """Return the mean of values between 0 and 1."""
    return fmean(map(float, values))


def _has_word(rollout: Rollout, word: str) -> bool:
    return word in rollout.parsed.text.split()


def _answer(rollout: Rollout) -> str:
    return (read_answer(rollout, "answer") or "").strip()

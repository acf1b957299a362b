"""What models would say about a row, by rules over words: consistent, and the same on both sides.

Log-probabilities: a word of a left-out document is likelier with it by half a nat. Entailment:
most words of the hypothesis stand in the premise. Masked answers: the gold answer where the
section holds it. Verdicts: the gold answer is asserted. An audit compares a row with itself, so
that a rule is enough to see what a reward pays for; real models stand in their place when given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from rapidfuzz import fuzz

from rag_rewards.attacks.rows import ROW, Row, tagged
from rag_rewards.blueprints import Recipe
from rag_rewards.compose import Reward
from rag_rewards.errors import RolloutError
from rag_rewards.evidence import (
    EntailmentNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    Need,
    SimilarityNeed,
    VerdictNeed,
)
from rag_rewards.rollout import (
    Entailment,
    LogProbs,
    MaskedAnswers,
    MaskedLogProbs,
    Rollout,
    Similarity,
    decode_row,
)
from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import strict_contains

_WORD = re.compile(r"\w+")
_IDLE = frozenset(_WORD.findall("the a an is of it in on and was that this answer to i"))
_LONGEST = 20
"""Words of an answer that the judge reads as one: more is a passage."""
COMPANIONS: tuple[Row, ...] = (
    {"response": tagged("The capital is Paris", "Hm. " * 9)},
    {"response": tagged("Madrid")},
)
"""A right and a wrong rollout of the same group, for recipes that compare."""


def earns(recipe: Recipe, row: Row, companions: Sequence[Row] = COMPANIONS) -> float:
    """The reward of a row; where a recipe compares, beside the companions in its group."""
    rows = [row, *companions] if recipe.scope == "group" else [row]
    shared = {key: row[key] for key in ("answers", "supporting", "documents") if key in row}
    rollouts = [complete(recipe, shared | each | {"group": "g"}) for each in rows]
    value = recipe(rollouts)[0].value
    if value is None:
        raise RolloutError("the recipe gives this row no score")
    return value


def complete(recipe: Reward, row: Row) -> Rollout:
    """A row of the five capitals, with everything that the recipe asks for."""
    return informed(recipe, decode_row(ROW | row))


def informed(recipe: Reward, rollout: Rollout) -> Rollout:
    """The rollout with all evidence that it lacks. What was answered may raise new needs."""
    for _ in range(4):
        needs = [need for need in recipe.needs(rollout) if not need.met(rollout)]
        if not needs:
            break
        for need in needs:
            rollout = _answered(rollout, need)
    return rollout


def entailed(premise: str, hypothesis: str) -> float:
    """Most words of the hypothesis stand in the premise, and no negation only in the former."""
    known = set(_WORD.findall(premise.lower()))
    said = {word for word in _WORD.findall(hypothesis.lower()) if word not in _IDLE}
    if not said or said & {"not", "never", "no"} - known:
        return 0.05
    return 0.95 if len(said & known) >= 0.75 * len(said) else 0.05


def logprobs(rollout: Rollout, labels: Sequence[str]) -> LogProbs:
    """One token per word; a word of a document is likelier with it by half a nat."""
    response = rollout.parsed.text
    words = response.split() or ["-"]
    bare = [re.sub(r"\W|</?\w+>", "", word.lower()) for word in words]
    texts = dict(zip(rollout.labels, rollout.documents or (), strict=True))
    without: dict[str, tuple[float, ...] | None] = {}
    for label in labels:
        known = set(_WORD.findall(texts[label].text.lower())) if label in texts else set()
        without[label] = tuple(-1.5 if word in known else -1.05 for word in bare)
    start = len(response[: response.rfind("</think>")].split()) if "</think>" in response else 0
    unclosed = response.rfind("<think>") > response.rfind("</think>")
    return LogProbs(
        full=(-1.0,) * len(words),
        without=without,
        answer_span=(len(words) if unclosed else start, len(words)),
    )


def _answered(rollout: Rollout, need: Need) -> Rollout:
    """The rollout, with one need answered."""
    replace = msgspec.structs.replace
    if isinstance(need, EntailmentNeed):
        said = Entailment(
            premise=need.premise,
            hypothesis=need.hypothesis,
            entailment=entailed(need.premise, need.hypothesis),
        )
        return replace(rollout, nli=(*(rollout.nli or ()), said))
    if isinstance(need, LogProbsNeed):
        return replace(rollout, logprobs=logprobs(rollout, need.without))
    if isinstance(need, SimilarityNeed):
        ratio = fuzz.ratio(need.text.lower(), need.reference.lower()) / 100
        alike = Similarity(text=need.text, reference=need.reference, similarity=ratio)
        return replace(rollout, similarity=(*(rollout.similarity or ()), alike))
    if isinstance(need, MaskedAnswersNeed):
        known = rollout.masked_answers or MaskedAnswers()
        gold = rollout.gold[0][0]
        answer = gold if _holds(rollout, need.part) else "unknown"
        return replace(rollout, masked_answers=replace(known, **{need.part: answer}))
    if isinstance(need, MaskedLogProbsNeed):
        value = -0.1 if _holds(rollout, need.part) else -3.0
        values = tuple((value,) for aliases in rollout.gold for _ in aliases)
        likely = rollout.masked_logprobs or MaskedLogProbs()
        return replace(rollout, masked_logprobs=replace(likely, **{need.part: values}))
    return replace(rollout, verdicts={**(rollout.verdicts or {}), need.component: _verdict(need)})


def _holds(rollout: Rollout, part: str) -> bool:
    """Whether a section of the response names the gold answer."""
    names = {"rationale": ("reason",), "evidence": ("extract",)}.get(part, ("reason", "extract"))
    text = rollout.parsed.text
    inside = " ".join(
        section for name in names for section in re.findall(rf"<{name}>([^<]*)</{name}>", text)
    )
    return any(strict_contains(inside, aliases, Unicode()) for aliases in rollout.gold)


def _verdict(need: VerdictNeed) -> Literal[0, 1]:
    """A judge that is never fooled: the answer asserts the gold answer."""
    golds = [alias for question in need.questions for alias in question.gold]
    right = any(
        strict_contains(question.response.replace("、", ", "), golds, Unicode())
        for question in need.questions
        if len(question.response.split()) <= _LONGEST
    )
    return 1 if right else 0

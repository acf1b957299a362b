"""Evidence from rules over words, in place of models.

An audit compares two versions of the same row, so that simple rules suffice if they treat both
versions alike. Models replace the rules when they are available. The rules:

- Log-probabilities: a word of a left-out document is more likely with the document, by 0.5 nats.
- Entailment: the premise contains most words of the hypothesis, and each that turns a meaning.
- Contradiction: the response names something from the documents, and not the gold answer.
- Masked and generated answers: the gold answer if the section, or the documents, contain it.
- Grades: of a claim, 1 if the cited results entail it, or if it cites none and names nothing from
  the documents; of a criterion with the gold answer and within a group, 1 if the response asserts
  the gold answer; of another criterion, 1 if the response contains most of its words.
- Verdicts: 1 if the response asserts the gold answer, if the documents entail a claim, or if there
  is no contradiction.
- Entities: the answer is the gold answer if the response asserts it; other names are missing.
- Log-probabilities of an answer after a turn: high if the turns so far name the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from rapidfuzz import fuzz

from rag_rewards.audit.capitals import Row
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.evidence.exchange import NewEvidence
from rag_rewards.evidence.judge_needs import (
    EntitiesNeed,
    GradesNeed,
    GroupGrades,
    GroupGradesNeed,
    VerdictNeed,
)
from rag_rewards.evidence.needs import (
    ContradictionNeed,
    EntailmentNeed,
    GeneratedAnswerNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    Need,
    SimilarityNeed,
    TurnLogProbsNeed,
)
from rag_rewards.evidence.values import StoredVerdict
from rag_rewards.groups import group_by_key
from rag_rewards.matching.mentions import agrees, rivals, stated_answers
from rag_rewards.matching.reading import read_words
from rag_rewards.matching.tables import tables
from rag_rewards.prompts import ANY_FORM
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.sample import ROW
from rag_rewards.reward import Reward
from rag_rewards.rewards.carr import ROOT
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.text.normalize import Unicode
from rag_rewards.text.statements import sentences
from rag_rewards.text.url_citations import without_url_citations

COMPANIONS: tuple[Row, ...] = (
    {"response": ANY_FORM.write("The capital is Paris", think="Hm. " * 9)},
    {"response": ANY_FORM.write("Madrid")},
)
"""A right and a wrong rollout in the group of a row, for recipes that compare."""
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z]\w{3,}")
_FUNCTION_WORDS = frozenset(_WORD.findall("the a an is of it in on and was that this answer to i"))
_MAX_ANSWER_WORDS = 20
"""A longer response is a passage, which the judge's rule rejects."""
_MAX_ROUNDS = 4
"""Rounds of needs: the evidence of one round can raise the needs of the next."""


def reward_of(recipe: Recipe, row: Row, companions: Sequence[Row] = COMPANIONS) -> float:
    """Return the reward of a built-in row.

    The companions are in its group if the recipe compares. Raises RolloutError if the recipe gives
    no score.
    """
    rows = [row, *companions] if recipe.scope == "group" else [row]
    shared = {key: row[key] for key in ("answers", "supporting", "documents") if key in row}
    rollouts = [rollout_of(recipe, shared | each | {"group": "g"}) for each in rows]
    value = recipe(with_group_evidence(recipe, rollouts))[0].value
    if value is None:
        raise RolloutError("the recipe gives this row no score")
    return value


def rollout_of(recipe: Reward, row: Row) -> Rollout:
    """Return a built-in row, with other fields, as a rollout with its evidence."""
    return with_evidence(recipe, decode_row(ROW | row))


def with_evidence(recipe: Reward, rollout: Rollout) -> Rollout:
    """Return the rollout with all evidence that the recipe needs and the rollout lacks."""
    for _ in range(_MAX_ROUNDS):
        needs = [
            need
            for need in recipe.needs(rollout)
            if not (isinstance(need, GroupGradesNeed) or need.is_met(rollout))
        ]
        if not needs:
            break
        new = NewEvidence(rollout)
        for need in needs:
            new.add(need, _result(rollout, need))
        rollout = rollout.with_evidence(new.evidence)
    for _, verdict in _group_verdicts(recipe, {0: rollout}):  # as in a group of one
        rollout = msgspec.structs.replace(rollout, verdicts={**(rollout.verdicts or {}), **verdict})
    return rollout


def with_group_evidence(recipe: Reward, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts with the grades that a recipe needs of each group."""
    informed = list(rollouts)
    for group in group_by_key(rollouts):
        for i, verdict in _group_verdicts(recipe, {i: rollouts[i] for i in group}):
            verdicts = {**(rollouts[i].verdicts or {}), **verdict}
            informed[i] = msgspec.structs.replace(rollouts[i], verdicts=verdicts)
    return informed


def _group_verdicts(
    recipe: Reward, group: Mapping[int, Rollout]
) -> Iterator[tuple[int, dict[str, StoredVerdict]]]:
    """Yield the verdict by component of each rollout of a group whose need is not met."""
    needs: dict[int, GroupGradesNeed] = {}
    for i, rollout in group.items():
        with suppress(RolloutError):  # scoring raises the same error
            own = [each for each in recipe.needs(rollout) if isinstance(each, GroupGradesNeed)]
            if own:
                needs[i] = own[0]
    if not needs:
        return
    grades = GroupGrades(list(needs.values()))
    for i, need in needs.items():
        if not grades.is_stored(group[i]):
            (text,) = need.question.responses
            grade = float(_asserts_without_tags(text, group[i]))
            orders = (grade,) * need.orders
            yield i, {need.component: {"grade": grade, "orders": orders, "group": grades.digest}}


def entailment_score(premise: str, hypothesis: str) -> float:
    """Return 0.95 if the premise contains most words of the hypothesis, else 0.05.

    A word that turns a meaning, and that only the hypothesis contains, gives 0.05.
    """
    turning = {word.folded for word in read_words(hypothesis)} & tables().turning
    if turning and not turning <= {word.folded for word in read_words(premise)}:
        return 0.05
    premise_words = set(_WORD.findall(premise.lower()))
    claims = set(_WORD.findall(hypothesis.lower())) - _FUNCTION_WORDS
    if not claims:
        return 0.05
    return 0.95 if len(claims & premise_words) >= 0.75 * len(claims) else 0.05


def _log_probs(rollout: Rollout, labels: Sequence[str]) -> dict[str, Any]:
    """Return log-probabilities with one token per word of the response."""
    response = rollout.parsed.text
    words = response.split() or ["-"]
    bare = [re.sub(r"\W|</?\w+>", "", word.lower()) for word in words]
    texts = dict(zip(rollout.labels, rollout.documents or (), strict=True))
    without: dict[str, tuple[float, ...] | None] = {}
    for label in labels:
        document = set(_WORD.findall(texts[label].text.lower())) if label in texts else set()
        without[label] = tuple(-1.5 if word in document else -1.05 for word in bare)
    start = len(response[: response.rfind("</think>")].split()) if "</think>" in response else 0
    is_unclosed = response.rfind("<think>") > response.rfind("</think>")
    return {
        "full": (-1.0,) * len(words),
        "without": without,
        "answer_span": (len(words) if is_unclosed else start, len(words)),
    }


def _turn_log_probs(rollout: Rollout, need: TurnLogProbsNeed) -> dict[str, Any]:
    """Return log-probabilities of one token per alias, high where the context names the alias."""
    turns = rollout.trajectory(need.reading).turns[:-1]
    aliases = [alias for aliases in rollout.gold for alias in aliases]
    normalize = Unicode()

    def values(parts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        text = normalize("\n".join(parts))
        contained = (normalize(alias) in text for alias in aliases)
        return tuple((-0.1 if is_contained else -3.0,) for is_contained in contained)

    parts = [rollout.question or ""]
    prior, after, without = values(parts), [], []
    for turn in turns:
        parts.append(turn.text)
        without.append(None if turn.results is None else values(parts))
        parts += [result.text for result in turn.results or ()]
        after.append(values(parts))
    return {
        "prior": prior,
        "after": tuple(after),
        "empty": tuple(without),
        "random": tuple(None if each is None else (each,) for each in without),
    }


def _result(rollout: Rollout, need: Need) -> Any:
    """Return the result of a rule in place of that of a model."""
    if isinstance(need, EntailmentNeed):
        return entailment_score(need.premise, need.hypothesis)
    if isinstance(need, ContradictionNeed):
        is_consistent = _is_consistent(rollout, rollout.parsed.visible)
        entailment = entailment_score(need.premise, need.hypothesis)
        return entailment, 0.05 if is_consistent else 0.95
    if isinstance(need, SimilarityNeed):
        return fuzz.ratio(need.text.lower(), need.reference.lower()) / 100
    if isinstance(need, VerdictNeed):
        return _verdict(rollout, need)
    if isinstance(need, GradesNeed):
        return _grades(rollout, need)
    if isinstance(need, EntitiesNeed):
        return _names(rollout, need)
    if isinstance(need, LogProbsNeed):
        return _log_probs(rollout, need.without)
    if isinstance(need, GeneratedAnswerNeed):
        text = need.messages[-1][1].replace(rollout.question or "", "")
        return rollout.gold[0][0] if any(stated_answers(text, rollout.gold)) else "unknown"
    if isinstance(need, MaskedAnswersNeed):
        return rollout.gold[0][0] if _section_names_gold(rollout, need.part) else "unknown"
    if isinstance(need, MaskedLogProbsNeed):
        value = -0.1 if _section_names_gold(rollout, need.part) else -3.0
        return tuple((value,) for aliases in rollout.gold for _ in aliases)
    if isinstance(need, TurnLogProbsNeed):
        return _turn_log_probs(rollout, need)
    raise UsageError(f"no rule provides the evidence of {need!r}: supply a model")


def _section_names_gold(rollout: Rollout, part: str) -> bool:
    """Return whether the sections that a masked context keeps name every gold answer's alias."""
    names = {"rationale": ("reason",), "evidence": ("extract",)}.get(part, ("reason", "extract"))
    text = rollout.parsed.text
    content = " ".join(
        section for name in names for section in re.findall(rf"<{name}>([^<]*)</{name}>", text)
    )
    return any(stated_answers(content, rollout.gold))


def _asserts(text: str, rollout: Rollout, aliases: Sequence[str]) -> bool:
    """Return whether a text states a gold answer, and no other one, in words of the documents."""
    question, documents = rollout.question or "", rollout.documents or rollout.retrieved
    sources = [*(document.text for document in documents), *aliases]
    bare = strip_markers(without_url_citations(text), compiled())
    parts = [part for part in sentences(bare) if part.strip()]
    return (
        any(any(stated_answers(part, aliases, question, sources)) for part in parts)
        and not any(rivals(parts, aliases, question))
        and not any(word.is_sign for word in read_words(bare))
        and agrees(bare, aliases, question, sources, closely=True)
    )


def _names(rollout: Rollout, need: EntitiesNeed) -> dict[str, str | None]:
    """Return the gold answer as the name of the answer if the response asserts it."""
    text = need.question.response if need.question else ""
    gold = rollout.gold[0]
    names: dict[str, str | None] = dict.fromkeys(need.placeholders)
    if ROOT in names and _asserts(text, rollout, gold):
        names[ROOT] = gold[0]
    return names


def _is_consistent(rollout: Rollout, text: str) -> bool:
    """Return whether a text asserts the gold answer, or names nothing from the documents."""
    text = strip_markers(text, compiled())
    if rollout.answers is not None and all(
        _asserts(text, rollout, aliases) for aliases in rollout.gold
    ):
        return True
    return _names_nothing(rollout, text)


def _names_nothing(rollout: Rollout, text: str) -> bool:
    """Return whether a text contains no name from the documents."""
    documents = rollout.documents or rollout.retrieved
    named = {name for document in documents for name in _NAME.findall(document.text)}
    return named.isdisjoint(_NAME.findall(text))


def _grades(rollout: Rollout, need: GradesNeed) -> dict[str, float]:
    """Return the grade of each criterion, 0 or 1."""
    gold = _gold_of(rollout)

    def grade(response: str, criterion: str) -> bool:
        if any(alias in criterion for alias in gold):
            return _asserts_without_tags(response, rollout)
        return entailment_score(response, criterion) > 0.5

    grades = []
    for question in need.questions:
        if question.kind == "support":
            premise = "\n".join(question.documents)
            grades.append(float(entailment_score(premise, question.response) > 0.5))
        elif question.kind == "needless":
            grades.append(float(_names_nothing(rollout, question.response)))
        grades += [float(grade(question.response, each)) for each in question.criteria]
    return dict(zip(need.names, grades, strict=True))


def _asserts_without_tags(text: str, rollout: Rollout) -> bool:
    """Return whether a text, which may have sections, states the gold answer of a row with one."""
    bare = re.sub(r"</?\w+>", " ", text)
    gold = _gold_of(rollout)
    return bool(gold) and _asserts(bare, rollout, gold)


def _gold_of(rollout: Rollout) -> tuple[str, ...]:
    """Return the aliases of the first gold answer, nothing for a row without one."""
    with suppress(RolloutError):
        return rollout.gold[0]
    return ()


def _verdict(rollout: Rollout, need: VerdictNeed) -> Literal[0, 1]:
    """Return the verdict of a judge that no text misleads.

    Of the questions about an answer, a short response must assert a gold answer.
    """
    for question in need.questions:
        if question.kind == "supported":
            return (
                1 if entailment_score("\n".join(question.documents), question.response) > 0.5 else 0
            )
        if question.kind in ("consistent", "searched_step", "unsearched_step"):
            return 1 if _is_consistent(rollout, question.response) else 0
    golds = [alias for question in need.questions for alias in question.gold]
    is_right = any(
        _asserts(question.response, rollout, golds)
        for question in need.questions
        if len(question.response.split()) <= _MAX_ANSWER_WORDS
    )
    return 1 if is_right else 0

"""Settings together with the hardened profile: no choice of a metric or another value pays.

A setting of the hardened profile itself can be set back, so that its effect can be measured. Every
other value either keeps the attacks unprofitable, or the recipe rejects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.audit.capitals import SAME_LIKELIHOOD, Row
from rag_rewards.audit.cases import CASES, TEMPLATES
from rag_rewards.audit.rule_evidence import reward_of, rollout_of
from rag_rewards.errors import SettingError
from rag_rewards.recipes import RECIPES, definition_of

from .test_attacks import MIN_GAIN, excused

NORMALIZERS = ("lower", "squad", "triviaqa", "unicode", "spelling")
METRICS = ("exact", "substring", "f1", "lenient", "judge", "cascade")
VERIFIERS = ("exact", "substring", "f1>=0.5", "f1>=0", "f1>=1", "judge", "cascade")
SHARED = {"accuracy.metric", "accuracy.normalizer", "dialect", "sections.tags"}
"""Settings of many recipes, which the same code reads."""
F1_BY_DEFINITION = "lear"
"""The reward of LEAR is an F1, whose loopholes the definition lists."""


def choices(name: str) -> Iterator[dict[str, Any]]:
    """Yield each other value of each setting that the hardened profile does not set."""
    definition = definition_of(name)
    hardened = definition.defaults(hardened=True)
    for setting in definition.settings.descriptions:
        if setting.type == "true | false":
            values: list[Any] = [True, False]
        elif " | " in setting.type and "null" not in setting.type:
            values = setting.type.split(" | ")
        else:
            continue
        if setting.key not in definition.hardened and setting.key != "knowledge_enhanced":
            yield from ({setting.key: each} for each in values if each != hardened[setting.key])


def comparisons(name: str) -> Iterator[dict[str, Any]]:
    """Yield each metric or verifier, and each normalizer.

    `test_every_comparison_rejects_attacks_and_unicode_accepts_answers` tests all pairs of both.
    """
    keys = definition_of(name).defaults()
    if "accuracy.metric" in keys:
        yield from ({"accuracy.metric": metric} for metric in METRICS)
    if "verifier" in keys:
        yield from ({"verifier": verifier} for verifier in VERIFIERS)
        yield from ({"normalizer": normalizer} for normalizer in NORMALIZERS)
    if "accuracy.metric" in keys or "exact_match.counts" in keys:
        yield from ({"accuracy.normalizer": normalizer} for normalizer in NORMALIZERS)


@cache
def recipe_of(name: str, settings: tuple[tuple[str, Any], ...]) -> rr.Recipe:
    return rr.recipe(name, dict(settings), hardened=True)


@cache
def attacks_on(
    name: str, dialect: bool
) -> tuple[tuple[Row, Row, tuple[tuple[str, Any], ...], str], ...]:
    """Return the honest row, the attacked row, the settings and the name of each attack.

    With `dialect`, the attacks of search agents are left out, since they are in another dialect.
    """
    by_definition = excused(name)
    pairs = [
        (case.honest, case.attacked, tuple(case.settings.items()), case.id)
        for case in CASES
        if case.recipe == name
        and (case.attack, case.variant) not in by_definition
        and case.form != "transcript"
        and not (case.form and dialect)
    ]
    write = definition_of(name).output.write
    for template in TEMPLATES:
        honest = template.visible_text or template.text.replace("Paris", "Bonn")
        rows = ({"response": write(text), **SAME_LIKELIHOOD} for text in (honest, template.text))
        pairs.append((*rows, (), template.name))  # type: ignore[arg-type]
    return tuple(pairs)


@pytest.mark.parametrize("name", [each for each in RECIPES if each != F1_BY_DEFINITION])
def test_no_choice_of_a_setting_pays(name: str) -> None:
    """Every choice meets each attack of the recipe.

    A third of the recipes with a shared setting tries each of its pairs with the templates.
    """
    paying = []
    number = list(RECIPES).index(name)
    changes_of = {str(each): each for each in (*choices(name), *comparisons(name))}
    for i, changes in enumerate(changes_of.values()):
        # Only one recipe accepts the lenient metric.
        is_shared = not SHARED.isdisjoint(changes) and "lenient" not in changes.values()
        try:
            rr.recipe(name, changes, hardened=True)
        except SettingError:
            continue  # the recipe rejects the value
        best: dict[str, float] = {}
        attacks = attacks_on(name, "dialect" in changes)
        for k, (honest, attacked, settings, attack) in enumerate(attacks):
            is_template = k >= len(attacks) - len(TEMPLATES)
            if is_shared and is_template and (number + i + k) % 3:
                continue
            recipe = recipe_of(name, tuple({**dict(settings), **changes}.items()))
            row = f"{settings} {honest}"
            if row not in best:
                best[row] = reward_of(recipe, honest)
            if reward_of(recipe, attacked) > best[row] + MIN_GAIN:
                paying.append((changes, attack))
    assert paying == []


REJECTED = (
    ("arena", {"accuracy.metric": "lenient"}),
    ("naive-grpo", {"accuracy.metric": "lenient"}),
    ("rag-total", {"accuracy.metric": "lenient"}),
    ("ctrl-rag", {"accuracy.metric": "lenient"}),
    ("truthrl", {"box": "first"}),
    ("truthrl", {"accuracy.extra": "allow"}),
    ("ground-grpo", {"refusal.matcher": "semantic"}),
    ("ground-grpo-stage1", {"refusal.matcher": "semantic"}),
)


@pytest.mark.parametrize(("name", "changes"), REJECTED)
def test_a_rejected_value_has_a_clear_error(name: str, changes: dict[str, Any]) -> None:
    ((key, value),) = changes.items()
    message = f"recipe {name}: setting {key}: {value} .*: set another value, or do not use the"
    with pytest.raises(SettingError, match=message):
        rr.recipe(name, changes, hardened=True)
    assert rr.recipe(name, changes).settings is not None


# --- the comparison of one answer under each metric and verifier -------------------------------

ANSWERS = (
    ("definitely not Paris", "Paris", False),
    ("not Paris", "Paris", False),
    ("never Paris", "Paris", False),
    ("Rome, Paris, Berlin", "Paris", False),
    ("Paris or Rome", "Paris", False),
    ("Rome and Paris", "Paris", False),
    ("Rome/Paris", "Paris", False),
    ("Parisian", "Paris", False),
    ("3.14", "314", False),
    ("314", "3.14", False),
    ("1990", "19", False),
    ("5", "-5", False),
    ("C++", "C", False),
    ("!Paris", "Paris", False),
    ("~~Paris~~", "Paris", False),
    ("<!-- Paris -->", "Paris", False),
    ("Yes and no", "yes", False),
    ("Yes. No.", "no", False),
    ("Paris", "Paris", True),
    ("paris.", "Paris", True),
    ("**Paris**", "Paris", True),
    ("Paris [1]", "Paris", True),
    ("the Eiffel Tower", "Eiffel Tower", True),
    ("3.14", "3.14", True),
    ("-5", "-5", True),
    ("C++", "C++", True),
    ("1,000", "1,000", True),
    ("São Paulo", "São Paulo", True),
    ("yes", "yes", True),
    ("No.", "no", True),
    ("Who Framed Roger Rabbit", "Who Framed Roger Rabbit", True),
    ("John F. Kennedy", "John F. Kennedy", True),
)


def recipes_with_a_comparison() -> Iterator[tuple[str, dict[str, Any]]]:
    for metric in ("exact", "substring", "f1"):
        for normalizer in NORMALIZERS:
            for name in ("arena", "naive-grpo", "ctrl-rag", "rag-total"):
                yield name, {"accuracy.metric": metric, "accuracy.normalizer": normalizer}
    for verifier in ("exact", "substring", "f1>=0.5"):
        for normalizer in NORMALIZERS:
            yield "truthrl", {"verifier": verifier, "normalizer": normalizer}


@pytest.mark.parametrize(("name", "changes"), list(recipes_with_a_comparison()), ids=str)
def test_every_comparison_rejects_attacks_and_unicode_accepts_answers(
    name: str, changes: dict[str, Any]
) -> None:
    # The other normalizers keep markers and marks.
    accepts = not {"unicode", "spelling"}.isdisjoint(changes.values())
    recipe = rr.recipe(name, changes, hardened=True)
    write = definition_of(name).output.write
    wrong = []
    for answer, gold, expected in ANSWERS:
        row = {"response": write(answer), "answers": [gold], **SAME_LIKELIHOOD}
        correct = recipe([rollout_of(recipe, row)])[0].correct
        if (correct == 1.0) is not expected and (accepts or not expected):
            wrong.append((answer, gold, correct))
    assert wrong == []

"""The credit method of a training run: that of the arguments, or that of the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.scorer import Scorer
from rag_rewards.training.credit import Credit
from rag_rewards.training.credit.settings import GROUP


def credit_of(
    credit: Credit | str | None,
    options: Mapping[str, Any] | None,
    scorer: Scorer,
    std_floor: float | None,
) -> Credit | None:
    """Return the credit of the arguments, or that of the recipe. None is the method `group`.

    credit     a Credit, the name of a method, or None for the settings of the recipe
    options    options of the method, which take precedence over those of the recipe
    std_floor  the floor of the advantage of LEAR, which excludes a credit method

    Raises UsageError for options without a method, for a method with `std_floor`, and for stages
    of a curriculum with different methods.
    """
    result = _credit(credit, options, scorer)
    if result is not None and std_floor is not None:
        raise UsageError("std_floor and credit are both advantages: remove one of them")
    return result


def _credit(
    credit: Credit | str | None, options: Mapping[str, Any] | None, scorer: Scorer
) -> Credit | None:
    if isinstance(credit, Credit):
        if options:
            raise UsageError("credit_options belong to a credit that is a name: remove them")
        return credit
    if credit is not None and credit != GROUP:
        return Credit(credit, options or {})
    found = None if credit == GROUP else _of_recipes(scorer)
    if not options:
        return found
    if found is None:
        raise UsageError("credit_options requires a credit method: pass credit=")
    return Credit(found.method, {**found.options, **options})


def _of_recipes(scorer: Scorer) -> Credit | None:
    found = {recipe.name: Credit.of_settings(recipe.settings) for recipe in scorer.recipes}
    first, *others = found.values()
    if any(other != first for other in others):
        raise UsageError(f"the stages {', '.join(found)} have different credit: pass credit=")
    return first

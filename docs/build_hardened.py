"""Write the tables of docs/hardened.md from the definitions of the recipes."""

from __future__ import annotations

from pathlib import Path

import msgspec
from inserts import filled_by_name, table

from rag_rewards.audit import ATTACKS
from rag_rewards.audit.cases import CASES
from rag_rewards.definition import RecipeDefinition
from rag_rewards.matching.decide import decide
from rag_rewards.recipes import RECIPES
from rag_rewards.rows.decisions import NOTHING

PAGE = Path(__file__).with_name("hardened.md")
EXAMPLES = (
    ("Which city is the capital?", "Paris", "Paris"),
    ("Which city is the capital?", "Paris", "The capital is Paris."),
    ("When did they land?", "July 20, 1969", "20 July 1969"),
    ("How many are there?", "150", "one hundred and fifty"),
    ("Which country is it?", "Myanmar | Burma", "Myanmar or Burma"),
    ("When did they land?", "1969", "1970"),
    ("How far is it?", "5 miles", "5 km"),
    ("Is it Paris or Rome?", "Paris", "Rome"),
    ("Which city is the capital?", "Paris", "I don't know."),
    ("Which city is the capital?", "Paris", ""),
    ("Which city is the capital?", "Paris", "Paris or Rome"),
    ("Which city is the capital?", "Paris", "not Paris"),
    ("Which state is it?", "Kansas", "Kansas City"),
    ("When did they land?", "1969", "before 1969"),
    ("Which country is it?", "United States", "USA"),
    ("Which city is the capital?", "Paris", "Paris, which lies on the Seine"),
)
"""Question, gold answers (separated by |) and answer of the table of examples."""


def page() -> str:
    """Return the page."""
    return filled_by_name(
        PAGE,
        {
            "examples": _examples(),
            "keys": _keys_for_judge(),
            "rejected": _rejected(),
            "cases": f"{len(CASES):,}",
            "attacks": str(len(ATTACKS)),
            "numbers": table(("number", "attack"), ATTACKS.items()),
            "recipes": "\n".join(map(_recipe, RECIPES.values())),
        },
    )


def _examples() -> str:
    """Return the table of examples, sorted by their decision."""
    rows = []
    for question, gold, answer in EXAMPLES:
        value, reason = decide(answer, gold.split(" | "), question)
        if value == "undecided" and reason != NOTHING:
            reason = f"nothing explains “{reason}”"
        rows.append((question, gold.replace(" | ", " or "), answer, value, reason))
    rows.sort(key=lambda row: ("right", "wrong", "undecided").index(row[3]))
    return table(("question", "gold answer", "answer", "decision", "reason"), rows)


def _rejected() -> str:
    """Return a list of the values that the profile rejects, with their recipes and reasons."""
    recipes: dict[str, list[str]] = {}
    for name, definition in RECIPES.items():
        for key, values in definition.rejected.items():
            for value, reason in values.items():
                line = f"- `{key}={value}` {{}} {reason}."
                recipes.setdefault(line, []).append(f"`{name}`")
    return "\n".join(line.format(f"({', '.join(names)})") for line, names in recipes.items())


def _keys_for_judge() -> str:
    """Return the settings that let a judge decide on undecided answers, with their recipes."""
    names: dict[str, list[str]] = {}
    for name, definition in RECIPES.items():
        for key in definition.hardened:
            if key.rpartition(".")[2] == "undecided" and "judge" in _choices(definition, key):
                names.setdefault(key, []).append(f"`{name}`")
    return " and ".join(f"`{key}` ({', '.join(recipes)})" for key, recipes in names.items())


def _choices(definition: RecipeDefinition, key: str) -> str:
    return next(setting.type for setting in definition.settings.descriptions if setting.key == key)


def _recipe(definition: RecipeDefinition) -> str:
    defaults = definition.settings.defaults
    rows = [
        (
            f"`{key}`",
            f"`{_value(defaults[key])}`",
            f"`{_value(change.value)}`",
            ", ".join(map(str, change.closes)) or "–",
            change.why,
        )
        for key, change in definition.hardened.items()
    ]
    settings = table(("setting", "default", "hardened", "attacks", "prevents"), rows)
    loopholes = "\n".join(f"- {line}" for line in definition.loopholes)
    return (
        f"## {definition.name}\n\n{settings}\n"
        f"These attacks increase the reward under the default profile:\n\n{loopholes}\n"
    )


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

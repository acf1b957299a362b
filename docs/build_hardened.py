"""Writes docs/hardened.md from the recipes, so that the page cannot differ from the code."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rag_rewards.audit import ATTACKS
from rag_rewards.definition import RecipeDefinition
from rag_rewards.recipes import RECIPES
from rag_rewards.settings import flatten

PAGE = Path(__file__).with_name("hardened.md")
INTRO = """# The hardened profile

`--hardened` (in Python `rr.recipe(name, hardened=True)`) changes the settings below and nothing
else; any of them can be set back with `--set`. An attack pays when a response earns more than the
same response without it, at equal correctness. `rag-rewards audit` ([look.md](look.md)) tries some
nine hundred of them.

Strict matching reads what a sentence asserts, by rules and not by understanding. It errs towards
not paying: a right answer that stands in a list of three places ("Paris, Île-de-France, France"),
before a list that a semicolon sets off, or in an answer section of more than 60 words is missed;
names side by side without any mark ("Paris Rome Berlin") can pass for one name.
"""


def page() -> str:
    """The whole page."""
    attacks = "\n".join(f"| {number} | {name} |" for number, name in ATTACKS.items())
    parts = [INTRO, f"## The attacks\n\n| | attack |\n| --- | --- |\n{attacks}\n"]
    parts += [_recipe(definition) for definition in RECIPES.values()]
    return "\n".join(parts)


def _recipe(definition: RecipeDefinition) -> str:
    defaults = flatten(definition.settings())
    rows = [
        f"| `{key}` | `{_value(defaults[key])}` | `{_value(change.value)}` "
        f"| {', '.join(map(str, change.closes)) or '–'} | {change.why} |"
        for key, change in definition.hardened.items()
    ]
    table = "\n".join(
        ["| setting | default | hardened | closes | against |", "| --- " * 5 + "|", *rows]
    )
    holes = "\n".join(f"- {line}" for line in definition.loopholes)
    return f"## {definition.name}\n\n{table}\n\nWhat pays under the default profile:\n\n{holes}\n"


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

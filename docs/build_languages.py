"""Write the tables of docs/languages.md: words that the rules about answers read."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from inserts import filled_by_name, table

from rag_rewards.text.absence import english, foreign

PAGE = Path(__file__).with_name("languages.md")
NAMES = {"en": "English", "nl": "Dutch", "pl": "Polish", "tr": "Turkish"}
"""Languages that have no phrases of refusals, or whose phrases are in another table."""
ANSWERS = ("code", "language", "words that turn a meaning", "alternatives")
REFUSALS = ("code", "language", "phrases of refusals", "number")


def page() -> str:
    """Return the page."""
    words = files("rag_rewards.matching").joinpath("languages.json").read_text("utf-8")
    names = NAMES | {code: each.name for code, each in foreign().items()}
    answers = [_answers(code, names[code], roles) for code, roles in json.loads(words).items()]
    phrases = {"en": sorted(english().phrases)}
    phrases |= {code: list(each.phrases) for code, each in foreign().items()}
    refusals = [
        (code if len(code) == 2 else "–", names[code], _few(entries), len(entries))
        for code, entries in phrases.items()
    ]
    texts = {
        "answers": table((*ANSWERS, "function words and particles"), answers),
        "refusals": table(REFUSALS, refusals),
    }
    return filled_by_name(PAGE, texts)


def _answers(code: str, name: str, roles: dict[str, str]) -> tuple[object, ...]:
    turning, alternatives = roles["turning"].split(), roles.get("alternatives", "").split()
    explained = [roles.get(role, "").split() for role in ("function", "strings", "endings")]
    number = len(set().union(*explained))
    return code, name, _few(turning), _few(alternatives) or "–", number


def _few(words: list[str], number: int = 5) -> str:
    return ", ".join(words[:number])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

"""The form of the documents in a prompt that a recipe of this package rendered."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from rag_rewards.prompts import Prompt
from rag_rewards.recipes import RECIPES
from rag_rewards.rollout import Rollout


def recognized(prompt: Prompt, rollout: Rollout, text: str) -> Prompt:
    """Return the prompt whose form the documents of a rollout have in a text.

    The candidates are `prompt` and the prompts of all recipes. In the result, each document occurs
    once in the text. If several forms are possible, the longest one is returned, since a form can
    be a part of a longer one. If none is possible, the result is `prompt`.

    >>> from rag_rewards.documents import Document
    >>> row = Rollout(response="", documents=(Document(title="Paris", text="A city."),))
    >>> recognized(Prompt(""), row, "[1] A city.\\n\\nWhich city?").document
    '[{label}] {text}'
    """
    best, most = prompt, (0, 0)
    for candidate in (prompt, *_known()):
        blocks = blocks_of(candidate, rollout)
        if not blocks or any(text.count(block) != 1 for block in blocks.values()):
            continue
        texts = list(blocks.values())
        length = sum(map(len, texts))
        joined = sum(
            f"{first}{candidate.separator}{second}" in text for first, second in pairwise(texts)
        )
        if (length, joined) > most:
            best, most = candidate, (length, joined)
    return best


def blocks_of(prompt: Prompt, rollout: Rollout) -> dict[str, str]:
    """Return the documents of a rollout by label, in the form of a prompt."""
    pairs = zip(rollout.labels, rollout.documents or (), strict=True)
    return {label: prompt.block(label, document) for label, document in pairs}


@lru_cache(maxsize=1)
def _known() -> tuple[Prompt, ...]:
    """The prompts of the recipes, one for each form of documents."""
    forms: dict[tuple[str, str, str], Prompt] = {}
    for definition in RECIPES.values():
        for prompt in definition.prompts.values():
            forms.setdefault((prompt.document, prompt.untitled, prompt.separator), prompt)
    return tuple(forms.values())

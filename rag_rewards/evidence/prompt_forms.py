"""The form of the documents in a prompt that a recipe of this package rendered."""

from __future__ import annotations

from functools import lru_cache

from rag_rewards.prompts import Prompt
from rag_rewards.recipes import RECIPES
from rag_rewards.rollout import Rollout


def recognized(prompt: Prompt, rollout: Rollout, text: str) -> Prompt:
    """Return the prompt whose form the documents of a rollout have in a text.

    The candidates are `prompt` and the prompts of all recipes. The documents of another recipe must
    occur as this recipe renders them: all together, with its separator, and nothing around them. If
    several forms are possible, the longest one is returned, since a form can be a part of a longer
    one. If none is possible, the result is `prompt`.

    >>> from rag_rewards.documents import Document
    >>> row = Rollout(response="", documents=(Document(title="Paris", text="A city."),))
    >>> recognized(Prompt(""), row, "[1] A city.\\n\\nWhich city?").document
    '[{label}] {text}'
    >>> recognized(Prompt(""), row, "Source 1: A city.\\n\\nWhich city?") == Prompt("")
    True
    """
    best, most = prompt, 0
    for candidate in (prompt, *_known()):
        blocks = list(blocks_of(candidate, rollout).values())
        joined = candidate.separator.join(blocks)
        if len(joined) <= most or any(text.count(block) != 1 for block in blocks):
            continue
        if candidate is prompt or _is_rendered(joined, text, several=len(blocks) > 1):
            best, most = candidate, len(joined)
    return best


def _is_rendered(joined: str, text: str, *, several: bool) -> bool:
    """Return whether documents are in a text with nothing of another form around them.

    A prompt can contain the label of the first of several documents in the middle of a line.
    """
    start = text.find(joined)
    if start < 0:
        return False
    before, after = text[:start][-1:], text[start + len(joined) :][:1]
    in_a_line = several and joined.startswith("[") and before == " "
    return (before in _ENDS or in_a_line) and after in _ENDS and (several or joined[0] == "[")


_ENDS = ("", "\n", "\0")
"""What can be before and after documents: nothing, or the end of a line or of a message."""


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

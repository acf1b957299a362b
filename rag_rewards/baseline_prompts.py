"""Prompts that every recipe has besides its own: a direct answer, and an answer without documents.

`default` is the prompt of the recipe. `direct` requests the answer alone (ARENA, "direct RAG" and
SFT-direct). `closed-book` requests it without documents (ARENA, "direct"; TruthRL, Table 9; LEAR,
Table 8; Acc(Q) of CTRL-RAG). A recipe replaces these two and adds others in its `baselines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rag_rewards.errors import OptionError
from rag_rewards.output_form import OutputForm
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, LAYOUT, Prompt, fill
from rag_rewards.settings import did_you_mean

DEFAULT, DIRECT, CLOSED_BOOK = "default", "direct", "closed-book"

_DIRECT = (
    "Answer the question from the documents below. Reply with {shape} and nothing else: the answer "
    "is a word or a short phrase, unexplained."
)
_CLOSED_BOOK = (
    "Answer the question from what you know. Reply with {shape} and nothing else: the answer is a "
    "word or a short phrase, unexplained. If the question asks for several answers, separate them "
    "by commas."
)


def prompts_of(
    prompt: Prompt, form: OutputForm, baselines: Mapping[str, Prompt]
) -> dict[str, Prompt]:
    """Return all prompts of a recipe by name, from its own prompt, its form and its baselines."""
    shape = form.write_answer("…")
    direct = replace(prompt, message=LAYOUT, system="", instruction=fill(_DIRECT, shape=shape))
    closed_book = Prompt(CLOSED_BOOK_LAYOUT, instruction=fill(_CLOSED_BOOK, shape=shape))
    return {DEFAULT: prompt, DIRECT: direct, CLOSED_BOOK: closed_book, **baselines}


def prompt_named(name: str, prompts: Mapping[str, Prompt], recipe: str) -> Prompt:
    """Return a prompt of a recipe by name. Raises OptionError for an unknown name."""
    if name not in prompts:
        raise OptionError(
            "{prompt}: {recipe} has no prompt {name!r}{hint}",
            recipe=recipe,
            name=name,
            hint=did_you_mean(name, prompts),
        )
    return prompts[name]

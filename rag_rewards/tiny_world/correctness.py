"""Decide whether a response answers its question correctly, independently of any reward."""

from __future__ import annotations

import re

from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.formats import ABSTENTION, TAGS
from rag_rewards.tiny_world.world import FLOWERS, WorldQuestion

_ABSTENTIONS = (ABSTENTION, REFUSAL)
_MARKUP = re.compile("(" + "|".join(map(re.escape, (*TAGS, "\\boxed{", "}"))) + ")")
_ANSWER_STARTS = ("<answer>", "\\boxed{")
_ANSWER_ENDS = ("</answer>", "}")


def is_correct(question: WorldQuestion, response: str) -> bool:
    """Return whether the answer of a response is the truth and nothing else.

    An answerable question requires its flower, no other flower and no abstention. An unanswerable
    question requires an abstention and no flower.

    >>> question = WorldQuestion((("Ada", "rose"), ("Ben", "lily")), "Ada", "rose")
    >>> is_correct(question, "rose [2]"), is_correct(question, "rose [1] lily [2]")
    (True, False)
    >>> is_correct(question, ABSTENTION)
    False
    """
    answer = answer_text(response)
    flowers = {word for word in answer.split() if word in FLOWERS}
    abstains = any(text in answer for text in _ABSTENTIONS)
    if question.answerable:
        return flowers == {question.answer} and not abstains
    return abstains and not flowers


def answer_text(response: str) -> str:
    """Return the response without its other sections, even if some of their tags are missing.

    >>> answer_text("<think> Ada rose [1] </think> <answer> rose </answer>").split()
    ['rose']
    >>> answer_text("Ada lily [2] </think> rose [1]").split()
    ['rose', '[1]']
    """
    pieces = _MARKUP.split(response)
    tags = ["", *pieces[1::2], ""]
    return " ".join(
        text
        for text, before, after in zip(pieces[::2], tags, tags[1:], strict=False)
        if not _in_other_section(before, after)
    )


def _in_other_section(before: str, after: str) -> bool:
    """Return whether text between these two tags belongs to a section other than the answer."""
    if before in _ANSWER_STARTS or after in _ANSWER_ENDS:
        return False
    is_opening_tag = before.startswith("<") and not before.startswith("</")
    return is_opening_tag or after.startswith("</")

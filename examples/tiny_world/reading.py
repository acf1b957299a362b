"""Responses of the tiny world, read as a person would: is it right, and what does it look like?

Neither knows a reward or a recipe: what they say of a response holds whatever it earned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_rewards.text.refusal import REFUSAL
from tiny_world.formats import ABSTENTION, TAGS
from tiny_world.world import FLOWERS, PEOPLE, Question

_ABSTAINING = (ABSTENTION, REFUSAL)
_MARKS = re.compile("(" + "|".join(map(re.escape, (*TAGS, "\\boxed{", "}"))) + ")")
_ANSWER = ("<answer>", "</answer>", "\\boxed{", "}")
_WORD = re.compile("|".join(map(re.escape, _ABSTAINING)) + r"|\S+")
_LONGEST_UNIT = 6
"""Words of a repetition."""
_NAMES = {
    **dict.fromkeys(PEOPLE, "NAME"),
    **dict.fromkeys(FLOWERS, "FLOWER"),
    REFUSAL: "REFUSAL",
    ABSTENTION: "ABSTENTION",
}


def right(asked: Question, response: str) -> bool:
    """Whether the response says exactly what is true, and nothing else, as its answer.

    An answerable question: its flower and no other, without abstaining. Any other question:
    an abstention and no flower.

    >>> asked = Question((("Ada", "rose"), ("Ben", "lily")), "Ada", "rose")
    >>> right(asked, "rose [2]"), right(asked, "rose [1] lily [2]"), right(asked, ABSTENTION)
    (True, False, False)
    """
    answer = answer_of(response)
    said = {word for word in answer.split() if word in FLOWERS}
    abstains = any(text in answer for text in _ABSTAINING)
    if asked.answerable:
        return said == {asked.answer} and not abstains
    return abstains and not said


def answer_of(response: str) -> str:
    """What stands as the answer: all that is not the thinking before it, tags lost or not.

    >>> answer_of("<think> Ada rose [1] </think> <answer> rose </answer>").split()
    ['rose']
    >>> answer_of("Ada lily [2] </think> rose [1]").split()
    ['rose', '[1]']
    """
    pieces = _MARKS.split(response)
    marks = ["", *pieces[1::2], ""]
    return " ".join(
        text
        for text, before, after in zip(pieces[::2], marks, marks[1:], strict=False)
        if not _thought(before, after)
    )


def _thought(before: str, after: str) -> bool:
    """Whether text between these two marks is in a section that is not the answer's."""
    if before in _ANSWER[::2] or after in _ANSWER[1::2]:
        return False
    opened = before.startswith("<") and not before.startswith("</")
    return opened or after.startswith("</")


def shape(response: str) -> str:
    """The response without its names, flowers and numbers; repetitions in brackets.

    >>> shape("<answer> rose [2] lily [1] </answer>")
    '<answer> (FLOWER [n])+ </answer>'
    >>> shape("")
    '(nothing)'
    """
    words = [
        _NAMES.get(word) or re.sub(r"\[\d+\]", "[n]", word) for word in _WORD.findall(response)
    ]
    return " ".join(_folded(words)) or "(nothing)"


def _folded(words: list[str]) -> list[str]:
    """Words, with what repeats at once said once: single words first, then longer units.

    A repetition that the end of the response cuts off is still one.
    """
    for sizes in (range(1, 2), range(2, _LONGEST_UNIT + 1)):
        words = list(_fold(words, sizes))
    return words


def _fold(words: list[str], sizes: range) -> Iterator[str]:
    at = 0
    while at < len(words):
        covers = {size: size * _times(words, at, size) for size in sizes}
        repeated = [size for size, cover in covers.items() if cover > size]
        if not repeated:
            yield words[at]
            at += 1
            continue
        size = max(repeated, key=lambda each: (covers[each], -each))
        unit = words[at : at + size]
        yield f"({' '.join(unit)})+" if size > 1 else f"{unit[0]}+"
        at += covers[size]
        rest = words[at : at + size]
        if len(rest) < size and rest == unit[: len(rest)]:
            return


def _times(words: list[str], at: int, size: int) -> int:
    """How often the unit of this size at this place stands there, one after the other."""
    unit, times = words[at : at + size], 1
    while words[at + times * size : at + (times + 1) * size] == unit:
        times += 1
    return times

"""Reduce a response of the tiny world to its shape, so that similar responses can be counted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.formats import ABSTENTION
from rag_rewards.tiny_world.world import FLOWERS, PEOPLE

_WORD = re.compile("|".join(map(re.escape, (ABSTENTION, REFUSAL))) + r"|\S+")
_MAX_UNIT = 6
"""Words of the longest repeated unit that is recognized."""
_CLASSES = {
    **dict.fromkeys(PEOPLE, "NAME"),
    **dict.fromkeys(FLOWERS, "FLOWER"),
    REFUSAL: "REFUSAL",
    ABSTENTION: "ABSTENTION",
}


def shape(response: str) -> str:
    """Return the response with its names, flowers and numbers replaced by their classes.

    A unit that repeats appears once, with a plus sign.

    >>> shape("<answer> rose [2] lily [1] </answer>")
    '<answer> (FLOWER [n])+ </answer>'
    >>> shape("")
    '(nothing)'
    """
    words = [
        _CLASSES.get(word) or re.sub(r"\[\d+\]", "[n]", word) for word in _WORD.findall(response)
    ]
    return " ".join(_fold_all(words)) or "(nothing)"


def _fold_all(words: list[str]) -> list[str]:
    """Fold repetitions of single words first, then those of longer units."""
    for sizes in (range(1, 2), range(2, _MAX_UNIT + 1)):
        words = list(_fold(words, sizes))
    return words


def _fold(words: list[str], sizes: range) -> Iterator[str]:
    """Yield the words with each repeated unit once.

    A repetition that the end of the response cuts off still counts as a repetition.
    """
    position = 0
    while position < len(words):
        covered = {size: size * _repetitions(words, position, size) for size in sizes}
        repeated = [size for size, count in covered.items() if count > size]
        if not repeated:
            yield words[position]
            position += 1
            continue
        size = max(repeated, key=lambda each: (covered[each], -each))
        unit = words[position : position + size]
        yield f"({' '.join(unit)})+" if size > 1 else f"{unit[0]}+"
        position += covered[size]
        rest = words[position : position + size]
        if len(rest) < size and rest == unit[: len(rest)]:
            return


def _repetitions(words: list[str], position: int, size: int) -> int:
    """Return how many times the unit of this size at this position occurs in a row."""
    unit, count = words[position : position + size], 1
    while words[position + count * size : position + (count + 1) * size] == unit:
        count += 1
    return count

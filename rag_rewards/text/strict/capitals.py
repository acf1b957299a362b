"""Which words of a text have a capital."""

from __future__ import annotations

import re

from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import fold
from rag_rewards.text.words import EDGES

_EDGES = EDGES + "-"
_CAPITAL = re.compile(r"[^\W\d_a-z](?<![\w'’.-].)[\w'’.-]{0,40}")


class Capitals:
    """The folded words that have a capital somewhere in a text. They are read on first use.

    >>> capitals = Capitals("The city of Rome")
    >>> "rome" in capitals, "city" in capitals
    (True, False)
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __contains__(self, word: str) -> bool:
        return word in self._words

    @lazy
    def _words(self) -> frozenset[str]:
        matches = set(_CAPITAL.findall(self._text))
        # Folding an ASCII text changes each character by itself, so that one call is enough.
        simple = [match for match in matches if match.isascii()]
        folded = fold("\n".join(simple)).split("\n") if simple else []
        if len(simple) < len(matches):
            folded += [fold(match) for match in matches if not match.isascii()]
        return frozenset([word.strip(_EDGES) for word in folded])

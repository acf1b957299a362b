"""Normalized gold answers, and whether a text contains one as whole words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text.normalize import Normalizer, squad, tokens


class GoldTokens(NamedTuple):
    """The tokens of each alias, and the set of all tokens."""

    aliases: tuple[list[str], ...]
    vocabulary: frozenset[str]


Required = tuple[tuple[str, ...], ...]
Compare = Callable[[Required, str, str], float]
"""(required answers, text, normalized text) → 0 to 1."""
_MOST = 1 << 20
"""Characters of gold answers and texts whose forms are in memory."""


class GoldForms:
    """Normalized gold answers. The rollouts of a prompt share them, so the last ones stay."""

    def __init__(self, normalize: Normalizer) -> None:
        self.normalize = normalize
        self._forms: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._tokens: dict[tuple[str, ...], GoldTokens] = {}
        self._values: dict[tuple[str, Required], float] = {}
        self._room = _MOST

    def _use(self, characters: int) -> None:
        """Forget all forms if there is no room for those of a text."""
        self._room -= characters + 1
        if self._room < 0:
            self._room = _MOST
            for memory in (self._forms, self._tokens, self._values):
                memory.clear()

    def of(self, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """Return the normalized aliases."""
        forms = self._forms.get(aliases)
        if forms is None:
            self._use(sum(map(len, aliases)))
            forms = self._forms[aliases] = tuple(map(self.normalize, aliases))
        return forms

    def once(self, required: Required, text: str, normal: str, compare: Compare) -> float:
        """Return the value of a text for required answers, which is computed once."""
        key = text, required
        value = self._values.get(key)
        if value is None:
            self._use(len(text))
            value = self._values[key] = compare(required, text, normal)
        return value

    def tokens_of(self, aliases: tuple[str, ...]) -> GoldTokens:
        """Return the tokens of the aliases."""
        gold = self._tokens.get(aliases)
        if gold is None:
            forms = zip(self.of(aliases), aliases, strict=True)
            lists = tuple([tokens(form or alias.casefold()) for form, alias in forms])
            gold = self._tokens[aliases] = GoldTokens(lists, frozenset().union(*lists))
        return gold


gold_forms = lru_cache(maxsize=16)(GoldForms)
"""Return the forms of a normalizer."""
_TOO_SHORT = frozenset(("", "yes", "no", "noanswer"))
"""Normalized answers that occur in texts without answering anything."""


def normal_forms(aliases: Iterable[str]) -> list[str]:
    """Return the normalized forms of aliases that answer something where a text contains them.

    >>> normal_forms(["The Seine!", "yes"])
    ['seine']
    """
    return [form for form in map(squad, aliases) if form not in _TOO_SHORT]


def contains_answer(normal_text: str, forms: Iterable[str]) -> bool:
    """Return whether a normalized text contains one of the normalized answers as whole words.

    >>> contains_answer("paris lies on seine", ["on seine"]), contains_answer("parisian", ["paris"])
    (True, False)
    """
    padded = f" {normal_text} "
    return any(f" {form} " in padded for form in forms)

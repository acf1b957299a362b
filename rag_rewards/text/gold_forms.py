"""Normalized gold answers, and whether a text contains one as whole words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from rag_rewards.text.normalize import Normalizer, squad, tokens


class GoldTokens(NamedTuple):
    """The tokens of each alias, and the set of all tokens."""

    aliases: tuple[list[str], ...]
    vocabulary: frozenset[str]


_MOST = 1 << 22
"""Bytes of the forms that stay in memory, as estimated by `_stay`."""


class GoldForms:
    """Normalized gold answers. The rollouts of a prompt share them, so the last ones stay."""

    def __init__(self, normalize: Normalizer) -> None:
        self.normalize = normalize
        self._forms: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._tokens: dict[tuple[str, ...], GoldTokens] = {}
        self._room = _MOST

    def __reduce__(self) -> tuple[Any, ...]:
        return GoldForms, (self.normalize,)  # a copy in another process begins without forms

    def of(self, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """Return the normalized aliases."""
        forms = self._forms.get(aliases)
        if forms is None:
            forms = tuple(map(self.normalize, aliases))
            if self._stay(aliases + forms):
                self._forms[aliases] = forms
        return forms

    def tokens_of(self, aliases: tuple[str, ...]) -> GoldTokens:
        """Return the tokens of the aliases."""
        gold = self._tokens.get(aliases)
        if gold is None:
            forms = zip(self.of(aliases), aliases, strict=True)
            lists = tuple([tokens(form or alias.casefold()) for form, alias in forms])
            gold = GoldTokens(lists, frozenset().union(*lists))
            if self._stay([*aliases, *chain.from_iterable(lists)]):
                self._tokens[aliases] = gold
        return gold

    def _stay(self, texts: Sequence[str]) -> bool:
        """Return whether an entry of these texts stays. Without room, all others are forgotten."""
        # A character has up to 4 bytes, a text about 100, with its places in lists and sets.
        size = 500 + 100 * len(texts) + 4 * sum(map(len, texts))
        if size > _MOST:
            return False
        if size > self._room:
            self._forms.clear()
            self._tokens.clear()
            self._room = _MOST
        self._room -= size
        return True


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

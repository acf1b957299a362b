"""Normalized gold answers, each computed once for all rollouts of a batch."""

from __future__ import annotations

from typing import NamedTuple

from rag_rewards.text.normalize import Normalizer, tokens


class GoldTokens(NamedTuple):
    """The tokens of each alias, and the set of all tokens."""

    aliases: tuple[list[str], ...]
    vocabulary: frozenset[str]


class GoldForms:
    """Normalized gold answers, each computed once for all rollouts of a batch."""

    def __init__(self, normalize: Normalizer) -> None:
        self.normalize = normalize
        self._forms: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._tokens: dict[tuple[str, ...], GoldTokens] = {}

    def of(self, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """Return the normalized aliases."""
        forms = self._forms.get(aliases)
        if forms is None:
            forms = self._forms[aliases] = tuple(map(self.normalize, aliases))
        return forms

    def tokens_of(self, aliases: tuple[str, ...]) -> GoldTokens:
        """Return the tokens of the aliases."""
        gold = self._tokens.get(aliases)
        if gold is None:
            forms = zip(self.of(aliases), aliases, strict=True)
            lists = tuple([tokens(form or alias.casefold()) for form, alias in forms])
            gold = self._tokens[aliases] = GoldTokens(lists, frozenset().union(*lists))
        return gold

"""The pieces of gold answers, which are searched in the pieces of a text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text.normalize import Normalizer, fold
from rag_rewards.text.strict.gold_words import head_of
from rag_rewards.text.words import joined, read_words

_SHORT = 200  # characters; the rollouts of a group read the same short gold answers
_SHORT_TOGETHER = 2000  # characters of all aliases


class GoldPieces(NamedTuple):
    """The words of an alias.

    alias     the alias as it is written
    words     the texts of its words
    pieces    its pieces in the form of `words.joined`; empty if there are none
    width     number of pieces
    is_plain  whether its last word has pieces; that of "Vitamin A" looks like an article
    """

    alias: str
    words: tuple[str, ...]
    pieces: str
    width: int
    is_plain: bool


def gold_pieces(aliases: Sequence[str], normalize: Normalizer) -> Sequence[GoldPieces]:
    """Return the pieces of aliases, and of the heads of those that end with a remark."""
    if len("".join(aliases)) <= _SHORT_TOGETHER:
        return _read_aliases(tuple(aliases), normalize)
    return _read_aliases.__wrapped__(tuple(aliases), normalize)


@lru_cache(maxsize=4096)
def _read_aliases(aliases: tuple[str, ...], normalize: Normalizer) -> tuple[GoldPieces, ...]:
    return tuple(
        _read(alias, normalize) if len(alias) <= _SHORT else _read.__wrapped__(alias, normalize)
        for alias in _with_heads(aliases)
    )


def _with_heads(aliases: Sequence[str]) -> Sequence[str]:
    """Return the aliases, and the heads of those that end with a remark: "Oasis (band)"."""
    if not any(alias.endswith(")") or ", w" in alias for alias in aliases):
        return aliases
    heads = [head_of(alias) for alias in aliases]
    return list(dict.fromkeys([*aliases, *(head for head in heads if len(head) > 2)]))


@lru_cache(maxsize=16384)
def _read(alias: str, normalize: Normalizer) -> GoldPieces:
    words = read_words(fold(alias), normalize)
    pieces = [piece for word in words for piece in word.pieces]
    texts = tuple(word.text for word in words)
    is_plain = bool(words and words[-1].pieces)
    return GoldPieces(alias, texts, joined(pieces) if pieces else "", len(pieces), is_plain)

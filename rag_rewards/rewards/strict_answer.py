"""Strict comparison: a response must assert the gold answer in text that a reader sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rag_rewards.rewards.answer_list import list_match
from rag_rewards.rollout import Rollout
from rag_rewards.text.absence import declines_in_other_language
from rag_rewards.text.copies import copies_document
from rag_rewards.text.hidden import is_unreadable, shown
from rag_rewards.text.lengths import is_passage
from rag_rewards.text.normalize import Normalizer, Unicode, fold
from rag_rewards.text.strict import Kind, StrictText

_NEGATIONS = ("!", "¬", "≠", "~")


class StrictMatch(NamedTuple):
    """The mentions by which a text asserts the required answers of a rollout.

    mentions  for each required answer the kind of the mention, see `text.strict.mentions`, or None
              if the text does not assert the answer
    """

    mentions: tuple[Kind | None, ...]

    @property
    def verdict(self) -> bool:
        """Whether the text asserts all required answers."""
        return None not in self.mentions

    def confirmed(self, rollout: Rollout, normalize: Normalizer) -> StrictMatch:
        """Return the match of a part of a response without what the whole does not assert."""
        text, required = rollout.parsed.visible, rollout.gold
        whole = StrictText(text, precise(normalize), required, question=rollout.question or "")
        pairs = zip(self.mentions, required, strict=True)
        return StrictMatch(
            tuple(kind if kind and whole.contains(aliases) else None for kind, aliases in pairs)
        )

    @property
    def details(self) -> dict[str, Any]:
        """The kinds of the mentions, as details of a score."""
        return {"mentions": list(self.mentions)}


def asserted_answers(
    rollout: Rollout, text: str, normalize: Normalizer, *, passages: bool = False
) -> list[bool]:
    """Return for each required answer of a rollout whether a text asserts it.

    >>> row = Rollout(response="", answers=[["Paris"], ["Rome"]])
    >>> asserted_answers(row, "It is Paris, and not Rome.", Unicode())
    [True, False]
    """
    match = strict_match(rollout, text, normalize, passages=passages)
    return [kind is not None for kind in match.mentions]


def strict_match(
    rollout: Rollout, text: str, normalize: Normalizer, *, passages: bool = False
) -> StrictMatch:
    """Return the mentions by which a text asserts the required answers of a rollout.

    A copy of a document, a text that declines to answer and one with unreadable characters assert
    nothing, and neither does a passage unless `passages` is true.
    Numbers and names are compared with the normalizer `unicode`, because others ignore punctuation
    that changes the meaning.

    >>> row = Rollout(response="", answers=[["2"], ["Rome"]])
    >>> strict_match(row, "It is two, and not Rome.", Unicode())
    StrictMatch(mentions=('other form', None))
    """
    required = rollout.gold
    documents = (document.text for document in rollout.documents or ())
    is_long = not passages and is_passage(text)
    if (
        is_long
        or has_unreadable(rollout, text)
        or _declines(text, required)
        or copies_document(text, documents)
    ):
        return StrictMatch((None,) * len(required))
    strict = StrictText(text, precise(normalize), required, question=rollout.question or "")
    return StrictMatch(tuple(strict.find(aliases) for aliases in required))


def has_unreadable(rollout: Rollout, text: str) -> bool:
    """Return whether a text has unreadable characters that no gold answer of its rollout has."""
    return is_unreadable(text) and not any(
        is_unreadable(alias) for aliases in rollout.gold for alias in aliases
    )


def _declines(text: str, required: Sequence[Sequence[str]]) -> bool:
    """Return whether a text states that the model does not know or give the answer."""
    if (match := _DECLINES.search(fold(text))) is None:
        return False
    return not any(match[0] in fold(alias) for aliases in required for alias in aliases)


def without_refusals(rollout: Rollout, sentences: Sequence[str]) -> list[str]:
    """Return the sentences that do not decline to answer in a language other than English.

    `text.strict` reads English ones. A sentence declines also if it names a gold answer, unless a
    gold answer has such words itself.

    >>> row = Rollout(response="", answers=["Paris"])
    >>> without_refusals(row, ["Je ne sais pas si c'est Paris.", "It is Paris."])
    ['It is Paris.']
    """
    if not declines_in_other_language("\n".join(sentences)) or any(
        declines_in_other_language(alias) for aliases in rollout.gold for alias in aliases
    ):
        return list(sentences)
    refusals = {each: declines_in_other_language(each) for each in dict.fromkeys(sentences)}
    return [sentence for sentence in sentences if not refusals[sentence]]


def is_exact_assertion(rollout: Rollout, text: str, normalize: Normalizer) -> bool:
    """Return whether a text that equals the gold answers under a normalizer also asserts them."""
    required = rollout.gold
    if has_unreadable(rollout, text):
        return False
    if text.lstrip().startswith(_NEGATIONS) and not any(
        alias.lstrip().startswith(_NEGATIONS) for aliases in required for alias in aliases
    ):
        return False
    exact = precise(normalize)
    if (visible := shown(text)) != text and exact(visible) != exact(text):
        return False
    if exact is normalize:
        return True
    if len(required) > 1:
        is_equal = bool(list_match(text, required, exact))
    else:
        is_equal = exact(text) in map(exact, required[0])
    return is_equal or all(asserted_answers(rollout, text, exact))


def precise(normalize: Normalizer) -> Normalizer:
    """Return the normalizer, or `unicode` in place of one that ignores punctuation in words."""
    return normalize if isinstance(normalize, Unicode) else _UNICODE


def shown_answer(text: str | None) -> str | None:
    """Return the part of an answer that a reader sees."""
    return shown(text) if text else text


_UNICODE = Unicode()
_DECLINES = re.compile(
    r"\bi (?:really |just |honestly |simply )?(?:(?:do not|don't|dont) know\b"
    r"|(?:cannot|can't|could not|couldn't|am unable to|am not able to|refuse to|decline to|will not"
    r"|won't) (?:say|tell|answer|determine the answer|find (?:an|the|any) answer)\b)"
)

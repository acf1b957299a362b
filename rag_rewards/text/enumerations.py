"""Whether a mention is one of several answers: alternatives, pairs and lists."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.text.assertion_words import (
    ALTERNATIVES,
    BEFORE_PLACE,
    CLAUSE_ENDS,
    COORDINATORS,
    HEDGES,
    LIST_MARKS,
    MAX_ITEM_WORDS,
    NEGATIONS,
    NOT_AN_ITEM,
    OPENERS,
    PAIRING,
    SINGULAR_VERBS,
)
from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.words import Word


def is_enumerated(words: Sequence[Word], first: int, last: int, required: int) -> bool:
    """Return whether the mention is one of two alternatives, or an item of a longer list."""
    if required == 1 and _second_of_pair(words, first, last):
        return True
    enough = max(3, required + 1)
    left, alternative = _items(words, first, -1, enough)
    if alternative or 1 + left >= enough:
        return True
    right, alternative = _items(words, last, +1, enough)
    if not left and not alternative and _has_apposition(words, first, last):
        return False
    return alternative or 1 + left + right >= enough


def _second_of_pair(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the mention is the second of two answers to a question that asks for one.

    Only the first one counts, so that "Rome and Paris" is one answer. In "Rome is large and Paris
    is the capital", a clause begins with the mention.
    """
    at = first - 1
    while at > 0 and (words[at].text in ARTICLES or words[at].text in HEDGES):
        at -= 1
    if at < 1 or words[at].text not in PAIRING or words[at].after:
        return _second_of_two_names(words, first, last)
    following = words[last + 1].text if last + 1 < len(words) and not words[last].after else ""
    return following not in SINGULAR_VERBS


def _second_of_two_names(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the text consists of two names and a comma: "Rome, Paris"."""
    if not 1 <= first <= 3 or last + 1 < len(words) or words[0].text in OPENERS:
        return False
    if any(len(word.pieces) > 4 for word in words):
        return False  # a clause of a script without spaces is one word
    is_pair = words[first - 1].after.startswith((",", ";")) and not any(
        word.after for word in words[: first - 1]
    )
    return is_pair and not any(
        word.text in NOT_AN_ITEM or word.text in NEGATIONS for word in words[:first]
    )


def _has_apposition(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the words after a mention describe it, so that they name no other answer.

    Examples: "by Ann Reed, a writer and painter", "in Bonn, Rhineland, Germany".
    """
    if last + 1 >= len(words) or not words[last].after.startswith((",", " –")):
        return False
    following = words[last + 1].text
    return (
        following in ARTICLES
        or following[:1].isdigit()
        or (first > 0 and words[first - 1].text in BEFORE_PLACE)
    )


def _items(words: Sequence[Word], edge: int, step: int, enough: int) -> tuple[int, bool]:
    """Return the number of further items on one side of the mention, and whether "or" joins them.

    An item is a run of a few words between list marks or conjunctions. An apposition ("Paris, the
    capital, …") counts only if a conjunction shows that this is a list.
    """
    count, appositions, length = 0, 0, 0
    separated = joined = apposition = False
    at = edge
    while 0 <= at + step < len(words) and count < enough:
        here, there = (at, at + 1) if step > 0 else (at - 1, at)
        mark, ends = _between(words[here], words[there])
        if ends:
            break
        at += step
        word = words[at].text
        joins = word if word in COORDINATORS or word in ALTERNATIVES else ""
        if mark or joins:
            if mark in ALTERNATIVES or joins in ALTERNATIVES:
                return count, True
            if step < 0 and separated and length and words[at + 1].text in NOT_AN_ITEM:
                return count + (appositions if joined else 0), False
            count += separated and length > 0 and not apposition
            appositions += separated and length > 0 and apposition
            joined = joined or bool(joins) or mark in "/|\n"
            separated, length, apposition = True, 0, False
            if joins:
                continue
        elif not separated and word in HEDGES:
            continue
        elif not separated:
            break  # the mention is part of a longer phrase on this side
        if step > 0 and length == 0:
            if word in NOT_AN_ITEM:
                separated = False
                break
            apposition = word in ARTICLES
        length += 1
        if length > MAX_ITEM_WORDS:
            # The first item of a list contains the sentence before it ("The answer is Rome, …").
            separated = step < 0
            break
    if step < 0 and length and words[max(at, 0)].text in NOT_AN_ITEM:
        return count + (appositions if joined else 0), False
    count += separated and length > 0 and not apposition
    appositions += separated and length > 0 and apposition
    return count + (appositions if joined else 0), False


def _between(word: Word, following: Word) -> tuple[str, bool]:
    """Return the list mark between two words, and whether the marks there end a list."""
    written = word.after + following.before
    mark = next((char for char in written if char in LIST_MARKS), "")
    ends = not mark and not CLAUSE_ENDS.isdisjoint(written.replace("(", "").replace(")", ""))
    return mark, ends

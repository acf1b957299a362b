"""Strict substring matching: a gold answer that is asserted, not merely mentioned.

A mention counts when it stands at word boundaries, no negation comes before it in its clause,
and it is not an item of an enumeration of three or more or of an either-or. The text is read as
a stream of words with the punctuation and conjunctions between them; everything is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from rag_rewards.text.normalize import ARTICLES, Normalizer, fold, lower, tokens

_NEGATIONS = frozenset(
    "not no never neither nor none cannot without except excluding unlike hardly nobody "
    "nothing false incorrect wrong untrue isnt wasnt arent werent doesnt didnt dont wont cant "
    "couldnt isn't wasn't aren't weren't doesn't didn't don't won't can't couldn't wouldn't "
    "shouldn't hasn't haven't hadn't ain't 不 非 没有 不是 nicht kein keine non pas".split()
)
_TWO_WORD_NEGATIONS = frozenset({("rather", "than"), ("instead", "of"), ("far", "from")})
_CLAUSE_WORDS = frozenset(
    "but however although though whereas while because since so therefore thus hence yet it's "
    "rather instead".split()
)
# "not only Paris", "no doubt Paris".
_ASSERTING = frozenset(("only", "just", "doubt", "wonder"))
_COPULAS = frozenset(["is", "was", "are", "were", "be", "been", "being", "would"])
_DENIALS = frozenset(["wrong", "incorrect", "false", "untrue", "not", "never", "impossible"])
_JUDGED = frozenset(["answer", "correct", "right", "true", "one", "it", "case", "solution"])
_COORDINATORS = frozenset({"and", "or", "&", "plus", "und", "y", "et", "/", "|"})
_ALTERNATIVES = frozenset({"or", "/", "|", "vs", "versus"})
# What an item of a list does not begin with: "Paris, in 1900", "Paris, the capital", "…, who".
_NOT_AN_ITEM = frozenset(
    "in on at by of for from to with as which who whom whose where when that this these those "
    "is was are were has had have it he she they its his her their there since because during "
    "after before until while so then also not but according near under over being located".split()
)
_SPLIT = re.compile(r"[^\s/|]+|[/|]|\n")
# "1. Rome", "- Rome", "2) Rome": the number or bullet of an item is no word.
_NUMBERING = re.compile(r"(?:^|\n)[ \t]{0,8}(?:\d{1,3}[.)]|[-*•])[ \t]|(?<!\S)\d{1,2}\)[ \t]")
_CLAUSE_ENDS = frozenset(".;:!?—()[]。；：！？")
_LIST_MARKS = frozenset(",;/|\n，、；")
_MAX_ITEM_WORDS = 6
_MAX_MENTIONS = 64  # an answer that has asserted nothing by then asserts nothing


class _Word(msgspec.Struct, frozen=True, gc=False):
    """Normalised pieces of one written word, and the marks written directly after it."""

    text: str
    pieces: tuple[str, ...]
    before: str
    after: str


def _words(text: str, normalize: Normalizer) -> list[_Word]:
    """The stream of words. Articles vanish under the normalisers that drop them."""
    out: list[_Word] = []
    pending = ""
    for match in _SPLIT.finditer(_NUMBERING.sub("\n", fold(text))):
        token = match[0]
        if token in "/|\n":  # noqa: S105 (no password)
            if out:
                last = out[-1]
                out[-1] = _Word(last.text, last.pieces, last.before, last.after + token)
            continue
        if token.isascii() and token.isalnum():
            # One plain word: every normaliser leaves it as it is, or drops it as an article.
            dropped = token in ARTICLES and normalize is not lower
            out.append(_Word(token, () if dropped else (token,), pending, ""))
            pending = ""
            continue
        core = token.strip(".,;:!?()[]{}\"'*_`—。，、；：！？“”‘’«»")
        start = token.find(core) if core else len(token)
        before, after = token[:start], token[start + len(core) :]
        if not core:
            pending += token
            continue
        if normalize is not lower and core in ARTICLES:
            pieces: tuple[str, ...] = ()
        else:
            kept = core + after[:1] if after[:1] in "+#%" else core
            pieces = tuple(tokens(normalize(kept)))
        out.append(_Word(core, pieces, pending + before, after))
        pending = ""
    return out


def strict_contains(
    text: str, aliases: Sequence[str], normalize: Normalizer, *, required: int = 1
) -> bool:
    """Whether some alias is asserted somewhere in a text.

    `required` is the number of answers that the question asks for: an enumeration of that many
    is an answer, a longer one is guessing.

    >>> from rag_rewards.text.normalize import squad
    >>> [strict_contains(t, ["Paris"], squad) for t in (
    ...     "It is Paris.", "definitely not Paris", "Parisian", "Paris, Rome or Berlin",
    ...     "either Paris or Rome", "Not Rome, but Paris")]
    [True, False, False, False, False, True]
    """
    words = _words(text, normalize)
    stream: list[str] = []
    owner: list[int] = []
    for i, word in enumerate(words):
        stream.extend(word.pieces)
        owner.extend([i] * len(word.pieces))
    for alias in aliases:
        wanted = [piece for word in _words(alias, normalize) for piece in word.pieces]
        if not wanted:
            continue
        for start in islice(_find(stream, wanted), _MAX_MENTIONS):
            first, last = owner[start], owner[start + len(wanted) - 1]
            if _asserted(words, first, last, required):
                return True
    return False


def _find(stream: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Positions of a run of words. The separator makes it one linear string search."""
    joined = "\x00" + "\x00".join(stream) + "\x00"
    needle = "\x00" + "\x00".join(wanted) + "\x00"
    at, counted, start = joined.find(needle), 0, 0
    while at >= 0:
        counted += joined.count("\x00", start, at)
        start = at
        yield counted
        at = joined.find(needle, at + 1)


def _asserted(words: Sequence[_Word], first: int, last: int, required: int) -> bool:
    return (
        not _negated_before(words, first)
        and not _denied_after(words, last)
        and not _enumerated(words, first, last, required)
    )


def _negated_before(words: Sequence[_Word], first: int) -> bool:
    """A negation between the beginning of the clause and the mention."""
    for i in range(first - 1, max(first - 40, -1), -1):
        word, following = words[i], words[i + 1]
        if (word.text, following.text) in _TWO_WORD_NEGATIONS:
            return True
        if _ends_clause(word, following) or word.text in _CLAUSE_WORDS:
            return False
        if word.after.startswith(",") and not _list_goes_on(words, i, first):
            return False
        if word.text in _NEGATIONS or word.text.endswith("n't"):
            return following.text not in _ASSERTING
    return False


def _ends_clause(word: _Word, following: _Word) -> bool:
    return not _CLAUSE_ENDS.isdisjoint(word.after) or not _CLAUSE_ENDS.isdisjoint(following.before)


def _list_goes_on(words: Sequence[_Word], comma: int, first: int) -> bool:
    """A negation reaches over the commas of a list ("not Rome, Paris or Bonn")."""
    following = words[comma + 1 : first + 1]
    return len(following) <= 4 and any(
        w.text in _COORDINATORS for w in words[comma + 1 : first + 4]
    )


def _denied_after(words: Sequence[_Word], last: int) -> bool:
    """ "Paris is wrong", "Paris is not the answer"."""
    if last + 2 >= len(words) or words[last].after.strip("'\"*") or words[last + 1].after:
        return False
    verb, judgement = words[last + 1].text, words[last + 2].text
    if verb.endswith("n't") and verb[:-3] in _COPULAS:
        rest = words[last + 2 : last + 5]
        return any(word.text in _JUDGED for word in rest)
    if verb not in _COPULAS or judgement not in _DENIALS:
        return False
    if judgement in ("not", "never"):
        return any(word.text in _JUDGED for word in words[last + 3 : last + 6])
    return True


# --- enumerations ------------------------------------------------------------------------------


def _enumerated(words: Sequence[_Word], first: int, last: int, required: int) -> bool:
    """The mention is an item of an either-or, or of a list of three or more."""
    enough = max(3, required + 1)
    left, alternative = _items(words, first, -1, enough)
    if alternative or 1 + left >= enough:
        return True
    right, alternative = _items(words, last, +1, enough)
    return alternative or 1 + left + right >= enough


def _items(words: Sequence[_Word], edge: int, step: int, enough: int) -> tuple[int, bool]:
    """How many further items stand on one side of the mention, and whether "or" joins them.

    Items are runs of at most a few words between list marks or conjunctions. An apposition
    ("Paris, the capital, …") counts only where a conjunction shows that this is a list.
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
        joins = word if word in _COORDINATORS or word in _ALTERNATIVES else ""
        if mark or joins:
            if mark in _ALTERNATIVES or joins in _ALTERNATIVES:
                return count, True
            count += separated and length > 0 and not apposition
            appositions += separated and length > 0 and apposition
            joined = joined or bool(joins) or mark in "/|\n"
            separated, length, apposition = True, 0, False
            if joins:
                continue
        elif not separated:
            break  # on this side the mention is part of a longer phrase
        if step > 0 and length == 0:
            if word in _NOT_AN_ITEM:
                separated = False
                break
            apposition = word in ARTICLES
        length += 1
        if length > _MAX_ITEM_WORDS:
            # The first item of a list carries the sentence before it ("The answer is Rome, …").
            separated = step < 0
            break
    count += separated and length > 0 and not apposition
    appositions += separated and length > 0 and apposition
    return count + (appositions if joined else 0), False


def _between(word: _Word, following: _Word) -> tuple[str, bool]:
    """(list mark, ends the list) for what is written between two words."""
    written = word.after + following.before
    mark = next((char for char in written if char in _LIST_MARKS), "")
    ends = not mark and not _CLAUSE_ENDS.isdisjoint(written.replace("(", "").replace(")", ""))
    return mark, ends

"""Answers in plain letters, which are compared without a full read.

Most answers in a training are a gold answer, or contain a word that nothing explains. A full read
of these gives the same value, and takes ten times as long.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import chain, groupby

from rag_rewards.matching.gold import STEM, Required, in_memory
from rag_rewards.matching.reading import short_key_of
from rag_rewards.matching.tables import tables, words_of_all
from rag_rewards.matching.values import VALUE_WORDS
from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import ARTICLES, fold
from rag_rewards.text.refusal import refusing_phrases

_LETTERS = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ ,.\-]{1,400}")
_MARKS_TO_SPACES = bytes.maketrans(b",.-", b"   ")
_JOINTS = b" .-/'"
_LONGEST_QUESTION = 2_000  # characters
_SHARED = 3  # letters that a word of the question may share with a word of the answer


class PlainGold:
    """Gold answers in the forms in which plain answers are compared with them.

    folded  the aliases of the only required answer with case and typography folded
    """

    def __init__(self, required: Required) -> None:
        self._folded = [fold(alias.strip()) for alias in chain.from_iterable(required)]
        self.folded = frozenset(self._folded if len(required) == 1 else ()) - {""}

    def has(self, folded: str) -> bool:
        """Return whether an answer differs from an alias only in an article, marks and joints."""
        return folded[:1] in self._first_letters and plain_form(folded) in self.forms

    @lazy
    def _first_letters(self) -> frozenset[str]:
        return frozenset(form[0] for form in (*self.forms, *ARTICLES))

    @lazy
    def forms(self) -> frozenset[str]:
        """The plain forms of these aliases, without numbers and function words."""
        forms = map(plain_form, self.folded)
        names = (form for form in forms if len(form) > 1 and not form[-1].isdigit())
        return frozenset(names) - tables().function

    @lazy
    def keys(self) -> set[str] | None:
        """The keys of all words, or None if an alias has other characters or is yes or no."""
        words: set[str] = set()
        for alias in self._folded:
            if not _LETTERS.fullmatch(alias) or not (parts := _words(alias)):
                return None
            words.update(parts)
            if len([part for part in parts if len(part) <= 2]) > 1:
                runs = groupby(parts, key=lambda part: len(part) <= 2)
                words.update("".join(run) for is_short, run in runs if is_short)  # "jk"
        return (
            None if words <= tables().yes or words <= tables().no else set(map(short_key_of, words))
        )

    @lazy
    def stems(self) -> set[str]:
        """The beginnings of the keys, without those of function words."""
        return {key[:STEM] for key in (self.keys or set()) - tables().english_function}


read_plain_gold = in_memory(PlainGold)


def is_plain(answer: str) -> bool:
    """Return whether an answer is short and consists of letters, spaces and a few marks."""
    return _LETTERS.fullmatch(answer) is not None


def plain_form(folded: str) -> str:
    """Return a folded text without an article before it and punctuation after it.

    A text of letters also loses what joins them.

    >>> plain_form("the ac/dc!"), plain_form("a 5 km run"), plain_form("-5")
    ('acdc', '5 km run', '-5')
    """
    bare = folded.rstrip(" .!")
    first, _, rest = bare.partition(" ")
    if rest and first in ARTICLES:
        bare = rest
    if len(bare) < 4 or not (bare[0].isalpha() and bare[-1].isalpha()):
        return bare
    # ASCII characters are never part of another character in UTF-8.
    encoded = bare.encode("utf-8", "surrogatepass").translate(None, _JOINTS)
    joined = encoded.decode("utf-8", "surrogatepass")
    return joined if len(joined) > 3 and joined.isalpha() else bare


def _words(folded: str) -> list[str]:
    return folded.encode().translate(_MARKS_TO_SPACES).decode().split()


def plain_rest(folded: str, gold: PlainGold, question: str) -> tuple[list[str], bool] | None:
    """Return the words of a plain answer that nothing explains, and whether it shares none of gold.

    Return None if only a full read can tell.
    """
    words, gold_keys = _words(folded), gold.keys
    question_text = _without_alternatives(question[:_LONGEST_QUESTION])
    if gold_keys is None or question_text is None or not _has_words_only(words):
        return None
    keys, vocabulary, turning = list(map(short_key_of, words)), _vocabulary(), tables().turning
    others = [word for word, key in zip(words, keys, strict=True) if key not in gold_keys]
    strange = [w for w in others if w not in vocabulary and w[:_SHARED] not in question_text]
    if not strange:
        return None
    if not turning.isdisjoint(others):
        strange = [word for word in others if word in turning or word in strange]
    return strange, gold.stems.isdisjoint([key[:STEM] for key in keys])


@lru_cache(maxsize=1024)
def _without_alternatives(question: str) -> str | None:
    """Return a question in lower case, or None if it may offer alternatives."""
    folded = question.lower()
    return folded if tables().alternatives.isdisjoint(folded.split()) else None


def _has_words_only(words: list[str]) -> bool:
    """Return whether words are no refusal, no value and no initials."""
    if not words or min(map(len, words)) == 1:
        return False
    return refusing_phrases()[0].isdisjoint(words) and VALUE_WORDS.isdisjoint(words)


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words that a full read may explain."""
    role = tables()
    places = {word for place in role.places for word in place.split()}
    others = words_of_all(
        "function", "titles", "joining", "articles", "alternatives", "degrees", "suffixes"
    )
    return others.union(("mt", "st"), places, role.forms, role.yes, role.no)

"""Refusals (Ground-GRPO) and abstentions (TruthRL)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, lru_cache

from rag_rewards.text.absence import QUOTES, english, explains, foreign, mentions
from rag_rewards.text.latex import unwrap
from rag_rewards.text.normalize import fold, squad
from rag_rewards.text.statements import sentences

REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."
"""The gold refusal of the Trust-Align data."""
SHORT_REFUSAL = "I apologize, but I couldn't find an answer"
"""The text that Trust-Score's detector searches for."""
ABSTENTIONS = ("I don't know", "I dont know", "I do not know")


_APOSTROPHES = re.compile("[‘’‛ʼʹʻ′´`＇]")


def refusal_form(text: str) -> str:
    """Return a text in the form in which refusals are compared: `squad` with plain apostrophes.

    `squad` removes ASCII apostrophes only, so that "couldn’t" and "couldn't" would differ.

    >>> refusal_form("I couldn’t find it."), refusal_form("I couldn't find it.")
    ('i couldnt find it', 'i couldnt find it')
    """
    return squad(text if text.isascii() else _APOSTROPHES.sub("'", text))


_LONGEST_REFUSAL = 400  # characters
_REFUSING_PHRASES = (
    "dont know", "do not know", "not know", "no idea", "cannot answer", "cant answer",
    "couldnt find", "could not find", "cannot determine", "cannot be determined",
    "cannot be answered", "not mentioned", "not provided", "not specified", "no answer",
    "no information", "not enough information", "insufficient information", "unable to answer",
    "unable to determine", "not sure", "n a",
)  # fmt: skip


@cache
def refusing_phrases() -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the first words of all phrases, and a pattern that finds a phrase."""
    others = [refusal_form(p) for each in foreign().values() for p in each.phrases]
    phrases = dict.fromkeys(
        [*_REFUSING_PHRASES, *map(refusal_form, (*ABSTENTIONS, REFUSAL)), *others]
    )
    pattern = "|".join(rf" {re.escape(p)} " if p.isascii() else re.escape(p) for p in phrases)
    return frozenset(p.split()[0] for p in phrases if p.isascii()), re.compile(pattern)


def is_refusal(answer: str) -> bool:
    """Return whether an answer says that the model does not know or give the answer.

    >>> is_refusal("I don't know."), is_refusal("Paris")
    (True, False)
    """
    if len(answer) > _LONGEST_REFUSAL:
        return False
    words, pattern = refusing_phrases()
    normal = refusal_form(fold(answer))
    if normal.isascii() and words.isdisjoint(normal.split()):
        return False
    return pattern.search(f" {normal} ") is not None


def refusal_similarity(
    answer: str, texts: Iterable[str] = (REFUSAL,), cutoff: float = 0.0
) -> float:
    """Return the similarity of a whole answer to the nearest refusal text, 0 to 1.

    This is rapidfuzz's `ratio` (normalized insertion-deletion similarity) of texts in the form of
    `squad` with plain apostrophes. A value below `cutoff` becomes 0. Source: Ground-GRPO, section
    2.2 ("a fuzzy matching algorithm").

    >>> round(refusal_similarity("I couldn't find an answer in the search results."), 2)
    0.7
    >>> refusal_similarity(REFUSAL.replace("'", "’"))
    1.0
    """
    from rapidfuzz import fuzz

    normal = refusal_form(answer)
    forms = _refusal_forms(tuple(texts))
    return max(fuzz.ratio(normal, form, score_cutoff=100 * cutoff) for form in forms) / 100


@lru_cache(maxsize=16)
def _refusal_forms(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(refusal_form, texts))


def trust_score_refusal(output: str, texts: Iterable[str] = (SHORT_REFUSAL,)) -> float:
    """Return the partial similarity of an output to the short refusal, 0 to 1 in hundredths.

    Trust-Score counts an output as a refusal if the value is greater than 0.85. Source:
    Trust-Score's evaluation code. It uses fuzzywuzzy, from which rapidfuzz differs by a few
    hundredths on texts that are far from a refusal, and keeps typographic apostrophes.

    >>> trust_score_refusal("Sadly: I apologize, but I couldn't find an answer.")
    1.0
    """
    from rapidfuzz import fuzz

    normal = refusal_form(output)
    return max(round(fuzz.partial_ratio(refusal_form(t), normal)) for t in texts) / 100


# --- strict refusals: the hardened profile -----------------------------------------------------

_WORDS = english()
# Words that a refusal may contain beyond those of the gold text.
_REFUSING = _WORDS.negators | _WORDS.content


def strict_refusal(
    answer: str,
    similarity: Callable[[str], float],
    texts: Sequence[str] = (REFUSAL,),
    *,
    threshold: float = 0.85,
    gold: Collection[str] = (),
    question: str = "",
) -> float:
    """Return the similarity of the refusing sentence, or 0 if the answer contains anything else.

    One sentence must refuse without a negation, a quotation or other content. Every other sentence
    must report what the sources lack or contain, without a name or number that the question
    lacks. No sentence may contain a gold answer (`gold`, in the form of `squad`). `answer` must
    contain no citation markers.

    >>> def like(text): return refusal_similarity(text)
    >>> strict_refusal(REFUSAL + " The documents do not mention it.", like)
    1.0
    >>> strict_refusal(REFUSAL + " It is Paris.", like)
    0.0
    """
    flat = [" ".join(squad(text).split()) for text in texts]
    negations = {_negations(text.split()) for text in flat}
    vocabulary = _REFUSING.union(*(text.split() for text in flat))
    best = 0.0
    for sentence in sentences(answer):
        folded = fold(sentence)
        words = squad(folded).split()
        if not words:
            continue
        if mentions(" ".join(words), gold):
            return 0.0
        score = similarity(folded.strip())
        bare = vocabulary.issuperset(words) and not QUOTES.search(folded)
        if score >= threshold and bare and _negations(words) in negations:
            best = max(best, score)
        elif score >= threshold or not explains(sentence, question):
            return 0.0
    return best


def _negations(words: Sequence[str]) -> int:
    return sum(word in _WORDS.negators for word in words)


# --- abstentions -------------------------------------------------------------------------------


def phrase(text: str) -> str:
    """Return a phrase in the form in which abstentions are compared.

    Case, apostrophes, white space and invisible characters are unified.
    """
    if "\\" in text:
        text = unwrap(text)
    text = text.lower() if text.isascii() else fold(_APOSTROPHES.sub("'", text))
    return " ".join(text.replace("`", "'").split())


EDGES = " .!,;:\"'()[]*_。！，、…"


def abstained(
    answer: str,
    phrases: Iterable[str] = ABSTENTIONS,
    gold: Collection[str] = (),
    *,
    alone: bool = False,
) -> bool:
    """Return whether an answer contains an abstention that no gold answer contains.

    Case, white space and the kind of apostrophe do not matter. With `alone`, the phrase must be
    the whole answer, apart from punctuation. Source: TruthRL, section 3.2; the authors' code uses
    the first phrase only.

    >>> abstained("I don’t know."), abstained("I Don't Know", gold=["I Don't Know What to Do"])
    (True, False)
    """
    return contains_phrase(phrase(answer), [phrase(text) for text in phrases], gold, alone=alone)


_FIRST_CLAUSE = re.compile(r"[^.,;!?\n]{1,200}[.,;!?\n]")


def is_explained_abstention(
    answer: str, phrases: Collection[str], gold: Collection[str] = (), question: str = ""
) -> bool:
    """Return whether an answer is an abstention and the reason for it, which names no answer.

    `phrases` is in the form that `phrase` returns.

    >>> is_explained_abstention("I don't know. The documents do not say it.", ["i don't know"])
    True
    >>> is_explained_abstention("I don't know. It is Rome.", ["i don't know"])
    False
    """
    first = _FIRST_CLAUSE.match(answer)
    if first is None or not contains_phrase(phrase(first[0]), phrases, gold, alone=True):
        return False
    reasons = sentences(answer[first.end() :])
    normal = [squad(fold(reason)) for reason in reasons]
    answers = [squad(fold(alias)) for alias in gold]
    return (
        any(normal)
        and not any(mentions(words, answers) for words in normal)
        and all(explains(reason, question) for reason in reasons if reason.strip())
    )


def contains_phrase(
    answer: str, phrases: Iterable[str], gold: Collection[str] = (), *, alone: bool = False
) -> bool:
    """Return `abstained` for an answer and phrases in the form that `phrase` returns."""
    if alone:
        answer = answer.strip(EDGES)
    for text in phrases:
        matches = answer == text if alone else text in answer
        if matches and not any(text in phrase(alias) for alias in gold):
            return True
    return False

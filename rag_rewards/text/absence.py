"""Sentences that decline to answer, or that report what the sources lack.

`declines` reads refusals in other words and in other languages, and `explains` reads the sentences
around a refusal. Both read `refusal_words.json`: English words have a role each, and every other
language has the phrases of its refusals, and the words that begin a guess. `others` has phrases of
languages without guesses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

import msgspec

from rag_rewards.text.normalize import EDGES, fold, squad
from rag_rewards.text.statements import sentences

Words = frozenset[str]
LATIN = "\u024f"
"""The last of the letters that Latin scripts begin a word with."""


class EnglishRefusals(NamedTuple):
    """English words of refusals. Phrases have the form of `fold`, the others that of `squad`.

    negators     negate a sentence; two sentences that differ in their number differ in meaning
    absence      report, together with one of `sources`, that something is missing
    sources      what a report of absence is about: "the documents"
    asserting    begin an assertion in a report of absence: "no other than"
    content      words that a refusal may contain, together with `negators`
    phrases      phrases of which each sentence of a refusal contains one: "no idea"
    paraphrase   further words of refusals in other words
    topics       say what the sources are about instead: "The documents describe the plot"
    requests     ask for further sources: "Please provide more documents"
    reported     follow "is" or "was" in a report of absence: "No date is given"
    guesses      begin an assertion after a refusal: "but maybe"
    """

    negators: Words
    absence: Words
    sources: Words
    asserting: Words
    content: Words
    phrases: Words
    paraphrase: Words
    topics: Words
    requests: Words
    reported: Words
    guesses: Words


class Refusals(NamedTuple):
    """Folded phrases of refusals in another language, and words that begin a guess: "oder"."""

    name: str
    phrases: tuple[str, ...]
    guesses: tuple[str, ...] = ()

    @property
    def is_latin(self) -> bool:
        return self.phrases[0] < LATIN


@cache
def english() -> EnglishRefusals:
    """Return the English words by role."""
    table = _tables()["en"]
    return EnglishRefusals(*(frozenset(_entries(table[r])) for r in EnglishRefusals._fields))


@cache
def foreign() -> dict[str, Refusals]:
    """Return the refusals of the other languages by code."""
    return {
        code: Refusals(table["name"], _entries(table["phrases"]), _entries(table.get("guesses")))
        for code, table in _tables().items()
        if code != "en"
    }


def _entries(text: str | None) -> tuple[str, ...]:
    return tuple(map(fold, text.split(", "))) if text else ()


@cache
def _tables() -> dict[str, dict[str, str]]:
    content = files(__package__).joinpath("refusal_words.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, dict[str, str]])


_FAR = 3  # words between a word of absence and the verb that it denies
_LONGEST = 2_000  # characters; a longer text is an answer
_SHORT = 4  # characters; a phrase that is not longer is a whole word
_BETWEEN_WORDS = re.compile(r"[^\w'’]+")
_WORDS = english()
_VOCABULARY = frozenset().union(
    _WORDS.content,
    _WORDS.sources,
    _WORDS.absence,
    _WORDS.paraphrase,
    _WORDS.negators,
    _WORDS.reported,
)
QUOTES = re.compile(r"[\"“”„«»「」『』]")
_SENTENCE_END = re.compile(r"[a-z]{5}[.!?](?=\s)")
_AFTER_SENTENCE = (".", "!", "?", "。", "\n")
_SOURCE_NUMBER = re.compile(
    r"(?i)\b(?:documents?|passages?|sources?|results?|texts?)\s{1,3}\d{1,2}\b"
)


def declines(answer: str, gold: Collection[str] = ()) -> bool:
    """Return whether each sentence of an answer declines to answer, in one of the languages.

    A sentence with a gold answer (`gold`, in the form of `squad`) does not decline.

    >>> [declines(text) for text in ("No idea.", "Je ne sais pas.", "わかりません。", "Rome.")]
    [True, True, True, False]
    """
    if len(answer) > _LONGEST:
        return False
    folded, has_declined = fold(answer), False
    end = _SENTENCE_END.search(folded)
    if not _has_phrase(folded[: end.end()] if end else folded):
        return False  # without cutting the answer into sentences
    for sentence in sentences(folded):
        words = squad(sentence)
        if not words:
            continue
        if not _has_phrase(sentence) or mentions(words, gold):
            return False
        has_declined = True
    return has_declined


def _has_phrase(folded: str) -> bool:
    return any(map(folded.__contains__, _WORDS.phrases)) or bool(_languages_of(folded))


def paraphrases(answer: str, question: str) -> bool:
    """Return whether an answer that declines contains nothing but words of refusals.

    The words of the question are allowed. The answer may not guess after it declines.
    """
    folded = fold(answer)
    words = squad(folded).split()
    if _has_candidate(answer, question) or not _WORDS.guesses.isdisjoint(_after_refusal(folded)):
        return False
    allowed = set(squad(fold(question)).split())
    codes = _languages_of(folded)
    if not codes:
        return all(word in _VOCABULARY or word in allowed for word in words)
    # The words of other languages are not listed: a guess after the refusal is not allowed.
    guesses = _WORDS.guesses.union(["or"], *(foreign()[code].guesses for code in codes))
    spaced = _spaced(folded)
    return not any(_spaced(guess) in spaced for guess in guesses)


def explains(sentence: str, question: str = "") -> bool:
    """Return whether a sentence beside a refusal says only what the sources lack or contain.

    >>> explains("The documents discuss Lyon but do not mention its mayor.", "Who is Lyon's mayor?")
    True
    >>> explains("Answer without source: Jean Dupont.", "Who is Lyon's mayor?")
    False
    """
    if len(sentence) > _LONGEST or _has_candidate(sentence, question):
        return False
    words = squad(fold(sentence)).split()
    about_sources = not _WORDS.sources.isdisjoint(words)
    lacks = not _WORDS.absence.isdisjoint(words)
    asks = not _WORDS.requests.isdisjoint(words) and not lacks
    describes = not _WORDS.topics.isdisjoint(words)
    if not (about_sources and (lacks or asks or describes)):
        return False
    return not _asserts(words, squad(fold(question)).split())


def _asserts(words: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether a word of assertion is not followed by a report, or a word of the question."""
    reports = _WORDS.absence | _WORDS.reported | set(known)
    for i, word in enumerate(words):
        following = words[i + 1 : i + 5]
        absent = next((at for at, each in enumerate(following) if each in _WORDS.absence), 4)
        if (
            word in _WORDS.guesses
            and _VOCABULARY.issuperset(following[: absent + 1])
            and absent < 4
        ):
            continue  # "but it does not state the number"
        asserting = word in _WORDS.asserting or " ".join(words[i : i + 2]) in _WORDS.asserting
        if asserting and reports.isdisjoint(words[i + 1 : i + 3]):
            return True
    return False


def mentions(words: str, gold: Collection[str]) -> bool:
    """Return whether normalized words contain a gold answer as whole words.

    Words of many scripts have no spaces between them, or have endings and prefixes. A gold answer
    that is not in ASCII can therefore be anywhere.

    >>> mentions("bohemian rhapsody", ["bohemia"]), mentions("答案是不明飞行物", ["不明飞行物"])
    (False, True)
    """
    return any(
        f" {answer} " in f" {words} "
        or (len(answer) > 1 and not answer.isascii() and answer in words)
        for answer in gold
        if answer
    )


def _has_candidate(text: str, question: str) -> bool:
    """Return whether a text contains a name, a number or a quotation that the question lacks."""
    if QUOTES.search(text) or ":" in text.strip().rstrip(":"):
        return True
    known = {token.strip(EDGES).casefold().removesuffix("'s") for token in question.split()}
    before, denied, since_absence = ".", False, _FAR
    for token in _SOURCE_NUMBER.sub(" documents ", text).split():
        word = token.strip(EDGES)
        folded = word.casefold().removesuffix("'s").removesuffix("’s")
        begins = before.endswith(_AFTER_SENTENCE)
        names_absent = denied and word[:1].isupper()
        since_absence = 0 if squad(fold(word)) in _WORDS.absence else since_absence + 1
        # "do not mention Rome" and "no document names Rome" deny a name.
        denied = names_absent or (folded in _WORDS.sources and since_absence < _FAR)
        denied = denied and token[-1].isalnum()
        before = token
        if folded in known or not word or names_absent:
            continue
        if any(map(str.isdigit, word)):
            return True
        if word[0].isupper() and not begins and squad(fold(word)) not in _VOCABULARY:
            return True
    return False


def _after_refusal(folded: str) -> list[str]:
    """Return the words after the last phrase of a refusal."""
    end = max(
        (at + len(phrase) for phrase in _WORDS.phrases if (at := folded.rfind(phrase)) >= 0),
        default=0,
    )
    return squad(folded[end:]).split()


def _languages_of(folded: str) -> set[str]:
    """Return the codes of the languages other than English in which a text contains a refusal.

    A phrase in Latin letters is at the beginning of a word. It can end inside a word, unless it is
    short: "boh" is not in "Bohemian".
    """
    first, alone, others = _phrases()
    spaced = _spaced(folded)
    phrases = [*alone, *chain.from_iterable(first.get(word, ()) for word in set(spaced.split()))]
    codes = {code for phrase, code in phrases if phrase in spaced}
    if not folded.isascii() and max(folded) > LATIN:
        codes.update(code for phrase, code in others if phrase in folded)
    return codes


_Coded = tuple[str, str]
"""A phrase and the code of its language."""


@cache
def _phrases() -> tuple[dict[str, list[_Coded]], list[_Coded], list[_Coded]]:
    """Return phrases in Latin letters by their first words, those of one word, and all others.

    Phrases in Latin letters begin with a space.
    """
    first: dict[str, list[_Coded]] = {}
    alone, others = [], []
    for code, language in foreign().items():
        for phrase in language.phrases:
            word, _, rest = phrase.partition(" ")
            if not language.is_latin:
                others.append((phrase, code))
            elif rest:
                first.setdefault(word, []).append((_begun(phrase), code))
            else:
                alone.append((_begun(phrase), code))
    return first, alone, others


def _begun(phrase: str) -> str:
    return f" {phrase}" if len(phrase) > _SHORT else f" {phrase} "


def _spaced(folded: str) -> str:
    """Return a text with one space between words, and around the text."""
    return f" {_BETWEEN_WORDS.sub(' ', folded)} "

"""Sentences that decline to answer, or that report what the sources lack.

`declines` reads refusals in other words and in other languages, and `explains` reads the sentences
around a refusal. Both read the tables in `text.languages`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from rag_rewards.text.languages import FOREIGN, english, foreign
from rag_rewards.text.languages.glosses import glossed
from rag_rewards.text.languages.word_separation import languages_in
from rag_rewards.text.normalize import fold, squad
from rag_rewards.text.statements import sentences
from rag_rewards.text.words import EDGES, read_words

_FAR = 3  # words between a word of absence and the verb that it denies
_LONGEST = 2_000  # characters; a longer text is an answer
_SHORT = 4  # characters; a phrase that is not longer is a whole word
_BETWEEN_WORDS = re.compile(r"[^\w'’]+")
_WORDS = english().refusals
_VOCABULARY = frozenset().union(
    _WORDS.content,
    _WORDS.sources,
    _WORDS.absence,
    _WORDS.paraphrase,
    _WORDS.negators,
    _WORDS.reported,
)
# "I do not know" in languages without a table, at the beginning of a word or, in other scripts than
# the Latin one, anywhere.
_LATIN_REFUSALS = (
    "ik weet het niet", "ik weet niet", "weet ik niet", "geen idee", "jag vet inte", "jag vet ej",
    "jeg vet ikke", "jeg ved ikke", "det ved jeg ikke", "ég veit ekki", "nie wiem", "nevím",
    "neviem", "ne znam", "ne vem", "nu știu", "nu stiu", "nem tudom", "en tiedä", "ma ei tea",
    "nežinau", "es nezinu", "bilmiyorum", "bilmirəm", "tôi không biết", "tidak tahu", "tak tahu",
    "hindi ko alam", "sijui", "ban sani ba", "ez dakit", "no ho sé", "ní fheadar", "níl a fhios",
    "ddim yn gwybod", "mi ne scias", "nescio", "nuk e di",
)  # fmt: skip
_OTHER_REFUSALS = (
    "не ведаю", "не знам", "білмеймін", "би мэдэхгүй", "δεν ξέρω", "δεν γνωρίζω", "לא יודע",
    "نمی‌دانم", "نمی دانم", "نہیں معلوم", "জানি না", "தெரியாது", "తెలియదు", "ಗೊತ್ತಿಲ್ಲ", "അറിയില്ല",
    "ખબર નથી", "माहित नाही", "थाहा छैन", "არ ვიცი", "չգիտեմ",
)  # fmt: skip
QUOTES = re.compile(r"[\"“”„«»「」『』]")
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
    folded = fold(answer)
    phrases = _phrases(languages_in(folded))
    found = False
    for sentence in sentences(folded):
        words = squad(sentence)
        if not words:
            continue
        refuses = any(map(sentence.__contains__, _WORDS.phrases)) or _contains(sentence, *phrases)
        if not refuses or mentions(words, gold):
            return False
        found = True
    return found


def declines_in_other_language(text: str) -> bool:
    """Return whether a text contains words of a refusal in a language other than English.

    >>> [declines_in_other_language(text) for text in ("Nicht sicher; keine Ahnung.", "No idea.")]
    [True, False]
    """
    folded = fold(text)
    return _contains(folded, *_phrases(languages_in(folded)))


def _contains(folded: str, anywhere: Collection[str], at_words: Collection[str]) -> bool:
    """Return whether a text contains a phrase, or one of `at_words` at the beginning of a word."""
    spaced = f" {_BETWEEN_WORDS.sub(' ', folded)} "
    return any(phrase in folded for phrase in anywhere) or any(
        phrase in spaced for phrase in at_words
    )


def paraphrases(answer: str, question: str) -> bool:
    """Return whether an answer that declines contains nothing but words of refusals.

    The words of the question are allowed. The answer may not guess after it declines.
    """
    folded = fold(answer)
    words = squad(folded).split()
    if _has_candidate(answer, question) or not _WORDS.guesses.isdisjoint(_after_refusal(folded)):
        return False
    allowed = set(squad(fold(question)).split())
    codes = languages_in(folded)
    if not codes:
        return all(word in _VOCABULARY or word in allowed for word in words)
    # The words of other languages are not listed: a guess after the refusal is not allowed.
    return folded.isascii() or all(
        word.text not in _WORDS.guesses and word.text != "or"
        for word in glossed(read_words(folded, squad), codes)[0]
    )


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


@lru_cache
def _phrases(codes: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the foreign phrases that can be anywhere, and those that begin with a space.

    The phrases of other languages in Latin letters are read in each text, but only at the beginning
    of a word. They can end inside a word, unless they are short: "boh" is not in "Bohemian".
    """
    latin = [code for code in FOREIGN if foreign(code).cues]
    anywhere = {fold(phrase) for code in codes for phrase in foreign(code).refusals}
    at_words = {fold(phrase) for code in latin for phrase in foreign(code).refusals}
    at_words.update(map(fold, _LATIN_REFUSALS))
    anywhere.update(map(fold, _OTHER_REFUSALS))
    spaced = {f" {each}" if len(each) > _SHORT else f" {each} " for each in at_words}
    return frozenset(anywhere - at_words), frozenset(spaced)

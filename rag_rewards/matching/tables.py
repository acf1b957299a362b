"""Tables of words that matching reads, by language.

An answer is read in English and in the languages of the question: "son" is a function word in an
answer to a Spanish question only.

`languages.json` has, for each language, strings of words by role:

function       explain nothing and change nothing: articles, copulas, prepositions of place and
               time, frames such as "the answer is"
limits         function words that move a value: "by 1969"
relations      prepositions between a noun and a name: "the father of Cain"
titles         words before a name: "Queen Victoria"
suffixes       words after the name of a company: "Apple Inc."
negations      turn a sentence into its opposite: "not"
turning        turn or move a meaning: "not", "before", "over", "near". Nothing explains them, and
               in scripts without spaces no text that contains them
degrees        turning words of superlatives, which a question may contain: "the most populous"
asking         words that ask: "who"
adverbs        those that ask for a place, a time or a manner: "where"
auxiliaries    other words that begin a question: "is"
agents         before the subject of a passive: "by"
alternatives   join alternatives: "or"
articles       articles other than English ones
joining        join required answers: "and", "both"
yes, no        answers to a question for yes or no
months         the months in order
weekdays       the weekdays
forms          the forms of irregular verbs
endings        particles that are attached to a name (Korean)
counters       words that are attached to a number: "1969年"
strings        function words of scripts without spaces
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from rag_rewards.text.normalize import fold

Words = frozenset[str]


class Tables(msgspec.Struct, frozen=True):
    """The words of languages by role. A word that turns a meaning has no other role.

    english_function  English function words
    elisions    words with an apostrophe at their end
    """

    function: Words
    limits: Words
    titles: Words
    suffixes: Words
    negations: Words
    turning: Words
    degrees: Words
    asking: Words
    adverbs: Words
    auxiliaries: Words
    agents: Words
    relations: Words
    articles: Words
    alternatives: Words
    joining: Words
    yes: Words
    no: Words
    weekdays: Words
    english_function: Words
    elisions: Words
    months: dict[str, int]
    forms: dict[str, str]
    endings: tuple[str, ...]
    counters: tuple[str, ...]
    strings: tuple[str, ...]
    turning_strings: tuple[str, ...]
    asking_strings: tuple[str, ...]
    places: Words


_UNSPACED = ("ja", "zh", "th")
_EUROPEAN = frozenset(("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr"))
"""The languages in Latin letters. Words in another script mean the same in any answer."""
_ABBREVIATIONS = "jan feb mar apr may jun jul aug sep oct nov dec"


_TOGETHER = _EUROPEAN - {"nl", "pl", "tr"}
"""The languages whose words are read together: those of the others mean more in these, as "of"."""


@cache
def tables(codes: frozenset[str] = _TOGETHER) -> Tables:
    """Return the tables, which are read on first use, without those of other European languages."""
    languages = {
        code: table
        for code, table in _languages().items()
        if code in codes or code not in _EUROPEAN or code == "en"
    }

    def words(role: str, *codes: str) -> list[str]:
        chosen = [languages[code] for code in codes or languages]
        return [fold(word) for table in chosen for word in table.get(role, "").split()]

    def longest_first(role: str, *codes: str) -> tuple[str, ...]:
        return tuple(sorted(set(words(role, *codes)), key=lambda word: (-len(word), word)))

    sets = {role: frozenset(words(role)) for table in _languages().values() for role in table}
    turning = sets["turning"]
    sets["function"] -= turning
    if len(codes) == 1 and codes < _EUROPEAN:  # "no" in Portuguese
        own = frozenset(words("function", *codes)).difference(words("turning", *codes))
        sets["turning"] = turning = turning - own
        sets["function"] |= own
    sets["titles"] = words_of_all("titles") - turning
    months = [table.get("months", "") for table in languages.values()]
    others: dict[str, object] = {
        "english_function": frozenset(words("function", "en")) - turning,
        "elisions": frozenset(word for word in sets["function"] | turning if word[-1] == "'"),
        "months": dict(_months([_ABBREVIATIONS, *months])) | {"sept": 9},
        "forms": _forms([table.get("forms", "") for table in _languages().values()]),
        "endings": longest_first("endings"),
        "counters": longest_first("counters"),
        "strings": longest_first("strings"),
        "turning_strings": longest_first("turning", *_UNSPACED),
        "asking_strings": longest_first("asking", *_UNSPACED),
        "places": frozenset(" ".join(_read("places.txt").decode().split()).split(", ")),
    }
    return msgspec.convert(sets | others, Tables)


def words_of_all(*roles: str) -> frozenset[str]:
    """Return the words of some roles in all languages."""
    texts = (table.get(role, "") for table in _languages().values() for role in roles)
    return frozenset(fold(word) for text in texts for word in text.split())


@cache
def _languages() -> dict[str, dict[str, str]]:
    return msgspec.json.decode(_read("languages.json"), type=dict[str, dict[str, str]])


def languages_of(words: Sequence[str]) -> frozenset[str]:
    """Return the European languages of which a question has the most words."""
    counts = Counter(code for word in words for code in _languages_by_word().get(word, ()))
    most = max(counts.values(), default=0)
    return frozenset(code for code, count in counts.items() if count == most)


@cache
def _languages_by_word() -> dict[str, list[str]]:
    """Return the languages of each word that shows them, twice for words that ask."""
    by_word: dict[str, list[str]] = {}
    for code in sorted(_EUROPEAN):
        for role in ("function", "articles", "asking", "asking"):
            for word in _languages()[code].get(role, "").split():
                by_word.setdefault(fold(word), []).append(code)
    return by_word


def _read(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


def _months(lists: list[str]) -> Iterator[tuple[str, int]]:
    for names in lists:
        for number, name in enumerate(names.split(), start=1):
            yield fold(name), number


def _forms(lists: list[str]) -> dict[str, str]:
    """Return the first form for each form of an irregular verb."""
    first: dict[str, str] = {}
    for verbs in lists:
        for forms in verbs.split(","):
            for form in forms.split():
                first.setdefault(fold(form), fold(forms.split()[0]))
    return first

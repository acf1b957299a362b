"""Tables of words that matching reads, by language.

`languages.json` has, for each language, strings of words by role:

function       explain nothing and change nothing: articles, copulas, prepositions of place and
               time, frames such as "the answer is"
false_friends  function words that mean something in English: "son" (Spanish for "are")
limits         function words that move a value: "by 1969"
relations      prepositions between a noun and a name: "the father of Cain"
titles         words before a name: "Queen Victoria"
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

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from rag_rewards.text.normalize import fold

Words = frozenset[str]


class Tables(msgspec.Struct, frozen=True):
    """The words of all languages by role. A word that turns a meaning has no other role.

    english     words that ask in English
    english_function  English function words
    portuguese  function words that are neither Spanish nor Italian
    elisions    words with an apostrophe at their end
    """

    function: Words
    false_friends: Words
    limits: Words
    titles: Words
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
    english: Words
    english_function: Words
    portuguese: Words
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
_ABBREVIATIONS = "jan feb mar apr may jun jul aug sep oct nov dec"


@cache
def tables() -> Tables:
    """Return the tables, which are read on first use."""
    languages = msgspec.json.decode(_read("languages.json"), type=dict[str, dict[str, str]])

    def words(role: str, *codes: str) -> list[str]:
        chosen = [languages[code] for code in codes or languages]
        return [fold(word) for table in chosen for word in table.get(role, "").split()]

    def longest_first(role: str, *codes: str) -> tuple[str, ...]:
        return tuple(sorted(set(words(role, *codes)), key=lambda word: (-len(word), word)))

    sets = {role: frozenset(words(role)) for table in languages.values() for role in table}
    turning = sets["turning"]
    sets["function"] = (sets["function"] | sets["false_friends"]) - turning
    sets["titles"] -= turning
    months = [table.get("months", "") for table in languages.values()]
    others: dict[str, object] = {
        "english": frozenset(words("asking", "en")),
        "english_function": frozenset(words("function", "en")) - turning,
        "portuguese": frozenset(words("function", "pt")).difference(words("function", "es", "it")),
        "elisions": frozenset(word for word in sets["function"] | turning if word[-1] == "'"),
        "months": dict(_months([_ABBREVIATIONS, *months])) | {"sept": 9},
        "forms": _forms([table.get("forms", "") for table in languages.values()]),
        "endings": longest_first("endings"),
        "counters": longest_first("counters"),
        "strings": longest_first("strings"),
        "turning_strings": longest_first("turning", *_UNSPACED),
        "asking_strings": longest_first("asking", *_UNSPACED),
        "places": frozenset(" ".join(_read("places.txt").decode().split()).split(", ")),
    }
    return msgspec.convert(sets | others, Tables)


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

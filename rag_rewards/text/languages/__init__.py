"""Tables of words by language, which the rules about assertions and refusals read.

Each language is a JSON file in this folder. `en.json` lists the words of each role, for example
`negations`, in the form of `normalize.fold`; those of `refusals` are in the form of
`normalize.squad`. The files of the other languages list, for an English word of each role, the
words that have the same role: "not": ["nicht"]. An entry can consist of several words.
`marks.json` contains the punctuation marks, which are the same for all languages. A file is read
on first use.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

import msgspec

Words = frozenset[str]


class AssertionWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words that show whether a text asserts what it mentions.

    negations         begin a negation: "not Paris"; an entry of two words is a negation only if
                      both are there: "rather than Paris"
    denials           deny what is before them: "Paris is wrong"
    asserting         follow a negation that asserts: "not only Paris"
    denied_denials    follow a negation of a negation: "cannot be denied"
    judged            follow a denial of an answer: "not the correct answer"
    auxiliaries       connect a mention and its denial: "Paris is"
    skipped           between an auxiliary and a denial: "Paris is definitely wrong"
    clause_words      begin a clause, so that an earlier negation ends: "but"
    alternatives      join answers of which one is meant: "or"
    coordinators      join the items of a list: "and", "or"
    pairing           join two answers: "and"
    paired            begin two alternatives: "either"
    hedges            between a joining word and a name: "or perhaps Paris"
    tentative         describe a candidate, not an answer: "a possible candidate"
    openers           begin an answer: "Yes, Paris"
    singular_verbs    follow the subject of a clause: "Rome is large and Paris is the capital"
    not_items         do not begin an item of a list: "Paris, which"
    places            between a place and its region: "Paris in France"
    before_places     before a place: "near Paris"
    copulas           between a subject and an answer: "They are Rome and Paris"
    joints            between two answers in one clause: "Rome then Paris"
    prepositions      between two names, or between a verb and a name: "Rome with Paris"
    comparatives      exclude the number after them: "before 1900"
    failures          deny what is before them without an auxiliary: "Paris fails"
    mentioning        verbs whose object is only mentioned: "I considered Paris"
    mentioned         predicates of what is only mentioned: "Paris was considered"
    prepositions_of_reports  between such verbs and a mention: "I thought of Paris"
    reporters         subjects of the opinion of others: "Some say it is Paris"
    repetitions       after "is mentioned": "several times"
    reporting         verbs of the opinion of others
    opposites         answers of which only one can be correct: "yes", "no"
    pronouns          subjects that refer to the sentence before: "He was Greek"
    naming            before a name that has other forms: "known as"
    verb_prepositions after a verb that begins a predicate: "raised in"
    defeating         precede the one that loses: "France beat Spain"
    locating          precede a place: "situated in Paris"
    specifying        precede further words about a mention: "in France, especially in Paris"
    open_ended        after "or", begin no other answer: "5 or more"
    universal         before an exception: "all cities but Paris"
    relatives         name a person or place by a relation to another: "the wife of Orwell"
    frames            around an answer: "The final answer is Rome"
    """

    negations: Words
    denials: Words
    asserting: Words
    denied_denials: Words
    judged: Words
    auxiliaries: Words
    skipped: Words
    clause_words: Words
    alternatives: Words
    coordinators: Words
    pairing: Words
    paired: Words
    hedges: Words
    tentative: Words
    openers: Words
    singular_verbs: Words
    not_items: Words
    places: Words
    before_places: Words
    copulas: Words = frozenset()
    joints: Words = frozenset()
    prepositions: Words = frozenset()
    comparatives: Words = frozenset()
    failures: Words = frozenset()
    mentioning: Words = frozenset()
    mentioned: Words = frozenset()
    prepositions_of_reports: Words = frozenset()
    reporters: Words = frozenset()
    repetitions: Words = frozenset()
    reporting: Words = frozenset()
    opposites: dict[str, str] = {}
    pronouns: Words = frozenset()
    naming: Words = frozenset()
    verb_prepositions: Words = frozenset()
    defeating: Words = frozenset()
    locating: Words = frozenset()
    specifying: Words = frozenset()
    open_ended: Words = frozenset()
    universal: Words = frozenset()
    relatives: Words = frozenset()
    frames: Words = frozenset()


class RefusalWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words of refusals.

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


class QuestionWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words that show how many answers a question asks for.

    interrogatives  begin a question: "which cities", "name three cities"
    persons         interrogatives that no noun follows: "who"
    plural_verbs    begin the predicate of a question for several answers: "who were"
    auxiliaries     follow a plural in a question for several answers: "which cities do"
    determiners     between an interrogative and a noun: "what are the three books"
    collections     nouns and verbs of several things: "the members of the band", "who starred in"
    several_verbs   are in a question for several answers: "where was it filmed"
    naming          end a question for one name: "what are such towns called"
    times           are in a question for a time: "when was it built"
    winning         are in a question for a winner: "who won the final"
    parts_of_dates  are in a question for a day or a month: "on which day"
    singular        end like a plural, but are none: "what does"
    numbers         number words
    """

    interrogatives: Words = frozenset()
    persons: Words = frozenset()
    plural_verbs: Words = frozenset()
    auxiliaries: Words = frozenset()
    determiners: Words = frozenset()
    collections: Words = frozenset()
    naming: Words = frozenset()
    several_verbs: Words = frozenset()
    times: Words = frozenset()
    parts_of_dates: Words = frozenset()
    winning: Words = frozenset()
    singular: Words = frozenset()
    numbers: dict[str, int] = {}


class Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of one language."""

    name: str
    assertions: AssertionWords
    refusals: RefusalWords
    questions: QuestionWords = QuestionWords()


Glosses = dict[str, list[str]]
"""Words of a language by the English words that the rules read in their place."""


class ForeignLanguage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a language other than English.

    letters         the letters of its script, as the content of a character class
    words           words that the rules read as English words. In a script without spaces they are
                    found anywhere outside of a gold answer. The rules do not read the words of the
                    entry ""
    cues            words that show that a text in Latin letters is in this language
    before, after   words that can be attached to a mention: particles, endings, prefixes. Each is
                    an entry by the English word that the rules read in its place
    joins           words that are attached to the word before a mention: "와" in "로마와 파리"
    clitics         beginnings of words that end with an apostrophe: "l" in "l'Italie"
    endings         endings of cases; a name with another ending is the same name
    spaced          whether there are spaces between words
    commas          commas that also separate clauses (scripts without spaces)
    clause_markers  show that the text between two marks is a clause, not a name (scripts without
                    spaces)
    final_negation  a negation follows what it negates
    refusals        phrases of refusals: "weiß nicht"
    """

    name: str
    letters: str
    words: Glosses
    cues: Words = frozenset()
    before: Glosses = {}
    after: Glosses = {}
    joins: Glosses = {}
    clitics: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    spaced: bool = True
    commas: str = ""
    clause_markers: tuple[str, ...] = ()
    final_negation: bool = False
    refusals: tuple[str, ...] = ()


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Punctuation marks, each field a string of characters.

    opening       can be between a negation and a mention: "not: Paris"
    clause_ends   end a clause
    list_marks    separate the items of a list
    quotes        begin or end a quotation
    questions     end a question
    equivalents   marks of other scripts by the mark that has the same function
    """

    opening: str
    clause_ends: str
    list_marks: str
    quotes: str
    questions: str
    equivalents: dict[str, str]


FOREIGN = ("ar", "de", "es", "fr", "hi", "it", "ja", "ko", "pt", "ru", "th", "zh")
"""The codes of the languages other than English."""


@lru_cache
def english() -> Language:
    """Return the English words by role."""
    return _read("en.json", Language)


@lru_cache
def foreign(code: str) -> ForeignLanguage:
    """Return the words of another language."""
    return _read(f"{code}.json", ForeignLanguage)


@lru_cache
def marks() -> Marks:
    """Return the punctuation marks of all languages."""
    return _read("marks.json", Marks)


@lru_cache
def equivalent_marks() -> dict[int, str]:
    """Return a translation table for the marks of other scripts."""
    return str.maketrans(marks().equivalents)


_Table = TypeVar("_Table")


def _read(name: str, table: type[_Table]) -> _Table:
    content = files(__name__).joinpath(name).read_bytes()
    try:
        return msgspec.json.decode(content, type=table)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{name}: {error}") from None

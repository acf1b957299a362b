"""Words and marks that show whether a text asserts an answer, for example negations.

The words are those of the table `languages/en.json`.
"""

from __future__ import annotations

from rag_rewards.text.languages import english, marks

_WORDS = english().assertions
_MARKS = marks()

TWO_WORD_NEGATIONS = frozenset(
    (first, second)
    for first, _, second in (entry.partition(" ") for entry in _WORDS.negations)
    if second
)
NEGATIONS = frozenset(entry for entry in _WORDS.negations if " " not in entry)
CLAUSE_WORDS = _WORDS.clause_words
ASSERTING = _WORDS.asserting
DENIED_DENIALS = _WORDS.denied_denials
AUXILIARIES = _WORDS.auxiliaries
DENIALS = _WORDS.denials
JUDGED = _WORDS.judged
COORDINATORS = _WORDS.coordinators
PAIRING = _WORDS.pairing
COPULAS = _WORDS.copulas
OPENERS = _WORDS.openers
SINGULAR_VERBS = _WORDS.singular_verbs
ALTERNATIVES = _WORDS.alternatives
HEDGES = _WORDS.hedges
TENTATIVE = _WORDS.tentative
PAIRED = _WORDS.paired
NOT_AN_ITEM = _WORDS.not_items
PLACES = _WORDS.places
BEFORE_PLACE = _WORDS.before_places
SKIPPED = _WORDS.skipped
COMPARATIVES = _WORDS.comparatives
FAILURES = _WORDS.failures
MENTIONED = _WORDS.mentioned
MENTIONING = _WORDS.mentioning
NOBODY = frozenset(("none", "nobody"))
PREPOSITIONS_OF_REPORTS = _WORDS.prepositions_of_reports
REPETITIONS = _WORDS.repetitions
REPORTERS = _WORDS.reporters
REPORTING = _WORDS.reporting
NAMING = _WORDS.naming
RELATIVES = _WORDS.relatives
VERB_PREPOSITIONS = _WORDS.verb_prepositions
DEFEATING = _WORDS.defeating
LOCATING = _WORDS.locating
SPECIFYING = _WORDS.specifying
OPEN_ENDED = _WORDS.open_ended
PRONOUNS = _WORDS.pronouns
SOURCES = english().refusals.sources
UNIVERSAL = _WORDS.universal
OPPOSITES = _WORDS.opposites

PREPOSITIONS = _WORDS.prepositions
JOINTS = _WORDS.joints | PREPOSITIONS
FUNCTION_WORDS = frozenset().union(
    NOT_AN_ITEM,
    AUXILIARIES,
    COORDINATORS,
    ALTERNATIVES,
    HEDGES,
    OPENERS,
    CLAUSE_WORDS,
    PAIRED,
    TENTATIVE,
    _WORDS.frames,
)
OPENS = frozenset(_MARKS.opening)
CLAUSE_ENDS = frozenset(_MARKS.clause_ends)
LIST_MARKS = frozenset(_MARKS.list_marks)
QUOTE = frozenset(_MARKS.quotes)
QUESTION_MARKS = frozenset(_MARKS.questions)
MAX_ITEM_WORDS = 6

"""How certain the rules are about an answer: the first stage of a judge cascade.

Lenient matching (`text.lenient`) decides whether an answer is right. Both matchers together
determine how probable it is that a person accepts the answer:

    probability = 1 / (1 + exp(−Σ_f weight(f)·value(f)))

over the features f of `answer_features`. `text.certainty_weights` contains the weights, which
`benchmarks/certainty.py` fits to answers with human verdicts. If the certainty,
max(probability, 1 − probability), is below a threshold, a judge decides.

An answer that contains a gold answer without asserting it ("Paris or Rome", "not Paris") has a
certainty of 0.5: a policy can learn to write such mentions, although most of them are right in
natural answers. Time and memory are linear in the length of the text. At most 100,000 characters
are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from rag_rewards.text.certainty_weights import WEIGHTS
from rag_rewards.text.lenient import LONGEST_TEXT, LenientGold, LenientMatch, LenientText
from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import StrictText
from rag_rewards.text.word_forms import plain_words, stem

_UNCERTAIN = 0.5
_MOST_WORDS = 400  # words that the length of an answer counts
_MOST_ALIASES, _MOST_GOLD_WORDS, _MOST_NAMES = 8, 10, 50
_LONGEST_QUESTION, _LONGEST_COMPARED, _LONGEST_FORM = 10_000, 2_000, 100  # characters

_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_YEAR = re.compile(r"\b\d{4}\b")
_LATER_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
# Words of an answer that expresses doubt, or that nothing was found.
_DOUBT = re.compile(
    r"\b(?:sorry|apologi[sz]e|unknown|unclear|unable|cannot|not (?:sure|certain|clear|able|"
    r"available|provided|specified|mentioned|possible)|no (?:information|specific|official|"
    r"definitive|record)|as an ai|as of my|(?:do|does|did|ca|could)(?:n't| not))\b"
)
_NORMALIZE = Unicode()


class RuleVerdict(NamedTuple):
    """The verdict of the rules on an answer.

    probability  estimated probability that a person accepts the answer, 0 to 1 in thousandths
    rule         `exact`, or the rule of lenient matching
    is_matched   whether that rule accepts the answer
    is_asserted  whether strict matching accepts the answer
    is_blocked   whether the text contains a gold answer without asserting it
    """

    probability: float
    rule: str
    is_matched: bool
    is_asserted: bool
    is_blocked: bool

    @property
    def is_right(self) -> bool:
        """Whether the answer is more probably right than wrong."""
        return self.probability >= 0.5

    @property
    def certainty(self) -> float:
        """The probability of the more probable verdict, 0.5 to 1."""
        # A mention without an assertion, or matchers that contradict each other.
        if self.is_blocked or (self.is_asserted and not self.is_matched):
            return _UNCERTAIN
        return max(self.probability, round(1.0 - self.probability, 3))


def rule_verdict(text: str, aliases: Sequence[str], question: str = "") -> RuleVerdict:
    """Return the verdict of the rules on an answer.

    >>> for text in ("Paris", "It was in Paris.", "It was in Paris or Rome.", "It was in Rome."):
    ...     verdict = rule_verdict(text, ["Paris"], "Where was it?")
    ...     print(verdict.is_right, verdict.certainty >= 0.9, verdict.rule)
    True True exact
    True True all words
    True False all words
    False True words missing
    """
    return rule_verdicts(text, [aliases], question)[0]


def rule_verdicts(
    text: str, required: Sequence[Sequence[str]], question: str = ""
) -> list[RuleVerdict]:
    """Return the verdict on each required answer. The text is read once."""
    answer = _Answer(text, required, question[:_LONGEST_QUESTION])
    return [answer.verdict(tuple(aliases)) for aliases in required]


def answer_features(
    text: str, aliases: Sequence[str], question: str = ""
) -> dict[str, float] | None:
    """Return the features of an answer, or None if it equals an alias."""
    answer = _Answer(text, [aliases], question[:_LONGEST_QUESTION])
    comparison = answer.compare(tuple(aliases))
    return None if comparison.is_exact else comparison.features()


class _Answer:
    """An answer that both matchers have read."""

    def __init__(self, text: str, required: Sequence[Sequence[str]], question: str) -> None:
        text = text[:LONGEST_TEXT]
        self.text, self.question = text, question
        self.lenient = LenientText(text)
        self.strict = StrictText(text, _NORMALIZE, required, question=question)
        self.normal = f" {_NORMALIZE(text)} "
        self.words = f" {' '.join(self.lenient.words)} "

    def verdict(self, aliases: tuple[str, ...]) -> RuleVerdict:
        compared = self.compare(aliases)
        if compared.is_exact:
            return RuleVerdict(1.0, "exact", True, True, False)
        probability = probability_of(compared.features())
        match, is_asserted = compared.match, compared.is_asserted
        return RuleVerdict(probability, match.rule, bool(match), is_asserted, compared.is_blocked)

    def compare(self, aliases: tuple[str, ...]) -> _Comparison:
        gold = LenientGold.of(aliases)
        match = self.lenient.find(gold, self.question)
        is_asserted = self.strict.contains(aliases)
        forms = tuple(form for form in map(_normal, aliases) if form)
        contains = any(f" {form} " in self.normal for form in forms)
        # The normalizer joins "Paris/Rome" to one word. Lenient matching reads two words.
        contains = contains or any(f" {words} " in self.words for words in _words(aliases))
        return _Comparison(
            self.text,
            self.normal,
            aliases,
            forms,
            self.question,
            match,
            is_exact=bool(match) and is_asserted and self.normal.strip() in forms,
            is_asserted=is_asserted,
            is_blocked=contains and not is_asserted,
            is_substring=any(form in self.normal for form in forms),
            is_later=bool(match) and not self._begins_with(gold),
        )

    def _begins_with(self, gold: LenientGold) -> bool:
        """Return whether the first sentence contains the answer."""
        first, *others = _SENTENCE_END.split(self.text.strip(), maxsplit=1)
        return not others or bool(LenientText(first).find(gold, self.question))


@dataclass(frozen=True)
class _Comparison:
    """The comparison of an answer with the aliases of a gold answer.

    normal, forms  the normalized answer, and the normalized aliases that are not empty
    match         lenient match
    is_exact      the answer equals an alias
    is_asserted   strict matching accepts the answer
    is_blocked    the answer contains an alias, but does not assert it
    is_substring  the answer contains an alias, perhaps within a word
    is_later      the answer matches, but its first sentence does not
    """

    text: str
    normal: str
    aliases: tuple[str, ...]
    forms: tuple[str, ...]
    question: str
    match: LenientMatch
    is_exact: bool
    is_asserted: bool
    is_blocked: bool
    is_substring: bool
    is_later: bool

    def features(self) -> dict[str, float]:
        """Return the features by name."""
        if self.match:
            return self._features_of_match()
        return self._features_of_missing()

    def _features_of_match(self) -> dict[str, float]:
        rule = self.match.rule if self.match.rule in ("all words", "most words") else "other form"
        return {
            rule: 1.0,
            "asserted": float(self.is_asserted),
            "asserted, length": self._length * self.is_asserted,
            "matched, coverage": self.match.coverage,
            "matched, gold words": self._gold_length,
            "matched, later": float(self.is_later),
            "asserted, later": float(self.is_later and self.is_asserted),
            "matched, in question": self._share_in_question,
            "matched, doubt": self._doubt,
        }

    def _features_of_missing(self) -> dict[str, float]:
        alias = self._alias
        is_name = alias[:1].isupper() and not any(map(str.isdecimal, alias))
        is_year = bool(_YEAR.search(alias))
        return {
            "words missing" if self.match.rule == "no words" else self.match.rule: 1.0,
            "missing, substring": float(self.is_substring),
            "missing, nothing found": float(not self.match.coverage),
            "missing, length": self._length,
            "missing, similarity": self._similarity,
            "missing, gold words": self._gold_length,
            "missing, aliases": float(min(len(self.aliases), _MOST_ALIASES)),
            "missing, name": float(is_name),
            "missing, other names": self._other_names * is_name,
            "missing, year": float(is_year),
            "missing, other year": float(is_year and bool(_YEAR.search(self.text))),
            "missing, in question": self._share_in_question,
            "missing, doubt": self._doubt,
        }

    @property
    def _alias(self) -> str:
        return self.match.alias or (self.aliases[0] if self.aliases else "")

    @cached_property
    def _gold_words(self) -> list[str]:
        return plain_words(self._alias)

    @property
    def _length(self) -> float:
        return math.log1p(min(len(self.text.split()), _MOST_WORDS))

    @property
    def _gold_length(self) -> float:
        return float(min(len(self._gold_words), _MOST_GOLD_WORDS))

    @property
    def _similarity(self) -> float:
        """Similarity of the most similar alias to the part of the answer that is most like it."""
        from rapidfuzz import fuzz

        text = self.normal[:_LONGEST_COMPARED]
        forms = [form[:_LONGEST_FORM] for form in self.forms[:_MOST_ALIASES]]
        return max((fuzz.partial_ratio(form, text) for form in forms), default=0.0) / 100

    @property
    def _share_in_question(self) -> float:
        """Share of the words of the gold answer that the question contains."""
        stems = _stems(self.question)
        return sum(stem(word) in stems for word in self._gold_words) / (len(self._gold_words) or 1)

    @property
    def _doubt(self) -> float:
        return float(bool(_DOUBT.search(self.text.lower().replace("’", "'"))))

    @property
    def _other_names(self) -> float:
        """Logarithm of the number of capitalized words that the question does not contain."""
        stems = _stems(self.question)
        names = [name for name in _LATER_NAME.findall(self.text) if stem(name.lower()) not in stems]
        return math.log1p(min(len(names), _MOST_NAMES))


def probability_of(values: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """Return the probability that a person accepts an answer with these features.

    Features without a weight have no effect. The probability is rounded to thousandths.
    """
    total = math.fsum(weights.get(name, 0.0) * value for name, value in values.items())
    return round(1.0 / (1.0 + math.exp(-total)), 3)


@lru_cache(maxsize=4096)
def _normal(alias: str) -> str:
    return _NORMALIZE(alias)


@lru_cache(maxsize=4096)
def _words(aliases: tuple[str, ...]) -> list[str]:
    """Return the words of each alias that has words."""
    return [" ".join(words) for words in map(plain_words, aliases) if words]


@lru_cache(maxsize=4096)
def _stems(question: str) -> frozenset[str]:
    return frozenset(map(stem, plain_words(question)))

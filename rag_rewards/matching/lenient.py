"""Lenient matching: the best guess whether a free-form answer contains a gold answer.

`matching.decide` decides first. If it leaves the answer undecided, rules guess: they read partial
names, coarser dates, plurals, words in another order, and words without a space between them. They
ignore negation and alternatives, so that a policy could exploit them: they are for evaluation only.

For each gold answer, the coverage is

    coverage = Σ_{w found} weight(w) / Σ_w weight(w)

over the words w of the gold answer. A word of the question weighs 0.2, because an answer need not
repeat it. A word beside a number weighs 0.3, and a middle name 0.4. Each other word weighs 1. The
answer matches if the coverage is at least 0.5, every number is found, and no other name is in the
place of the missing words. Time and memory are linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from rag_rewards.matching.decide import decide
from rag_rewards.matching.question import stem
from rag_rewards.matching.values import ordinal_of
from rag_rewards.text import quantities
from rag_rewards.text.normalize import MARKER, fold
from rag_rewards.text.quantities import MONTHS

LONGEST_TEXT = 100_000  # characters
_LONGEST_QUESTION = 10_000  # characters that are read
THRESHOLD = 0.5
_QUESTION_WORD, _BESIDE_NUMBER, _MIDDLE_NAME = 0.2, 0.3, 0.4
_MOST_PLACES = 64  # occurrences of a name that are read
_MOST_ALIKE = 32  # words with the same first four letters that are compared

Rule = Literal[
    "right", "wrong", "all words", "written together", "coarser date", "most words", "no words",
    "words missing", "number missing", "other name",
]  # fmt: skip
MATCHING: frozenset[Rule] = frozenset(
    ("right", "all words", "written together", "coarser date", "most words")
)


class LenientMatch(NamedTuple):
    """The result of a comparison.

    rule      `right` or `wrong` by `matching.decide`, or the rule that guessed
    alias     the gold answer with the greatest coverage, or None if no rule guessed
    coverage  0 to 1
    """

    rule: Rule
    alias: str | None = None
    coverage: float = 0.0

    def __bool__(self) -> bool:
        return self.rule in MATCHING


def lenient_match(text: str, aliases: Sequence[str], question: str = "") -> LenientMatch:
    """Return whether a free-form answer contains one of the aliases.

    >>> for text, alias in (
    ...     ("It was Wilhelm Röntgen.", "Wilhelm Conrad Röntgen"),
    ...     ("It came out in March 2018.", "March 9, 2018"),
    ...     ("Roughly 1.2 million people.", "1,200,000"),
    ...     ("Venus Williams", "Serena Williams"),
    ...     ("In 1999.", "1998"),
    ... ):
    ...     print(lenient_match(text, [alias]).rule)
    most words
    coarser date
    all words
    other name
    wrong
    """
    return lenient_matches(text, [aliases], question)[0]


def lenient_matches(
    text: str, required: Sequence[Sequence[str]], question: str = ""
) -> list[LenientMatch]:
    """Return the match of a free-form answer with each required answer."""
    decision = decide(text, required, question).value
    if decision != "undecided":
        return [LenientMatch(decision, coverage=float(decision == "right")) for _ in required]
    answer = LenientText(text)
    return [answer.find(lenient_golds(tuple(aliases)), question) for aliases in required]


class LenientText:
    """A text that is read once and then compared with several gold answers."""

    def __init__(self, text: str) -> None:
        text = text[:LONGEST_TEXT]
        self._text = MARKER.sub(" ", text) if "[" in text else text
        # "fromJohn" has no space between two words.
        self._spaced = _LOWER_TO_UPPER.sub(" ", self._text)
        self.words = plain_words(self._spaced)
        self._stems = set(map(stem, self.words))
        if len(self._spaced) > len(self._text):  # "McDonald" has no space either
            self._stems.update(map(stem, plain_words(self._text)))

    def find(self, golds: Sequence[LenientGold], question: str = "") -> LenientMatch:
        """Return the match with the gold answer of greatest coverage, guessed by rules."""
        question_stems = _question_stems(question[:_LONGEST_QUESTION])
        best = LenientMatch("no words")
        for gold in golds:
            rule, coverage = self._compare(gold, question_stems)
            match = LenientMatch(rule, gold.alias, coverage)
            if match:
                return match
            if best.alias is None or match.coverage > best.coverage:
                best = match
        return best

    def _compare(self, gold: LenientGold, question_stems: frozenset[str]) -> tuple[Rule, float]:
        if gold.unspaced:
            is_found = gold.unspaced in self._unspaced
            return "all words" if is_found else "words missing", float(is_found)
        matches = [self._has(word) for word in gold.words]
        if all(matches):
            return "all words", 1.0
        if self._has_together(gold.together):
            return "written together", 1.0
        coverage = gold.coverage(matches, question_stems)
        if gold.date and self._has_coarser(*gold.date):
            return "coarser date", coverage
        missing = [word for word, is_in in zip(gold.words, matches, strict=True) if not is_in]
        if any(map(is_number, missing)):
            return "number missing", coverage
        if coverage < THRESHOLD:
            return "words missing", coverage
        return "other name" if self._has_other_name(gold, matches) else "most words", coverage

    # --- words -----------------------------------------------------------------------------------

    def _has(self, word: str) -> bool:
        """Return whether the text contains a word in a similar form."""
        root = stem(word)
        if root in self._stems:
            return True
        if is_number(word):
            return word in self._glued_years
        return (len(word) > 3 and word in self._pairs) or any(
            is_alike(root, other) for other in self._alike.get(root[:4], ())
        )

    def _has_together(self, word: str) -> bool:
        return word in self._stems or stem(word) in self._stems or word in self._pairs

    @cached_property
    def _pairs(self) -> frozenset[str]:
        """Adjacent words without the space between them."""
        return frozenset(a + b for a, b in zip(self.words, self.words[1:], strict=False))

    @cached_property
    def _alike(self) -> dict[str, list[str]]:
        """The stems by their first four letters."""
        roots = [root for root in dict.fromkeys(map(stem, self.words)) if len(root) >= 4]
        alike: dict[str, list[str]] = {root[:4]: [] for root in roots}
        for root in roots:
            if len(others := alike[root[:4]]) < _MOST_ALIKE:
                others.append(root)
        return alike

    @cached_property
    def _glued_years(self) -> frozenset[str]:
        """Years before a footnote: 1973 in "19731"."""
        return frozenset(word[:4] for word in self.words if _GLUED_YEAR.fullmatch(word))

    @cached_property
    def _unspaced(self) -> str:
        return "".join(fold(self._text).split())

    def _has_coarser(self, month: str, year: str) -> bool:
        """Return whether the text contains the year of a date without another day or month."""
        if year not in self._stems and year not in self._glued_years:
            return False
        places = [i for i, word in enumerate(self.words) if word == month][:_MOST_PLACES]
        if not places:
            return not any(word in MONTHS for word in self.words)
        beside = [self.words[max(at - 1, 0) : at] + self.words[at + 1 : at + 2] for at in places]
        return not any(_DAY.fullmatch(word) for words in beside for word in words)

    # --- names -----------------------------------------------------------------------------------

    def _has_other_name(self, gold: LenientGold, matches: Sequence[bool]) -> bool:
        """Return whether other words are in the place of the missing words.

        "Venus Williams" has another first name than "Serena Williams", and "Oxford Street" another
        name than "Regent Street".
        """
        if len(gold.words) < 2 or gold.has_number:
            return False
        first, last = any(matches[:-1]), matches[-1]
        if last and not first:
            before = [self._cased[at - 1] if at else "" for at in self._places(gold.words[-1])]
            return bool(before) and not any(
                len(word) < 2 or plain(word) in _FUNCTION_WORDS for word in before
            )
        if first and not last and gold.ends_in_name:
            nearest = max(i for i, is_in in enumerate(matches) if is_in)
            places = self._places(gold.words[nearest])
            after = [self._cased[at + 1 : at + 2] for at in places]
            return bool(after) and all(word and word[0][:1].isupper() for word in after)
        return False

    @cached_property
    def _cased(self) -> list[str]:
        return _NAME.findall(self._spaced)

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        positions: dict[str, list[int]] = {}
        for at, word in enumerate(self._cased):
            places = positions.setdefault(stem(plain(word)), [])
            if len(places) < _MOST_PLACES:
                places.append(at)
        return positions

    def _places(self, word: str) -> list[int]:
        return self._positions.get(stem(word), [])


# --- gold answers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LenientGold:
    """One gold answer: its words without function words.

    unspaced  the whole answer, for a script without spaces; else empty
    """

    alias: str
    words: tuple[str, ...]
    unspaced: str = ""

    @property
    def together(self) -> str:
        """All words without spaces, or an empty text if there is only one."""
        return "".join(self.words) if len(self.words) > 1 and len("".join(self.words)) > 2 else ""

    @cached_property
    def has_number(self) -> bool:
        return any(map(is_number, self.words))

    @property
    def ends_in_name(self) -> bool:
        cased = [w for w in _NAME.findall(self.alias) if plain(w) not in _FUNCTION_WORDS]
        return bool(cased) and cased[-1][0].isupper()

    @property
    def date(self) -> tuple[str, str] | None:
        """The month and the year, if the answer is a date with a day."""
        months = [word for word in self.words if word in MONTHS]
        years = [word for word in self.words if _YEAR.fullmatch(word)]
        has_day = any(map(_DAY.fullmatch, self.words))
        return (months[0], years[0]) if months and years and has_day else None

    @cached_property
    def _weights(self) -> list[float]:
        is_name = len(self.words) > 2 and all(w[0].isupper() for w in self.alias.split())
        weights = []
        for i, word in enumerate(self.words):
            is_beside = self.has_number and not is_number(word) and word not in MONTHS
            is_middle = is_name and 0 < i < len(self.words) - 1
            weights.append(
                (_BESIDE_NUMBER if is_beside else 1.0) * (_MIDDLE_NAME if is_middle else 1.0)
            )
        return weights

    def coverage(self, matches: Sequence[bool], question_stems: frozenset[str]) -> float:
        """Return the weight of the words that are found, over the weight of all words."""
        total = covered = 0.0
        for word, weight, is_in in zip(self.words, self._weights, matches, strict=True):
            weight *= _QUESTION_WORD if stem(word) in question_stems else 1.0
            total += weight
            covered += weight * is_in
        return covered / total


@lru_cache(maxsize=4096)
def lenient_golds(aliases: tuple[str, ...]) -> tuple[LenientGold, ...]:
    """Return the aliases of one gold answer, prepared for comparisons.

    An alias may have a remark ("Oasis (band)", "Robert Kennedy, who was a senator"): its head is an
    answer too. An alias that contains all words of another one adds nothing, and part of it would
    be too little ("History of Rome" beside "Rome").
    """
    by_stems: dict[frozenset[str], LenientGold] = {}
    for alias in aliases:
        for head in _heads(alias[:LONGEST_TEXT]):
            if gold := _gold(head, alias):
                roots = frozenset(map(stem, gold.words)) or frozenset([gold.unspaced])
                by_stems.setdefault(roots, gold)
    return tuple(g for roots, g in by_stems.items() if not any(r < roots for r in by_stems))


def _gold(head: str, alias: str) -> LenientGold | None:
    if _UNSPACED.search(head):
        return LenientGold(alias, (), "".join(fold(head).split()))
    words = plain_words(head)
    words = [word for word in words if word not in _FUNCTION_WORDS] or words
    return LenientGold(head, tuple(words)) if words else None


def _heads(alias: str) -> list[str]:
    """Return an alias, the alias without its parentheses, and the alias without its remark."""
    bare = _PARENTHESES.sub(" ", alias).strip()
    head = _REMARK.split(bare, maxsplit=1)[0].strip()
    return [text for text in dict.fromkeys((alias, bare, head)) if text]


_NAME = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+")
_LOWER_TO_UPPER = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PARENTHESES = re.compile(r"\([^()]{0,200}\)")
_REMARK = re.compile(r", (?:who|which|that|in|with|the|a|an|where)\b| as | - ")
_YEAR, _DAY = re.compile(r"\d{4}"), re.compile(r"[0-3]?\d")
_GLUED_YEAR = re.compile(r"(?:1[6-9]|20)\d\d[1-9]\d?")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
)
_FUNCTION_WORDS = frozenset(
    "a an the of in on at by for to and or with from as is was are were be been it its this that "
    "which who whom whose what when where how why did do does s t her his their he she they i you "
    "we my your our not no some any all about per".split()
)


@lru_cache(maxsize=256)
def _question_stems(question: str) -> frozenset[str]:
    return frozenset(map(stem, plain_words(question)))


_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*")
# The vowels of Indic scripts are marks, which are no letters for `re`.
_INDIC = re.compile("[\u0900-\u0dff]")
_INDIC_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u0963\u0971-\u0dff])+|\d+(?:[.,]\d+)*")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f]")
_SHORT_RANGE = re.compile(r"\b(\d\d)(\d\d)\s?[-–—/]\s?(\d\d)\b(?!\d)")
_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th"))


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, with numbers as digits and without accents."""
    text = plain(_SHORT_RANGE.sub(r"\1\2 \1\3", text))  # 1979–80 is 1979 to 1980
    pattern = _WORD if text.isascii() or not _INDIC.search(text) else _INDIC_WORD
    words: list[str] = []
    for word in pattern.findall(text):
        if is_number(word):
            number = word.replace(",", "")
            words.append(number.rstrip("0").rstrip(".") if "." in number else number)
        elif word not in _ORDINAL_ENDINGS or not words or not words[-1].isdecimal():
            word = word.removesuffix("'s")
            value = ordinal_of(word)
            words.append(str(value.number) if value else word)
    return quantities.numbers(words)


def plain(text: str) -> str:
    """Return a text in lower case without accents."""
    text = fold(text)
    return text if text.isascii() else _ACCENT.sub("", unicodedata.normalize("NFD", text))


def is_alike(first: str, second: str) -> bool:
    """Return whether two stems begin alike: "magnetis" and "magnetic", "john" and "johnny"."""
    common = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        common += 1
    longer, shorter = max(len(first), len(second)), min(len(first), len(second))
    if common >= 5 and common >= 0.7 * longer:
        return True
    return common >= 4 and common == shorter and longer - common <= 4


def is_number(word: str) -> bool:
    """Return whether a word begins with a digit."""
    return word[0].isdecimal()

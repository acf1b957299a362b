"""Lenient matching: whether a free-form answer contains a gold answer, perhaps in another form.

The matcher is for evaluation and for the first stage of a judge cascade. It reads partial names,
dates of different granularity, rounded numbers, plurals, words in another order, acronyms and
words without a space between them. It ignores negation and alternatives, so that a policy could
exploit it: as a reward, use `text.strict`.

For each gold answer, the coverage is

    coverage = Σ_{w found} weight(w) / Σ_w weight(w)

over the words w of the gold answer. A word of the question weighs 0.2, because an answer need not
repeat it. A word beside a number weighs 0.3, and a middle name 0.4. Each other word weighs 1. The
answer matches if the coverage is at least 0.5, every number is found, and no other name is in the
place of the missing words.

Time and memory are linear in the length of the text. At most 100,000 characters are read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from rag_rewards.text import quantities
from rag_rewards.text.normalize import MARKER, fold

LONGEST_TEXT = 100_000  # characters
THRESHOLD = 0.5
_QUESTION_WORD, _BESIDE_NUMBER, _MIDDLE_NAME = 0.2, 0.3, 0.4
_MOST_PLACES = 64  # occurrences of a name that are read
_MOST_ALIKE = 32  # words with the same first four letters that are compared

Rule = Literal[
    "all words",
    "written together",
    "acronym",
    "coarser date",
    "most words",
    "no words",
    "words missing",
    "number missing",
    "other name",
]
MATCHING: frozenset[Rule] = frozenset(
    ("all words", "written together", "acronym", "coarser date", "most words")
)


class LenientMatch(NamedTuple):
    """The result of a comparison.

    rule      the rule that decided, see `Rule`
    alias     the gold answer with the greatest coverage, or None if there is none
    coverage  0 to 1
    """

    rule: Rule
    alias: str | None = None
    coverage: float = 0.0

    def __bool__(self) -> bool:
        return self.rule in MATCHING


def lenient_match(text: str, aliases: Iterable[str], question: str = "") -> LenientMatch:
    """Return whether a free-form answer contains one of the aliases.

    >>> for text, alias in (
    ...     ("It was Wilhelm Röntgen.", "Wilhelm Conrad Röntgen"),
    ...     ("It came out in March 2018.", "March 9, 2018"),
    ...     ("Roughly 1.2 million people.", "1,200,000"),
    ...     ("Venus Williams", "Serena Williams"),
    ... ):
    ...     print(lenient_match(text, [alias]).rule)
    most words
    coarser date
    all words
    other name
    """
    return LenientText(text).find(LenientGold.of(aliases), question)


class LenientText:
    """A text that is read once and then compared with several gold answers."""

    def __init__(self, text: str) -> None:
        text = text[:LONGEST_TEXT]
        self._text = MARKER.sub(" ", text) if "[" in text else text
        # "fromJohn" has no space between two words.
        self._spaced = _LOWER_TO_UPPER.sub(" ", self._text)
        self.words = _words(self._spaced)
        self._stems = set(map(stem, self.words))
        if len(self._spaced) > len(self._text):  # "McDonald" has no space either
            self._stems.update(map(stem, _words(self._text)))

    def find(self, gold: LenientGold, question: str = "") -> LenientMatch:
        """Return the match with the gold answer of greatest coverage."""
        asked = _question_stems(question)
        acronyms = self._acronyms - _acronyms(question)
        best = LenientMatch("no words")
        for answer in gold.answers:
            match = self._compare(answer, asked, acronyms)
            if match:
                return match
            if best.alias is None or match.coverage > best.coverage:
                best = match
        return best

    def _compare(self, gold: _Gold, asked: frozenset[str], acronyms: set[str]) -> LenientMatch:
        if gold.unspaced:
            is_found = gold.unspaced in self._unspaced
            return LenientMatch(
                "all words" if is_found else "words missing", gold.alias, float(is_found)
            )
        if gold.acronym in acronyms:
            return LenientMatch("acronym", gold.alias, 1.0)
        found = [self._has(word) for word in gold.words]
        if all(found):
            return LenientMatch("all words", gold.alias, 1.0)
        if gold.together and self._has_together(gold.together):
            return LenientMatch("written together", gold.alias, 1.0)
        coverage = gold.coverage(found, asked)
        if gold.date and self._has_coarser(gold.date):
            return LenientMatch("coarser date", gold.alias, coverage)
        missing = [word for word, is_in in zip(gold.words, found, strict=True) if not is_in]
        if any(map(_is_number, missing)):
            return LenientMatch("number missing", gold.alias, coverage)
        if coverage < THRESHOLD:
            return LenientMatch("words missing", gold.alias, coverage)
        if self._has_other_name(gold, found):
            return LenientMatch("other name", gold.alias, coverage)
        return LenientMatch("most words", gold.alias, coverage)

    # --- words -----------------------------------------------------------------------------------

    def _has(self, word: str) -> bool:
        """Return whether the text contains a word in a similar form."""
        root = stem(word)
        if root in self._stems:
            return True
        if _is_number(word):
            return word in self._glued_years or any(
                _is_rounded(number, word) for number in self._numbers
            )
        return (len(word) > 3 and word in self._pairs) or any(
            _is_alike(root, other) for other in self._alike.get(root[:4], ())
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
        alike: dict[str, list[str]] = {}
        for root in dict.fromkeys(map(stem, self.words)):
            if len(root) >= 4:
                others = alike.setdefault(root[:4], [])
                if len(others) < _MOST_ALIKE:
                    others.append(root)
        return alike

    @cached_property
    def _numbers(self) -> list[str]:
        numbers = dict.fromkeys(word for word in self.words if _is_number(word))
        return list(numbers)[:_MOST_PLACES]

    @cached_property
    def _glued_years(self) -> frozenset[str]:
        """Years before a footnote: 1973 in "19731"."""
        return frozenset(word[:4] for word in self.words if _GLUED_YEAR.fullmatch(word))

    @cached_property
    def _unspaced(self) -> str:
        return "".join(fold(self._text).split())

    @cached_property
    def _acronyms(self) -> set[str]:
        return _acronyms(self._text)

    # --- dates -----------------------------------------------------------------------------------

    def _has_coarser(self, date: _Date) -> bool:
        """Return whether the text contains the year of a date without another day or month."""
        if date.year not in self._stems and date.year not in self._glued_years:
            return False
        places = [i for i, word in enumerate(self.words) if word == date.month][:_MOST_PLACES]
        if not places:
            return not any(word in quantities.MONTHS for word in self.words)
        return not any(
            _DAY.fullmatch(word)
            for at in places
            for word in (*self.words[max(at - 1, 0) : at], *self.words[at + 1 : at + 2])
        )

    # --- names -----------------------------------------------------------------------------------

    def _has_other_name(self, gold: _Gold, found: Sequence[bool]) -> bool:
        """Return whether other words are in the place of the missing words.

        "Venus Williams" has another first name than "Serena Williams", and "Oxford Street" another
        name than "Regent Street".
        """
        if len(gold.words) < 2 or not gold.is_plain:
            return False
        first, last = any(found[:-1]), found[-1]
        if last and not first:
            before = [self._cased[at - 1] if at else "" for at in self._places(gold.words[-1])]
            return bool(before) and not any(_may_precede(word) for word in before)
        if first and not last and gold.ends_in_name:
            nearest = max(i for i, is_in in enumerate(found) if is_in)
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
            places = positions.setdefault(stem(_plain(word)), [])
            if len(places) < _MOST_PLACES:
                places.append(at)
        return positions

    def _places(self, word: str) -> list[int]:
        return self._positions.get(stem(word), [])


# --- gold answers --------------------------------------------------------------------------------


class _Date(NamedTuple):
    month: str
    year: str


@dataclass(frozen=True)
class _Gold:
    """One gold answer: its words without function words, and other forms of it.

    unspaced  the whole answer, for a script without spaces; else empty
    together  all words without spaces, for two or more words; else empty
    """

    alias: str
    words: tuple[str, ...]
    acronym: str
    unspaced: str

    @cached_property
    def together(self) -> str:
        joined = "".join(self.words)
        return joined if len(self.words) > 1 and len(joined) > 2 else ""

    @cached_property
    def is_plain(self) -> bool:
        """Whether the answer contains no number."""
        return not any(map(_is_number, self.words))

    @cached_property
    def ends_in_name(self) -> bool:
        written = [w for w in _NAME.findall(self.alias) if _plain(w) not in _FUNCTION_WORDS]
        return bool(written) and written[-1][0].isupper()

    @cached_property
    def date(self) -> _Date | None:
        """The month and the year, if the answer is a date with a day."""
        months = [word for word in self.words if word in quantities.MONTHS]
        years = [word for word in self.words if _YEAR.fullmatch(word)]
        days = [word for word in self.words if _DAY.fullmatch(word)]
        return _Date(months[0], years[0]) if months and years and days else None

    @cached_property
    def _weights(self) -> tuple[float, ...]:
        is_name = len(self.words) > 2 and all(w[0].isupper() for w in self.alias.split() if w)
        weights = []
        for i, word in enumerate(self.words):
            weight = 1.0
            if not self.is_plain and not _is_number(word) and word not in quantities.MONTHS:
                weight *= _BESIDE_NUMBER
            if is_name and 0 < i < len(self.words) - 1:
                weight *= _MIDDLE_NAME
            weights.append(weight)
        return tuple(weights)

    def coverage(self, found: Sequence[bool], asked: frozenset[str]) -> float:
        """Return the weight of the words that are found, over the weight of all words."""
        total = covered = 0.0
        for word, weight, is_in in zip(self.words, self._weights, found, strict=True):
            weight *= _QUESTION_WORD if stem(word) in asked else 1.0
            total += weight
            covered += weight * is_in
        return covered / total


@dataclass(frozen=True)
class LenientGold:
    """The aliases of one gold answer, prepared for comparisons."""

    answers: tuple[_Gold, ...]

    @classmethod
    def of(cls, aliases: Iterable[str]) -> LenientGold:
        """Prepare aliases.

        An alias may have a remark ("Oasis (band)", "Robert Kennedy, who was a senator"): its head
        is an answer too. An alias that contains all words of another one adds nothing, and part
        of it would be too little ("History of Rome" beside "Rome").
        """
        return _prepare(tuple(aliases))


@lru_cache(maxsize=4096)
def _prepare(aliases: tuple[str, ...]) -> LenientGold:
    by_stems: dict[frozenset[str], _Gold] = {}
    for alias in aliases:
        for head in _heads(alias[:LONGEST_TEXT]):
            gold = _gold(head, alias)
            if gold is not None:
                roots = frozenset(map(stem, gold.words)) or frozenset([gold.unspaced])
                by_stems.setdefault(roots, gold)
    golds = [g for roots, g in by_stems.items() if not any(r < roots for r in by_stems)]
    return LenientGold(tuple(golds))


def _gold(head: str, alias: str) -> _Gold | None:
    if _UNSPACED.search(head):
        return _Gold(alias, (), "", "".join(fold(head).split()))
    words = _words(head)
    words = [word for word in words if word not in _FUNCTION_WORDS] or words
    if not words:
        return None
    capitals = "".join(_CAPITAL.findall(head))
    return _Gold(head, tuple(words), capitals if len(capitals) > 1 else "", "")


def _heads(alias: str) -> list[str]:
    """Return an alias, the alias without its parentheses, and the alias without its remark."""
    bare = _PARENTHESES.sub(" ", alias).strip()
    head = _REMARK.split(bare, maxsplit=1)[0].strip()
    return [text for text in dict.fromkeys((alias, bare, head)) if text]


# --- words ---------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*")
# The vowels of Indic scripts are marks, which are no letters for `re`.
_INDIC = re.compile("[\u0900-\u0dff]")
_INDIC_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u0963\u0971-\u0dff])+|\d+(?:[.,]\d+)*")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f]")
_NAME = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+")
_DIGITS_AND_LETTERS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_LOWER_TO_UPPER = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHORT_RANGE = re.compile(r"\b(\d\d)(\d\d)\s?[-–—/]\s?(\d\d)\b(?!\d)")
_PARENTHESES = re.compile(r"\([^()]{0,200}\)")
_REMARK = re.compile(r", (?:who|which|that|in|with|the|a|an|where)\b| as | - ")
_CAPITAL = re.compile(r"\b[A-Z]")
_ACRONYM = re.compile(r"\b[A-Z]{2,6}\b")
_GLUED_YEAR = re.compile(r"(?:1[6-9]|20)\d{3,4}")
_YEAR = re.compile(r"\d{4}")
_DAY = re.compile(r"[0-3]?\d")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
)
_FUNCTION_WORDS = frozenset(
    "a an the of in on at by for to and or with from as is was are were be been it its this that "
    "which who whom whose what when where how why did do does s t her his their he she they i you "
    "we my your our not no some any all about per".split()
)
_TITLES = frozenset(
    "mr mrs ms dr sir lord lady saint st king queen prince princess president prime minister "
    "emperor pope captain general professor".split()
)
_ORDINALS = {
    word: str(value)
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth "
        "twentieth".split(),
        start=1,
    )
}
_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th"))


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case, with numbers as digits and without accents."""
    text = _plain(_SHORT_RANGE.sub(r"\1\2 \1\3", text))  # 1979–80 is 1979 to 1980
    pattern = _WORD if text.isascii() or not _INDIC.search(text) else _INDIC_WORD
    words: list[str] = []
    for word in pattern.findall(_DIGITS_AND_LETTERS.sub(" ", text)):
        if word[0].isdigit():
            number = word.replace(",", "")
            words.append(number.rstrip("0").rstrip(".") if "." in number else number)
        elif word not in _ORDINAL_ENDINGS or not words or not words[-1].isdigit():
            word = word.removesuffix("'s")
            words.append(_ORDINALS.get(word, word))
    return quantities.numbers(words)


def _plain(text: str) -> str:
    """Return a text in lower case without accents."""
    text = fold(text)
    if text.isascii():
        return text
    split = unicodedata.normalize("NFD", text)
    return _ACCENT.sub("", split)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without the ending of a plural, a participle or a demonym.

    >>> [stem(word) for word in ("vesicles", "countries", "painted", "colombian")]
    ['vesicl', 'country', 'paint', 'colomb']
    """
    if len(word) > 4:
        for ending, replacement in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
            if word.endswith(ending) and not word.endswith("ss"):
                word = word.removesuffix(ending) + replacement
                break
        for ending in ("ing", "ed", "ian", "ean", "an", "ish", "ese", "ly", "e"):
            if word.endswith(ending) and len(word) - len(ending) >= 4:
                return word.removesuffix(ending)
    return word


def _is_alike(first: str, second: str) -> bool:
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


def _is_number(word: str) -> bool:
    return word[0].isdigit()


def _is_rounded(number: str, gold: str) -> bool:
    """Return whether two numbers agree in the digits of the rounder one, at least three.

    Years are not rounded.
    """
    if _YEAR.fullmatch(number) or _YEAR.fullmatch(gold) or max(len(number), len(gold)) > 30:
        return False
    digits = min(_significant(number), _significant(gold))
    return digits >= 3 and f"{float(number):.{digits}g}" == f"{float(gold):.{digits}g}"


def _significant(number: str) -> int:
    digits = number.replace(".", "").lstrip("0")
    return len(digits if "." in number else digits.rstrip("0"))


def _may_precede(word: str) -> bool:
    """Return whether a word before a last name is not another first name."""
    plain = _plain(word)
    return len(word) < 2 or plain in _FUNCTION_WORDS or plain in _TITLES


def _acronyms(text: str) -> set[str]:
    return set(_ACRONYM.findall(text.replace(".", "")))


@lru_cache(maxsize=4096)
def _question_stems(question: str) -> frozenset[str]:
    return frozenset(map(stem, _words(question[:LONGEST_TEXT])))

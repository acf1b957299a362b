"""The words of a question, which an answer may repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

from rag_rewards.matching.reading import read_words
from rag_rewards.matching.tables import Tables, languages_of, tables
from rag_rewards.matching.values import Word, unit_of
from rag_rewards.text.normalize import fold

_LONGEST_QUESTION = 2_000  # characters that are read
_LONGEST_CANDIDATE = 4  # words
_COMMAS = frozenset((",", "、", "،", ":"))
_DAYS = frozenset("day date month birthday birthdate tag datum jour fecha día data giorno".split())
_DETERMINERS = frozenset(
    "which what whose welche welchem welchen welcher welches quel quelle quels quelles qué quale "
    "quali qual quais que welk welke jaki jaka jakie która które który hangi какой какая какое "
    "какие каком какую".split()
)
_PERSONS = frozenset(("who", "whom", "whose"))
_WORKS = frozenset(
    "film movie novel book song album single series show band play opera game title musical poem "
    "painting".split()
)
"""Words of questions for names, in which "Aliens" is not the plural of "Alien"."""
_SUPPORT = frozenset(("do", "does", "did", "was", "were"))
_FIXED_ORDER = frozenset(("en", "de", "fr", "es", "it", "pt", "nl"))
EXTENDERS = frozenset(
    "airport avenue bay beach bridge castle church city college county court cup district era "
    "hall hotel house island islands kingdom lake mount mountain museum palace park prize "
    "province republic river road school sea son square stadium state station street theater "
    "theorem tower town university valley war".split()
)
"""Words that extend the name before them also without a capital: "Kansas city"."""


class Question:
    """A question that is read once."""

    def __init__(self, text: str) -> None:
        self.folded = fold(text)
        self.words = read_words(text)
        self.languages = languages_of([word.folded for word in self.words])
        self.role = tables(self.languages)
        """The words of its languages by role."""
        self._stems = [stem_of(word) for word in self.words]
        self.stems = frozenset(self._stems) | {stem(word.key) for word in self.words}
        """The stems of its words."""

    def has(self, word: Word) -> bool:
        """Return whether the question contains a word with the same stem."""
        return stem_of(word) in self.stems

    @cached_property
    def capitals(self) -> frozenset[str]:
        """The stems of the words that are parts of names."""
        pairs = zip(self.words[1:], self._stems[1:], strict=True)
        return frozenset(stem for word, stem in pairs if word.is_capital)

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The stems of adjacent words."""
        return frozenset(zip(self._stems, self._stems[1:], strict=False))

    @cached_property
    def has_fixed_order(self) -> bool:
        """Whether the order of words shows who does what, as in most European languages."""
        letter = next(filter(str.isalpha, self.folded), "")
        is_fixed = letter < "\u0370" and (not self.languages or self.languages & _FIXED_ORDER)
        return bool(is_fixed) and not self._asks_for_circumstance

    @cached_property
    def _asks_for_circumstance(self) -> bool:
        """Whether it asks for a place or time: "where", "in which city"."""
        role = self.role
        at = next((at for at, w in enumerate(self.words) if w.folded in role.asking), 0)
        is_adverb = bool(self.words) and self.words[at].folded in role.adverbs
        return is_adverb or (at == 1 and self.words[0].folded in role.function)

    @cached_property
    def objects(self) -> dict[tuple[str, ...], str]:
        """For each word, and each word with a preposition, the stem of the name after it."""
        return dict(self._objects())

    def _objects(self) -> Iterator[tuple[tuple[str, ...], str]]:
        bare = self._without_articles
        for before, at in pairwise(bare):
            is_type = self.words[before].key in self.types
            if self._is_content(at) and self._is_content(before) and not is_type:
                yield (self._stems[before],), self._stems[at]
        for first, middle, at in zip(bare, bare[1:], bare[2:], strict=False):
            preposition = self.words[middle].folded
            is_relation = preposition in self.role.relations
            if is_relation and self._is_content(at) and self._is_content(first):
                yield (self._stems[first], preposition), self._stems[at]

    @cached_property
    def subjects(self) -> frozenset[str]:
        """The stems of the words that follow a name which is not what the question asks for."""
        if self.languages <= {"en"} and _SUPPORT.isdisjoint([w.folded for w in self.words]):
            return frozenset()
        pairs = pairwise(self._without_articles)
        return frozenset(
            form
            for before, at in pairs
            for form in (self._stems[at], stem(self.words[at].key))
            if self._is_content(at)
            and self._is_content(before)
            and not self._is_type(before)
            and self.words[min(at + 1, len(self.words) - 1)].folded not in self.role.agents
        )

    @property
    def _without_articles(self) -> list[int]:
        articles = self.role.articles
        return [at for at, word in enumerate(self.words) if word.folded not in articles]

    def _is_content(self, at: int) -> bool:
        word, role = self.words[at], self.role
        is_empty = word.is_sign or word.folded in role.function or word.folded in role.articles
        is_empty |= word.folded in role.joining or word.folded in role.alternatives
        return not is_empty and word.folded not in role.asking | role.auxiliaries

    def _is_type(self, at: int) -> bool:
        """Return whether a word belongs to what the question asks for: "city" in "which city"."""
        positions = range(at, max(at - _LONGEST_CANDIDATE, 0) - 1, -1)
        first = next((p for p in positions if not self._is_content(p)), positions[-1])
        return self.words[first].folded in self.role.asking

    @cached_property
    def types(self) -> frozenset[str]:
        """The nouns after the words that ask: "film" in "which 1979 Disney film"."""
        is_german = "de" in self.languages  # all its nouns have capitals
        words = [w for w in self.words if w.value is None and (is_german or not w.is_capital)]
        return frozenset(
            word.key
            for asking, word in pairwise([*self.words[:1], *words])
            if asking.folded in _DETERMINERS and not word.folded.endswith(("s", "ed"))
        )

    @cached_property
    def asks_for_name(self) -> bool:
        """Whether it asks for a person or a work, whose name has no plural."""
        asking = [at for at, word in enumerate(self.words) if word.folded in _DETERMINERS]
        near = [word for at in asking for word in self.words[at : at + 4]]
        works = any(word.folded in _WORKS for word in near)
        return works or any(word.folded in _PERSONS for word in self.words)

    @cached_property
    def prepositions(self) -> frozenset[str]:
        """The words before the words that ask: "by" in "by what percentage"."""
        return frozenset(
            word.folded
            for word, asking in pairwise(self.words)
            if asking.folded in self.role.asking
        )

    @cached_property
    def commas(self) -> frozenset[tuple[str, str]]:
        """The stems of words that a comma separates: "Hawkins, Indiana"."""
        pairs = zip(self._stems, self._stems[1:], self.words[1:], strict=False)
        return frozenset((one, other) for one, other, word in pairs if word.separator == ",")

    def has_doer(self, word: Word) -> bool:
        """Return whether a word is the noun for who does what it asks: "painter"."""
        root, ending = word.folded[:-2], word.folded[-2:]
        if ending not in ("er", "or") or len(root) < 3:
            return False
        return not self.stems.isdisjoint(
            (root, stem(root), root[:-1] if root[-1] == root[-2] else root)
        )

    @cached_property
    def units(self) -> frozenset[str]:
        """The units that it names."""
        return frozenset(filter(None, map(unit_of, self.words)))

    @cached_property
    def asks_for_day(self) -> bool:
        """Whether it asks for a day or a month."""
        return any(word.folded in _DAYS for word in self.words)

    def candidates(self, gold: frozenset[str]) -> frozenset[str]:
        """Return the words of the names that it offers beside gold answers.

        These are alternatives, and the other names of a list that contains a gold answer.
        """
        if not self._lists:
            return frozenset()
        offered = [
            names for names, is_choice in self._lists if is_choice or not gold.isdisjoint(names)
        ]
        return frozenset[str]().union(*offered) - gold

    @cached_property
    def _lists(self) -> list[tuple[set[str], bool]]:
        """The keys of the names of each list, and whether "or" joins them."""
        lists: list[tuple[set[str], bool]] = []
        end, last = -1, len(self.words) - 1
        for at, word in enumerate(self.words):
            is_choice = is_alternative(self.words, at, self.role)
            is_joint = is_choice or word.folded in self.role.joining
            if not at or not (is_joint or word.separator in _COMMAS):
                continue
            start = at + 1 if is_joint else at
            names, length = _name(self.words[start:], self.role)
            if start > end + 1 or not lists:
                is_alike = self.words[at - 1].is_capital == self.words[min(start, last)].is_capital
                left = self.words[:at] if is_alike else []
                before = _name(left, self.role, is_last=True)[0]
                if left and not left[-1].is_capital:
                    before = before[: max(len(names), 1)]  # "is a whale a fish or a mammal"
                is_comparative = len(before) == 1 and before[0].endswith("er") and not is_joint
                lists.append((set() if is_comparative else set(before), False))
            lists[-1][0].update(names)
            lists[-1] = lists[-1][0], lists[-1][1] or is_choice
            end = start + length
        return lists

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of its words."""
        return frozenset(word.key for word in self.words)


def is_alternative(words: Sequence[Word], at: int, role: Tables) -> bool:
    """Return whether a word means "or". The Portuguese article "o" does not."""
    word = words[at]
    if word.folded not in role.alternatives or word.folded not in role.articles:
        return word.folded in role.alternatives
    if not 0 < at < len(words) - 1:
        return False
    before, after = words[at - 1], words[at + 1]
    return before.folded not in role.function and before.is_capital == after.is_capital


def _name(words: Sequence[Word], role: Tables, *, is_last: bool = False) -> tuple[list[str], int]:
    """Return the keys of the name that begins or ends a sequence of words, and its length."""
    function = role.function
    ordered = words[: -_LONGEST_CANDIDATE - 3 : -1] if is_last else words[: _LONGEST_CANDIDATE + 2]
    keys: list[str] = []
    length = 0
    is_capital = bool(ordered) and ordered[0].is_capital
    for word in ordered:
        is_other = word.is_sign or (is_capital and not word.is_capital)
        is_next = bool(keys) and (word.folded in function or (word.separator and not is_last))
        if is_other or is_next or len(keys) == _LONGEST_CANDIDATE:
            break
        length += 1
        if word.folded not in function:
            keys.append(word.key)
        if is_last and word.separator:
            break
    return keys, length


def read_question(text: str) -> Question:
    """Return a question that is read once."""
    return _read_once(text[:_LONGEST_QUESTION])


_read_once = lru_cache(maxsize=1024)(Question)


_ENDING = re.compile(
    "(?<=.)[습입]니[까다]$|(?<=..)[은는이가을를에]$"
    "|(?<=[а-я]{4})(?:[ая]ми|[ое]го|[ое]му|[оеыи][йм]|[оеё]в|[ая]х|[аяую]я|ую|ые|ие|[аяыиуюеоь])$"
)
"""Korean particles, and endings of Russian nouns and adjectives."""


def stem_of(word: Word) -> str:
    """Return the stem of a word, which is the same for the forms of a verb."""
    if word.value is not None:
        return word.key
    forms = tables().forms
    key = forms.get(word.folded) or forms.get(word.key, word.key)
    if not key.isascii():
        return _ENDING.sub("", key.removeprefix("ال") if len(key) > 4 else key)
    key = stem(stem(key[:-3] + "y" if key.endswith("ied") else key))
    if len(key) > 4 and key.endswith("ed"):
        return key[:-2]
    return key[:-1] if len(key) > 3 and key.endswith("e") else key


_LONGEST_WORD = 40  # letters of a word that is kept in memory


def stem(word: str) -> str:
    """Return a word without the ending of a plural, a participle or a demonym.

    >>> [stem(word) for word in ("vesicles", "countries", "classes", "painted", "colombian")]
    ['vesicl', 'country', 'class', 'paint', 'colomb']
    """
    return _stem_once(word) if len(word) <= _LONGEST_WORD else _stem(word)


def _stem(word: str) -> str:
    if len(word) <= 4:
        return word
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss"):
            word = word.removesuffix(ending) + replacement
            break
    for ending in ("ing", "ed", "ian", "ean", "an", "ish", "ese", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


_stem_once = lru_cache(maxsize=65536)(_stem)

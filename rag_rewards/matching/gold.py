"""Gold answers in the form in which answers are compared with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

from rag_rewards.errors import DataError
from rag_rewards.matching.reading import is_unspaced, read_words
from rag_rewards.matching.tables import tables
from rag_rewards.matching.values import Value, Word
from rag_rewards.text.normalize import fold

Required = tuple[tuple[str, ...], ...]
T = TypeVar("T")

STEM = 5
"""The number of letters by which words are compared for `nothing in common`."""
_LONGEST_ALIAS = 1_000  # characters; an answer can only equal a longer one
_MOST = 1024  # rows that are kept in memory
_LONG = 5_000  # characters of gold answers, of which only few rows are kept in memory


class Alias(NamedTuple):
    """The words of an alias.

    answer    the number of its required answer
    words     its words
    is_weak   whether all are function words, so that it must be the whole answer: "It"
    is_name   whether it is several words, each with a capital
    """

    answer: int
    words: tuple[Word, ...]
    is_weak: bool
    is_name: bool


@dataclass(frozen=True)
class Gold:
    """Required answers, each with its aliases.

    required   the aliases with a letter or digit
    aliases    the forms of the aliases, the longest first
    lengths    for the key of a first word the lengths of the aliases that begin with it
    same       the aliases by the keys of their words
    keys       the keys of all words
    stems      their beginnings
    ends       the keys of first and last words, to which endings can be attached
    values     the aliases that are one number or date, with the number of the required answer
    polar      whether the only answer is "yes" or "no"
    unspaced   the aliases in scripts without spaces, the longest first, with that number
    weak_names  names of several function words, with that number: "The Who"
    """

    required: Required
    aliases: tuple[Alias, ...]
    lengths: dict[str, tuple[int, ...]]
    same: dict[tuple[str, ...], list[Alias]]
    keys: frozenset[str]
    stems: frozenset[str]
    ends: frozenset[str]
    values: tuple[tuple[int, Value], ...]
    polar: Literal["yes", "no", ""]
    unspaced: tuple[tuple[str, int], ...]
    weak_names: tuple[tuple[str, int], ...]

    def at(self, words: Sequence[Word], at: int) -> Iterator[Alias]:
        """Yield the aliases with the keys of the words at a position, the longest first."""
        for length in self.lengths.get(words[at].key, ()):
            if at + length <= len(words):
                keys = tuple([word.key for word in words[at : at + length]])
                yield from self.same.get(keys, ())


def required_answers(gold: str | Sequence[str] | Sequence[Sequence[str]]) -> Required:
    """Return gold answers as tuples of aliases, one for each required answer."""
    if isinstance(gold, tuple) and gold and isinstance(gold[0], tuple):
        return gold
    if isinstance(gold, str):
        return ((gold,),)
    if all(isinstance(each, str) for each in gold):
        return (tuple(gold),)  # type: ignore[arg-type]
    return tuple((each,) if isinstance(each, str) else tuple(each) for each in gold)


def in_memory(read: Callable[[Required], T]) -> Callable[[Required], T]:
    """Return a function that keeps its last values: many of short ones, and few of long ones."""
    small: dict[Required, T] = {}
    large = lru_cache(maxsize=2)(read)

    def read_once(required: Required) -> T:
        value = small.get(required)
        if value is not None:
            return value
        if sum(map(len, chain.from_iterable(required))) > _LONG:
            return large(required)
        if len(small) >= _MOST:
            small.clear()
        return small.setdefault(required, read(required))

    return read_once


@in_memory
def read_gold(required: Required) -> Gold:
    """Return gold answers that are read once.

    Raises DataError if all aliases of a required answer have no letter or digit.
    """
    readable = tuple(_readable(aliases) for aliases in required)
    aliases = sorted(_aliases(readable), key=lambda alias: -len(alias.words))
    lengths: dict[str, dict[int, None]] = {}
    same: dict[tuple[str, ...], list[Alias]] = {}
    for alias in aliases:
        lengths.setdefault(alias.words[0].key, {})[len(alias.words)] = None
        same.setdefault(tuple([word.key for word in alias.words]), []).append(alias)
    words = [word for alias in aliases for word in alias.words]
    keys = frozenset(word.key for word in words)
    ends = (word.key for alias in aliases for word in (alias.words[0], alias.words[-1]))
    unspaced = [(fold(a), n) for n, each in enumerate(readable) for a in each if is_unspaced(a)]
    return Gold(
        required=readable,
        aliases=tuple(aliases),
        lengths={key: tuple(each) for key, each in lengths.items()},
        same=same,
        keys=keys,
        stems=frozenset(_stems(aliases)),
        ends=frozenset(ends),
        values=tuple(_values(aliases)),
        polar=_polar(readable),
        unspaced=tuple(sorted(dict.fromkeys(unspaced), key=lambda pair: -len(pair[0]))),
        weak_names=tuple(_weak_names(readable, aliases)),
    )


def _weak_names(required: Required, aliases: Sequence[Alias]) -> Iterator[tuple[str, int]]:
    for answer in {alias.answer for alias in aliases if alias.is_weak}:
        yield from ((each, answer) for each in required[answer] if _CAPITALS.fullmatch(each))


def _readable(aliases: tuple[str, ...]) -> tuple[str, ...]:
    readable = [alias for alias in dict.fromkeys(aliases) if any(map(str.isalnum, alias))]
    if not readable:
        raise DataError(
            "no alias has a letter or digit; add an alias in words, or compare exactly", "answers"
        )
    return tuple(alias for alias in readable if len(alias) <= _LONGEST_ALIAS)


def _aliases(required: Required) -> Iterator[Alias]:
    role = tables()
    for answer, aliases in enumerate(required):
        for spelling in dict.fromkeys(each for alias in aliases for each in _spellings(alias)):
            words = tuple(read_words(spelling))
            if len(words) > 1 and words[0].folded in role.articles and not words[0].is_capital:
                words = words[1:]  # "la Loire"
            if words:
                is_weak = (
                    all(word.folded in role.english_function for word in words)
                    and not spelling.isupper()
                )
                is_name = len(words) > 1 and all(word.is_capital for word in words)
                yield Alias(answer, words, is_weak, is_name)


_CAPITALS = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+")
_SLASH = re.compile(r"(?<=[^\W\d_])/(?=[^\W\d_])")
_RANGE = re.compile(r"(\d{1,9}) ?(?:[-–—]|to) ?(\d{1,9})")
_OPTIONAL = re.compile(r"^\([^()]{1,80}\)|\([a-z\d][^()]{0,80}\)|(?<=\w )\([^()]{1,80}\) (?=\w)")
"""A part in parentheses: "(I Can't Get No) Satisfaction", "Echidna (animal)"."""
_JOINED = re.compile(r"([^,;]{1,80}) (?:and|&) ([^,;]{1,80})")


def _spellings(alias: str) -> Iterator[str]:
    """Yield an alias, also without an optional part, and with the names of a pair exchanged."""
    yield alias
    if "(" in alias and any(map(str.isalnum, bare := _OPTIONAL.sub("", alias))):
        yield bare
    if "/" in alias:
        yield _SLASH.sub(" ", alias)
    if limits := _RANGE.fullmatch(alias):
        first, last = limits.groups()
        yield from (f"{first} to {last}", f"from {first} to {last}", f"between {first} and {last}")
    if (pair := _JOINED.fullmatch(alias)) and alias.count(" and ") + alias.count("&") == 1:
        yield f"{pair[2]} and {pair[1]}"


def _stems(aliases: Sequence[Alias]) -> Iterator[str]:
    function = tables().english_function
    for alias in aliases:
        is_short = len(alias.words) == 1 and not alias.is_weak  # "U.N."
        yield from (w.key[:STEM] for w in alias.words if is_short or w.folded not in function)


def _values(aliases: Sequence[Alias]) -> Iterator[tuple[int, Value]]:
    for alias in aliases:
        if len(alias.words) != 1:
            continue
        word = alias.words[0]
        if word.value is not None:
            yield alias.answer, word.value
        elif month := tables().months.get(word.folded):
            yield alias.answer, Value("date", Fraction(0), month=month)


def _polar(required: Required) -> Literal["yes", "no", ""]:
    if len(required) != 1 or not required[0]:
        return ""
    golds = {fold(alias).strip(" .!") for alias in required[0]}
    role = tables()
    if golds <= role.yes - role.no:
        return "yes"
    return "no" if golds <= role.no - role.yes else ""

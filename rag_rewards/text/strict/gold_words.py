"""The forms in which a text can contain a gold answer, for `text.strict.mentions`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import ARTICLES, MARKER, fold
from rag_rewards.text.strict.comparable_words import comparable, is_number
from rag_rewards.text.strict.written_dates import WrittenDate, written_dates
from rag_rewards.text.word_forms import stem
from rag_rewards.text.words import EDGES

FUNCTION_WORDS = frozenset(
    "of in on at by for to from with as is was are were be been its their his her this that it "
    "or and about during who which".split()
)
_LEADING = frozenset(
    "in on at by for to from as during about since is was it approximately around roughly".split()
)
_SHORT = 4000  # characters; the rollouts of a group read the same short gold answers
_SHORTEST_TOGETHER = 4  # letters and digits of words that a text may write without spaces
# "Oasis (band)", "Anna Reed, who was a singer"
_REMARK = re.compile(r"\s\([^()]{1,200}\)$|,\s(?:who|which|whose|where)\s.*$", re.DOTALL)
_GLUED_INITIALS = re.compile(r"\b[A-Z](?:\.[A-Z])+\b")
_TITLES = frozenset(
    "general justice judge president chancellor senator governor admiral colonel captain sir dame "
    "dr doctor professor prof reverend bishop archbishop cardinal mr mrs ms king queen".split()
)
_SEVERAL = re.compile(r"[,;&/]|\b(?:and|or)\b")
_OR = re.compile(r"\sor\s", re.I)
_SPLIT = re.compile(r"[^\s/]+")


@dataclass(frozen=True)
class GoldWords:
    """The comparable words of a gold answer, and what they are.

    words    all comparable words but a leading preposition
    is_name  whether the answer is a name of two to five words, each with a capital
    is_one   whether the answer begins with "a", so that "7 weeks" is not "a week"
    is_list  whether the answer consists of several answers
    """

    words: tuple[str, ...]
    is_name: bool = False
    is_one: bool = False
    is_list: bool = False

    @lazy
    def content(self) -> tuple[str, ...]:
        """The stems of the words with a meaning of their own."""
        words = [word for word in self.words if word not in FUNCTION_WORDS]
        return tuple(dict.fromkeys(root(word) for word in words))

    @lazy
    def together(self) -> str:
        """The words without spaces; empty if they are too short or contain no letter."""
        text = "".join(self.words)
        shortest = 3 if len(text) == len(self.words) else _SHORTEST_TOGETHER  # "J K L"
        long_enough = len(text) >= shortest and text.isalnum()
        return text if long_enough and not text.isdecimal() else ""

    @lazy
    def date(self) -> WrittenDate | None:
        """The date, if the answer is a date with a month and nothing else."""
        dates = written_dates(self.words)
        if len(dates) != 1 or dates[0].last - dates[0].first + 1 != len(self.words):
            return None
        return dates[0] if dates[0].day or dates[0].year else None

    @lazy
    def has_number(self) -> bool:
        return any(map(is_number, self.words))

    @lazy
    def ordered(self) -> tuple[tuple[str, ...], ...]:
        """The words, and the same with an ordinal: "season 4" for "fourth season"."""
        if len(self.words) != 2:
            return (self.words,)
        first, second = self.words
        if (match := _ORDINAL.fullmatch(first)) and second.isalpha():
            return self.words, (second, match[1])
        if second.isdecimal() and len(second) < 3 and first.isalpha():
            return self.words, (_ordinal(second), first)
        return (self.words,)


_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)", re.ASCII)


def _ordinal(number: str) -> str:
    teen = len(number) > 1 and number[-2] == "1"
    return number + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))


@lru_cache(maxsize=65536)
def root(word: str) -> str:
    """Return the stem of a comparable word. A number has no stem."""
    return word if is_number(word) else stem(word)


def read_gold(aliases: Sequence[str]) -> tuple[GoldWords, ...]:
    """Return the forms of gold answers: the answers themselves, and the names at their ends."""
    if sum(map(len, aliases)) <= _SHORT:
        return _read_aliases(tuple(aliases))
    return _read_aliases.__wrapped__(tuple(aliases))


@lru_cache(maxsize=4096)
def _read_aliases(aliases: tuple[str, ...]) -> tuple[GoldWords, ...]:
    forms: dict[GoldWords, None] = {}
    for alias in aliases:
        forms |= dict.fromkeys(_read(alias))
    return tuple(forms)


def _read(alias: str) -> tuple[GoldWords, ...]:
    head = head_of(alias)
    forms = []
    for answer in (head, *_alternatives(head), *_separate_initials(head)):
        written = _words_of(answer)
        for words in (written, _name_at_end(written), _without_title(written)):
            # The last word of "Vitamin A" only looks like an article.
            if words and words[-1].casefold() not in ARTICLES:
                forms.append(_gold(words, " ".join(words) if words is not written else answer))
    return tuple(form for form in forms if form.words)


def head_of(alias: str) -> str:
    """Return a gold answer without the remark or the relative clause at its end.

    >>> head_of("Oasis (band)"), head_of("Anna Reed, who was a singer")
    ('Oasis', 'Anna Reed')
    """
    return _REMARK.sub("", alias)


def _separate_initials(alias: str) -> list[str]:
    """Return "A. M. Reed" for "A.M. Reed", so that each initial can be that of a name."""
    if not _GLUED_INITIALS.search(alias):
        return []
    return [_GLUED_INITIALS.sub(lambda match: match[0].replace(".", ". "), alias)]


def _without_title(written: Sequence[str]) -> Sequence[str]:
    """Return the name after a title: "Anna Reed" for "Professor Anna Reed"."""
    is_titled = len(written) > 2 and written[0].casefold() in _TITLES
    return written[1:] if is_titled and all(word[:1].isupper() for word in written) else ()


def _alternatives(alias: str) -> list[str]:
    """Return the two answers of "Myanmar or Burma" and of "hit points or health points"."""
    parts = _OR.split(alias)
    if len(parts) != 2:
        return []
    names = all(part[:1].isupper() for part in parts)
    return parts if names or parts[0].split()[-1:] == parts[1].split()[-1:] else []


def _words_of(alias: str) -> list[str]:
    words = (token.strip(EDGES) for token in _SPLIT.findall(MARKER.sub(" ", alias)))
    return [word for word in words if word]


def _gold(written: Sequence[str], alias: str) -> GoldWords:
    words = comparable([fold(word) for word in written]).words
    lead = 0
    while lead + 1 < len(words) and words[lead] in _LEADING and written[0][:1].islower():
        lead += 1
    names = [word for word in written if word.casefold() not in ARTICLES]
    is_name = (
        2 <= len(names) <= 5
        and all(word[:1].isupper() for word in names)
        and not _SEVERAL.search(alias)
        and not any(map(is_number, words))
    )
    is_one = written[0].casefold() in ("a", "an")
    is_list = _SEVERAL.search(alias) is not None and "or" not in words
    return GoldWords(tuple(words[lead:]), is_name, is_one, is_list)


def _name_at_end(written: Sequence[str]) -> Sequence[str]:
    """Return the name after a description without a capital: "architect Anna Reed"."""
    at = len(written)
    while at and written[at - 1][:1].isupper():
        at -= 1
    described = 0 < at < len(written) - 1 and written[at - 1].isalpha()
    described = described and written[at - 1].casefold() not in FUNCTION_WORDS | ARTICLES
    return written[at:] if described else ()

"""Gold answers that a statement contains, for answers whose evidence is checked separately."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import NamedTuple

from rag_rewards.matching.gold import Alias, Gold, Required, in_memory, read_gold, required_answers
from rag_rewards.matching.question import read_question, stem_of
from rag_rewards.matching.reading import (
    explains,
    is_unspaced,
    key_of,
    mark_mentions,
    marked_answer,
    read_words,
    without_formatting,
)
from rag_rewards.matching.tables import tables
from rag_rewards.matching.values import VALUE_WORDS, Word, unit_of
from rag_rewards.text.absence import declines, paraphrases
from rag_rewards.text.hidden import is_unreadable, shown
from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import ARTICLES, fold
from rag_rewards.text.refusal import is_refusal

_QUESTION_MARKS = ("?", "？", "؟")
_RUN = re.compile(r"[^\W\d_]+")
_DIGIT = re.compile(r"\d")
_OTHER_WORDS = re.compile(r"[\\*_`{.](?:(?<!\.)|(?<=\b[^\W\d_a-z]\.)|(?<=\b[^\W\d_a-z][a-z]\.))")
"""Formatting and initials, which are not runs of letters."""
_OTHER_LETTERS = re.compile(
    "[\xad\u0130\u0300-\u1fff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2c00-\U0010ffff]"
)
"""Letters that are not Latin or not seen."""
_BETWEEN_SENTENCES = re.compile(r"(?<=[a-z]{3}[.!?])\s{1,8}(?=[A-Z])")
_OTHERWISE_WRITTEN = frozenset(
    "and percent degree dollar euro pound yen rupee mount saint am pm".split()
)
"""The keys of words that a text can also contain as a sign or an abbreviation."""
_ANY, _VALUE = "", "0"
"""The keys of all texts, and of all values."""
_SPELLING = re.compile("e|or|iz")
_MOST_NAMES = 32  # aliases in one search
_LONG_WORD = 4  # letters
_LONGEST_NAME = 6  # words
_MOST_GOLDS = 64  # gold answers whose mentions in one text are in memory
_LONG = 20_000  # characters of a text of which only few are kept in memory
_CONNECTIVES = frozenset("hence so therefore thus".split())


def stated_answers(
    statement: str,
    gold: str | Sequence[str] | Sequence[Sequence[str]],
    question: str = "",
    sources: Sequence[str] | None = None,
) -> list[bool]:
    """Return for each required answer whether a statement contains it as whole words.

    A question, a refusal, a part of the question and a text with characters that a reader does not
    see state nothing.

    sources  texts that the statement must agree with: a word that turns a meaning, such as "not",
             must be in one of them or in the question

    >>> stated_answers("The capital is Paris.", [["Paris"], ["Rome"]])
    [True, False]
    >>> stated_answers("It is not Paris.", ["Paris"], sources=["Paris is the capital."])
    [False]
    """
    required = required_answers(gold)
    nothing = [False] * len(required)
    mentioned = mentioned_answers(statement, required)
    if not any(mentioned) or not _is_statement(statement, question, required):
        return nothing
    if declines(statement) and not any(declines(a) for aliases in required for a in aliases):
        return nothing
    words = _read(_marked(statement, required)).words
    folded, role = {word.folded for word in words}, tables()
    if read_gold(required).polar and folded & role.yes and folded & role.no:
        return nothing
    is_turned = sources is not None and _turns(words, [question, *sources])
    return nothing if is_turned else mentioned


def _is_statement(text: str, question: str, required: Required) -> bool:
    if is_unreadable(text) or shown(text) != text:
        return False
    folded = _read(text).folded.strip(" .\"'*_")
    if folded.endswith(_QUESTION_MARKS):
        aliases = (alias for each in required for alias in each if "?" in alias[-1:])
        if not folded.endswith(tuple(map(fold, aliases))):
            return False
    return not (folded and folded in _read(question).folded)


def _marked(text: str, required: Required) -> str:
    unspaced = read_gold(required).unspaced
    return mark_mentions(without_formatting(text), unspaced) if any(unspaced) else text


def _turns(words: Sequence[Word], sources: Sequence[str]) -> bool:
    """Return whether a word turns the meaning of the sources."""
    turning = tables().turning.intersection([word.folded for word in words])
    if not all(any(_read(text).has_folded(word) for text in sources) for word in turning):
        return True
    unspaced = " ".join(word.folded for word in words if is_unspaced(word.folded))
    strings = [string for string in tables().turning_strings if string in unspaced]
    return not all(any(string in _read(text).folded for text in sources) for string in strings)


def mentioned_answers(text: str, gold: str | Sequence[str] | Sequence[Sequence[str]]) -> list[bool]:
    """Return for each required answer whether a text contains it as whole words.

    >>> mentioned_answers("It is not in Paris.", [["Paris"], ["Rome"]])
    [True, False]
    """
    required = required_answers(gold)
    if not _read(text).may_mention(required):
        return [False] * len(required)
    return _read(_marked(text, required)).mentioned(required)


def agrees(
    statement: str,
    gold: str | Sequence[str] | Sequence[Sequence[str]],
    question: str,
    sources: Sequence[str],
    *,
    closely: bool = False,
) -> bool:
    """Return whether a source with a gold answer of a statement has half of its other names.

    Numbers and dates count as names, and words of the question and function words do not count.
    `closely`: the source also has half of the other words.

    >>> agrees("It is Paris or Rome.", ["Paris"], "", ["Paris is the capital."])
    False
    """
    required = required_answers(gold)
    stated = [n for n, is_stated in enumerate(mentioned_answers(statement, required)) if is_stated]
    if not stated:
        return False
    golds = tuple(required[n] for n in stated)
    read = read_question(question)
    rest = [each for each in _content(statement, golds) if each.stem not in read.stems]
    names = [each for each in rest if _is_name(each.word)]
    others = [each for each in rest if closely and not _is_name(each.word)]
    is_polar = bool(read_gold(required).polar)
    return any(
        _has_half(names, source, question) and _has_half(others, source, question)
        for source in sources
        if is_polar or _read(source).mentions_any(golds)
    )


def _has_half(words: Sequence[_Content], source: str, question: str) -> bool:
    if not words:
        return True
    # Values are last, because they need a full read of the source.
    ordered = sorted(words, key=lambda each: each.word.value is not None)
    contained = (each for each in ordered if _contains(each, source, question))
    half = (len(words) + 1) // 2
    return next(islice(contained, half - 1, None), None) is not None


def _is_name(word: Word) -> bool:
    return word.is_capital or word.value is not None


def _contains(content: _Content, source: str, question: str) -> bool:
    """Return whether a source contains a word, or a text without spaces together with a question.

    A part of a text without spaces can also be a function word.
    """
    if is_unspaced(content.word.folded):
        return explains(content.word.folded, _read(f"{question} {source}").folded)
    return _read(source).has(content)


class _Needles(NamedTuple):
    """What a text must have to contain one of the aliases.

    keys        for each alias a key that each text with the alias has
    beginnings  letters with which the words of these keys begin, or nothing if words can differ
    """

    keys: frozenset[str]
    beginnings: tuple[str, ...]


@in_memory
def _needles(required: Required) -> _Needles:
    keys = frozenset(_needle(alias.words) for alias in read_gold(required).aliases)
    beginnings = frozenset(map(_beginning, keys - {_ANY, _VALUE}))
    is_complete = len(beginnings) <= _MOST_NAMES and keys.isdisjoint((_ANY, _VALUE))
    return _Needles(keys, tuple(beginnings) if is_complete else ())


def _needle(words: Sequence[Word]) -> str:
    letters = {word.key for word in words if word.value is None and word.key.isalpha()}
    otherwise = _VALUE if any(word.value is not None for word in words) else _ANY
    return max(letters - _OTHERWISE_WRITTEN, key=lambda key: (len(key), key), default=otherwise)


def _beginning(key: str) -> str:
    """Return the letters with which a word begins in each of its spellings.

    Spellings differ at the end, and after the second letter in "ae", "our" and "is".
    """
    return key[:2] + _SPELLING.split(key[2 : min(len(key) - 3, 6)])[0]


@in_memory
def _plain_names(required: Required) -> re.Pattern[str] | None:
    """Return a pattern of the aliases of letters, or None without any.

    No word is a part of a value. Therefore a full read finds these words as well.
    """
    parts = tables().months.keys() | _OTHERWISE_WRITTEN
    names = [
        " ".join(word.folded for word in alias.words)
        for alias in read_gold(required).aliases[:_MOST_NAMES]
        if max(len(word.folded) for word in alias.words) >= _LONG_WORD
        and not any(word.folded in parts or unit_of(word) for word in alias.words)
        and all(word.value is None and word.folded.isalpha() for word in alias.words)
    ]
    return re.compile(rf"(?<![\w+#'])(?:{'|'.join(names)})(?![\w+#'])") if names else None


class _Text:
    """A text that is read once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._mentioned: dict[Required, list[bool]] = {}

    def may_mention(self, required: Required) -> bool:
        """Return whether it may contain a gold answer, without a full read."""
        if not self.is_plain:
            return True
        needles = _needles(required)
        if needles.beginnings and self.text.isascii():
            lower = self.text.lower()
            if not any(map(lower.__contains__, needles.beginnings)):
                return False
        return not self.keys.isdisjoint(needles.keys)

    def mentions_any(self, required: Required) -> bool:
        """Return whether it contains a gold answer, with a full read only if names differ."""
        if not self.may_mention(required):
            return False
        names = _plain_names(required)
        if names is not None and self.is_plain and names.search(self.folded):
            return True
        return any(mentioned_answers(self.text, required))

    def mentioned(self, required: Required) -> list[bool]:
        """Return for each required answer whether the text contains it."""
        if required not in self._mentioned:
            if len(self._mentioned) >= _MOST_GOLDS:
                self._mentioned.clear()
            self._mentioned[required] = _mentioned(self.words, required)
        return list(self._mentioned[required])

    @lazy
    def words(self) -> list[Word]:
        return read_words(self.text)

    @lazy
    def folded(self) -> str:
        return fold(self.text)

    @lazy
    def _runs(self) -> frozenset[str]:
        return frozenset(_RUN.findall(self.folded))

    @lazy
    def is_plain(self) -> bool:
        """Whether its words of letters are runs of letters."""
        if _OTHER_WORDS.search(self.text):
            return False
        return self.text.isascii() or _OTHER_LETTERS.search(self.text) is None

    @lazy
    def keys(self) -> frozenset[str]:
        """The keys of its runs of letters, of values if it may contain one, and of all texts."""
        has_value = _DIGIT.search(self.folded) or not VALUE_WORDS.isdisjoint(self._runs)
        return frozenset(map(key_of, self._runs)).union([_ANY, _VALUE] if has_value else [_ANY])

    @lazy
    def _stems_of_runs(self) -> frozenset[str]:
        return frozenset(map(_stem_of_run, self._runs))

    @lazy
    def _stems(self) -> frozenset[str]:
        return frozenset(map(stem_of, self.words))

    @lazy
    def _values(self) -> frozenset[str]:
        """The keys of its values. Sentences without a value are not read."""
        sentences = map(_Text, _BETWEEN_SENTENCES.split(self.text))
        return frozenset(
            word.key
            for each in sentences
            if not each.is_plain or _VALUE in each.keys
            for word in each.words
            if word.value is not None
        )

    def may_have(self, function_words: Collection[frozenset[str]]) -> bool:
        """Return whether its function words may be one of these sets, without a full read."""
        is_read = not self.is_plain or _VALUE in self.keys or "'" in self.folded
        return is_read or (tables().function & self._runs) - ARTICLES in function_words

    def has(self, content: _Content) -> bool:
        """Return whether it contains a word with the same stem."""
        word = content.word
        if word.value is not None:
            return content.stem in self._values
        if not self.is_plain or not word.folded.isalpha():
            return content.stem in self._stems
        return content.stem in self._stems_of_runs

    def has_folded(self, word: str) -> bool:
        """Return whether it contains a word with this folded form."""
        if not self.is_plain or not word.isalpha():
            return any(each.folded == word for each in self.words)
        return word in self._runs


@lru_cache(maxsize=16384)
def _stem_of_run(run: str) -> str:
    return stem_of(Word(key_of(run), run))


_read_short, _read_long = lru_cache(maxsize=128)(_Text), lru_cache(maxsize=2)(_Text)


def _read(text: str) -> _Text:
    """Return a text that is read once. Many short texts stay in memory, and few long ones."""
    return (_read_short if len(text) <= _LONG else _read_long)(text)


def rivals(
    statements: Sequence[str], gold: str | Sequence[str] | Sequence[Sequence[str]], question: str
) -> list[bool]:
    """Return for each statement whether another one says otherwise.

    The other one says the same of another name or number, names only that, or declines to answer.
    With several required answers there are no rivals.

    >>> rivals(["Ajax won.", "Porto won.", "Porto lost."], ["Ajax"], "Who won?")
    [True, False, False]
    """
    required = required_answers(gold)
    if len(required) > 1 or len(statements) < 2:
        return [False] * len(statements)
    if any(is_refusal(each) and paraphrases(each, question) for each in statements):
        return [True] * len(statements)
    may_state = [_read(each).may_mention(required) for each in statements]
    frames = {
        n: _frame(statements[n], required, question) for n, may in enumerate(may_state) if may
    }
    function_words = {each.function for each in frames.values()} | {frozenset[str]()}
    for n, each in enumerate(statements):
        if not may_state[n] and _read(each).may_have(function_words):
            frames[n] = _frame(each, required, question)
    others = {frame.words for frame in frames.values() if frame.names_other}
    says_same = {
        n for n, frame in frames.items() if not others.isdisjoint((frame.words, frame.new_words))
    }
    return [n in says_same and frames[n].states for n in range(len(statements))]


class _Frame(NamedTuple):
    """What a statement says of a name.

    words        its words beside the name
    function     its function words
    new_words    those that are not in the question
    states       whether it contains a gold answer
    names_other  whether it names only something else
    """

    words: frozenset[str]
    function: frozenset[str]
    new_words: frozenset[str]
    states: bool
    names_other: bool


def _frame(text: str, required: Required, question: str) -> _Frame:
    read = read_question(question)
    content = list(_content(text, required))
    new = [each for each in content if each.stem not in read.stems]
    names = [each.at for each in new if _is_name(each.word) or not each.at]
    function = tables().function.intersection([word.folded for word in _read(text).words])
    words = function.union(each.stem for each in content if each.at not in names)
    new_words = frozenset(each.stem for each in new if each.at not in names)
    states = any(mentioned_answers(text, required))
    is_one_name = bool(names) and names[-1] - names[0] < _LONGEST_NAME
    return _Frame(words, function, new_words, states, is_one_name and not states)


class _Content(NamedTuple):
    """A word with content, its position and its stem."""

    at: int
    word: Word
    stem: str


def _content(text: str, required: Required) -> Iterator[_Content]:
    """Yield the words with content that are not in gold answers.

    The first word of a sentence counts as a word without a capital.
    """
    words, function = _read(_marked(text, required)).words, _small_words()
    covered = _positions(words, required)
    for at, word in enumerate(words):
        if at in covered or word.folded in function or word.is_sign:
            continue
        stem = stem_of(word)
        if word.is_capital and (not at or not set(word.separator).isdisjoint(".!?\n")):
            word = word._replace(is_capital=False)
        yield _Content(at, word, stem)


@cache
def _small_words() -> frozenset[str]:
    """Return the words without content."""
    return tables().function | tables().joining | _CONNECTIVES


def _positions(words: Sequence[Word], required: Required) -> set[int]:
    """Return the positions of the words of gold answers."""
    covered = set[int]()
    if not required:
        return covered
    for at, alias in _aliases_in(words, read_gold(required)):
        covered.update(range(at, at + len(alias.words)))
    return covered


def _aliases_in(words: Sequence[Word], gold: Gold) -> Iterator[tuple[int, Alias]]:
    """Yield the aliases that words contain, each with its position."""
    for at, word in enumerate(words):
        if word.key in gold.lengths:
            yield from ((at, alias) for alias in gold.at(words, at))


def _mentioned(words: Sequence[Word], required: Required) -> list[bool]:
    gold = read_gold(required)
    has_mention = [False] * len(required)
    for _, alias in _aliases_in(words, gold):
        has_mention[alias.answer] = True
    for word in words if gold.unspaced else ():
        marked = marked_answer(word.folded) if word.is_sign else None
        if marked is not None:
            has_mention[marked] = True
    return has_mention

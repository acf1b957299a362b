"""Gold answers that a statement contains, for answers whose evidence is checked separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from rag_rewards.matching.gold import Required, read_gold, required_answers
from rag_rewards.matching.plain import may_mention
from rag_rewards.matching.question import read_question, stem_of
from rag_rewards.matching.reading import read_words, without_formatting
from rag_rewards.matching.refusals import is_refusal
from rag_rewards.matching.tables import tables
from rag_rewards.matching.unspaced import explains, is_unspaced, mark_mentions, marked_answer
from rag_rewards.matching.words import Word
from rag_rewards.text.absence import declines, paraphrases
from rag_rewards.text.hidden import is_unreadable, shown
from rag_rewards.text.normalize import fold

_QUESTION_MARKS = ("?", "？", "؟")
_LONGEST_NAME = 6  # words
_LONG = 20_000  # characters of a text of which only few are kept in memory
T = TypeVar("T")
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
    if not may_mention(statement, required):
        return nothing
    words = _words(_marked(statement, required))
    mentioned = _mentioned(words, required)
    if not any(mentioned) or not _is_statement(statement, question, required):
        return nothing
    if _declines(statement, required):
        return nothing
    folded, role = {word.folded for word in words}, tables()
    if read_gold(required).polar and folded & role.yes and folded & role.no:
        return nothing
    is_turned = sources is not None and _turns(words, [question, *sources])
    return nothing if is_turned else mentioned


def _is_statement(text: str, question: str, required: Required) -> bool:
    if is_unreadable(text) or shown(text) != text:
        return False
    folded = fold(text).strip(" .\"'*_")
    titles = tuple(fold(each) for aliases in required for each in aliases if "?" in each[-1:])
    is_question = folded.endswith(_QUESTION_MARKS) and not (titles and folded.endswith(titles))
    return not is_question and not (folded and folded in fold(question))


def _declines(text: str, required: Required) -> bool:
    """Return whether a text declines to answer, with words that no gold answer has."""
    return declines(text) and not any(declines(each) for aliases in required for each in aliases)


def _marked(text: str, required: Required) -> str:
    unspaced = read_gold(required).unspaced
    return mark_mentions(without_formatting(text), unspaced) if any(unspaced) else text


def _turns(words: Sequence[Word], sources: Sequence[str]) -> bool:
    """Return whether a word turns the meaning of the sources."""
    role, texts = tables(), [fold(text) for text in sources]
    turning = {word.folded for word in words} & role.turning
    if turning and not turning <= {w.folded for text in sources for w in _words(text)}:
        return True
    unspaced = " ".join(word.folded for word in words if is_unspaced(word.folded))
    strings = [string for string in role.turning_strings if string in unspaced]
    return not all(any(string in text for text in texts) for string in strings)


def mentioned_answers(text: str, gold: str | Sequence[str] | Sequence[Sequence[str]]) -> list[bool]:
    """Return for each required answer whether a text contains it as whole words.

    >>> mentioned_answers("It is not in Paris.", [["Paris"], ["Rome"]])
    [True, False]
    """
    required = required_answers(gold)
    return _mentioned(_words(_marked(text, required)), required)


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
    rest = [word for _, word in _content(statement, golds) if not read.has(word)]
    names = [word for word in rest if _is_name(word)]
    others = [word for word in rest if closely and not _is_name(word)]
    is_polar = bool(read_gold(required).polar)
    return any(
        _is_half_known(names, source, question) and _is_half_known(others, source, question)
        for source in sources
        if is_polar or any(mentioned_answers(source, golds))
    )


def _is_half_known(words: Sequence[Word], source: str, question: str) -> bool:
    return 2 * sum(_is_known(word, source, question) for word in words) >= len(words)


def _is_name(word: Word) -> bool:
    return word.is_capital or word.value is not None


def _is_known(word: Word, source: str, question: str) -> bool:
    """Return whether a source contains a word, or a text without spaces together with a question.

    A part of a text without spaces can also be a function word.
    """
    if is_unspaced(word.folded):
        return explains(word.folded, _folded(f"{question} {source}"))
    return stem_of(word) in _stems(source)


def _in_memory(read: Callable[[str], T], texts: int) -> Callable[[str], T]:
    """Return a function that keeps its last values: of many short texts, and of few long ones."""
    short, long = lru_cache(maxsize=texts)(read), lru_cache(maxsize=2)(read)

    def read_once(text: str) -> T:
        return (short if len(text) <= _LONG else long)(text)

    return read_once


_words = _in_memory(read_words, 128)
_folded = _in_memory(fold, 64)
_stems = _in_memory(lambda text: frozenset(map(stem_of, _words(text))), 64)


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
    frames = [_frame(statement, required, question) for statement in statements]
    others = {each.words for each in frames if each.names_other}
    return [each.states and not others.isdisjoint((each.words, each.new_words)) for each in frames]


class _Frame(NamedTuple):
    """What a statement says of a name.

    words        its words beside the name
    new_words    those that are not in the question
    states       whether it contains a gold answer
    names_other  whether it names only something else
    """

    words: frozenset[str]
    new_words: frozenset[str]
    states: bool
    names_other: bool


def _frame(text: str, required: Required, question: str) -> _Frame:
    read = read_question(question)
    content = list(_content(text, required))
    new = [(at, word) for at, word in content if not read.has(word)]
    names = [at for at, word in new if _is_name(word) or not at]
    small = (word.folded for word in _words(text) if word.folded in tables().function)
    words = frozenset(stem_of(word) for at, word in content if at not in names).union(small)
    new_words = frozenset(stem_of(word) for at, word in new if at not in names)
    states = any(mentioned_answers(text, required))
    is_one_name = bool(names) and names[-1] - names[0] < _LONGEST_NAME
    return _Frame(words, new_words, states, is_one_name and not states)


def _content(text: str, required: Required) -> Iterator[tuple[int, Word]]:
    """Yield the words with content that are not in gold answers, with their positions.

    The first word of a sentence counts as a word without a capital.
    """
    words, function = _words(_marked(text, required)), _small_words()
    covered = _positions(words, required)
    for at, word in enumerate(words):
        if at in covered or word.folded in function or word.is_sign:
            continue
        is_first = not at or not set(word.separator).isdisjoint(".!?\n")
        yield at, word._replace(is_capital=word.is_capital and not is_first)


@cache
def _small_words() -> frozenset[str]:
    """Return the words without content."""
    return tables().function | tables().joining | _CONNECTIVES


def _positions(words: Sequence[Word], required: Required) -> set[int]:
    """Return the positions of the words of gold answers."""
    covered = set[int]()
    if not required:
        return covered
    gold = read_gold(required)
    for at in range(len(words)):
        for alias in gold.at(words, at):
            covered.update(range(at, at + len(alias.words)))
    return covered


def _mentioned(words: Sequence[Word], required: Required) -> list[bool]:
    gold = read_gold(required)
    has_marks = bool(gold.unspaced)
    has_mention = [False] * len(required)
    for at, word in enumerate(words):
        marked = marked_answer(word.folded) if has_marks and word.is_sign else None
        if marked is not None:
            has_mention[marked] = True
        for alias in gold.at(words, at):
            has_mention[alias.answer] = True
    return has_mention

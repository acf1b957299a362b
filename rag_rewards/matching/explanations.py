"""Explanations of the words of an answer beside the mentions of gold answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from rag_rewards.matching.gold import Gold
from rag_rewards.matching.question import EXTENDERS, Question, is_alternative, stem_of
from rag_rewards.matching.reading import explains, is_unspaced
from rag_rewards.matching.tables import Tables
from rag_rewards.matching.values import Word
from rag_rewards.text.normalize import fold

_LONGEST_PLACE = 4  # words
_MOST_TITLES = 4  # before a name: "Rt. Hon. Prof. Dr."
_AFTER_LABELS = frozenset((":", "—", "–", "-"))
_ADDRESSES = frozenset("dr mr mrs ms miss prof professor sir dame hms rms ss uss".split())
_ERAS = frozenset(("ad", "ce"))
_NOUNS = ("er", "or", "ist")
_OBJECTS = frozenset(("den", "l'", "lo"))
"""Words that begin a sentence with its object: "Den Roman schrieb …"."""


class Explanations:
    """The words of an answer, of which some are explained.

    words     the words of the answer
    owner     the number of the required answer that each word mentions, or -1
    gold      the required answers
    question  the question, whose words explain the same words of the answer
    context   texts that can show that a country or state belongs to a place
    possessions  the words after possessives
    """

    def __init__(
        self,
        words: Sequence[Word],
        owner: Sequence[int],
        gold: Gold,
        question: Question,
        context: Sequence[str],
        possessions: Sequence[str] = (),
    ) -> None:
        self.words, self.owner, self.role = words, owner, question.role
        self.gold, self.question, self.context = gold, question, context
        self.possessions = possessions
        self.mentions = [at for at, answer in enumerate(owner) if answer >= 0]

    def unexplained(self) -> Iterator[str]:
        """Yield the words that nothing explains."""
        listed = set(self._listed())
        for at, word in enumerate(self.words):
            is_mention = self.owner[at] >= 0
            is_explained = self._is_in_place(at) if is_mention else self._is_explained(at, word)
            if not is_explained or (at in listed and not self._is_place(at)):
                yield word.folded

    def _listed(self) -> Iterator[int]:
        """Yield the positions of names of the question that are listed: "Bohr, Einstein"."""
        if self.gold.polar or not self.mentions:
            return
        starts = [at for at in range(len(self.words)) if not at or self._is_separate(at)]
        for start, end in zip(starts, [*starts[1:], len(self.words)], strict=True):
            is_label = end < len(self.words) and self.words[end].separator in _AFTER_LABELS
            part = range(start, end)
            others = [at for at in part if not self._is_function(at, self.words[at])]
            has_mention = any(self.owner[at] >= 0 for at in part)
            if not has_mention and all(self._is_name(self.words[at], is_label) for at in others):
                yield from others

    def _is_separate(self, at: int) -> bool:
        separator = self.words[at].separator
        if separator == "," and self._stems_at(at) in self.question.commas:
            return False  # "Hawkins, Indiana" in the question
        return bool(separator) and not (separator == "." and self.words[at - 1].is_initial)

    def _is_name(self, word: Word, is_label: bool) -> bool:
        """Return whether a word is a name of the question, which may have no capitals."""
        if is_unspaced(word.folded):
            return word.folded in self.question.folded
        if word.value is not None:
            return bool(self.gold.values)
        names = self.question.capitals
        return stem_of(word) in names or not (names or is_label or not self.question.has(word))

    def _is_mention(self, at: int) -> bool:
        return 0 <= at < len(self.words) and self.owner[at] >= 0

    def _is_explained(self, at: int, word: Word) -> bool:
        role = self.role
        if self._joins(at, word):
            return True
        if word.is_sign or self._turns(at, word) or self._asks(at, word):
            return False
        if word.hyphen or (at + 1 < len(self.words) and self.words[at + 1].hyphen):
            is_first = at + 1 < len(self.words) and self.words[at + 1].hyphen
            is_pair = self._is_pair(at) if word.hyphen else is_first and self._is_pair(at + 1)
            return is_pair and self.question.has(word) and not self._touches(at)
        if self._is_function(at, word):
            return True
        if at and word.glued and word.folded in role.counters and self._is_mention(at - 1):
            return self.words[at - 1].value is not None
        if word.folded in role.titles and self._is_title(at, word):
            return True
        if word.folded in role.suffixes and self._is_mention(at - 1):
            return True
        if word.folded in _ERAS and self._is_mention(at - 1) and self._is_value(at - 1):
            return True
        return self._is_from_question(at, word) or self._is_place(at)

    def _is_title(self, at: int, word: Word) -> bool:
        """Return whether a title is before a mention, and is not another one than in the question.

        "Pope John" is no answer to "Which king was it?".
        """
        after = at + 1
        titles = self.words[after : at + _MOST_TITLES]
        after += sum(1 for _ in takewhile(lambda each: each.folded in self.role.titles, titles))
        if not self._is_mention(after) or self.words[after].separator.strip("."):
            return False
        titles_in_question = self.question.types & self.role.titles
        is_other = bool(titles_in_question) and word.folded not in titles_in_question
        return not is_other or word.folded in _ADDRESSES

    def _joins(self, at: int, word: Word) -> bool:
        """Return whether a word joins aliases of one answer, or required answers."""
        is_joint = word.folded == "/" or word.folded in self.role.joining
        if not is_joint and word.folded not in self.role.alternatives:
            return False
        if word.folded not in self.role.joining and self._is_between_aliases(at):
            return True
        if is_joint and len(self.gold.required) > 1 and self.mentions:
            return word.folded == "both" or self.mentions[0] < at < self.mentions[-1]
        return is_joint and word.folded != "/" and self._is_pair(at) and self.question.has(word)

    def _is_between_aliases(self, at: int) -> bool:
        is_between = self._is_mention(at - 1) and self._is_mention(at + 1)
        return is_between and self.owner[at - 1] == self.owner[at + 1]

    def _turns(self, at: int, word: Word) -> bool:
        """Return whether a word turns or moves a meaning."""
        role = self.role
        if word.folded in role.turning and not is_article(self.words, at, self.role):
            is_degree = word.folded in role.degrees or self._is_pair(at)
            return not (is_degree and self._is_pair(at + 1)) or self._is_value(at + 1)
        if word.folded not in role.limits or word.folded in self.question.prepositions:
            return False
        next_word = self.words[at + 1 : at + 2]
        after = at + 2 if next_word and next_word[0].folded in role.function else at + 1  # "as of"
        if after < len(self.words) and self.words[after].folded[0].isdecimal():
            return True
        return self._is_value(after) or (not word.folded.isascii() and self._is_value(at - 1))

    def _is_value(self, at: int) -> bool:
        return 0 <= at < len(self.words) and self.words[at].value is not None

    def _asks(self, at: int, word: Word) -> bool:
        """Return whether a word begins a question: "Is it Paris", "Paris, is it"."""
        role = self.role
        if len(self.words) == 1 or (at and self.gold.polar):
            return False
        is_after = self.mentions[-1:] < [at]
        if word.folded in role.auxiliaries and (not at or (is_after and word.separator)):
            return True
        return word.folded in role.asking and (not at or (is_after and at >= self._last_content))

    @cached_property
    def _last_content(self) -> int:
        """The position of the last word that is no function word."""
        role = self.role
        positions = range(len(self.words) - 1, -1, -1)
        return next((at for at in positions if self.words[at].folded not in role.function), 0)

    def _is_function(self, at: int, word: Word) -> bool:
        """Return whether a word is a function word, and does not extend a name."""
        role = self.role
        if word.folded not in role.function and word.folded not in role.articles:
            return False
        if at and word.glued and word.folded.isascii() and self._is_value(at - 1):
            return False  # "5s"
        if self._is_value(at + 1) and self.words[at + 1].glued:
            return False  # "A$5"
        if word.folded == "são":
            return not word.is_capital  # "São Paulo"
        if word.is_capital and at and not word.separator:
            is_part = self._touches(at) and not self._is_value(at + 1)
            return len(word.folded) > 1 and not is_part  # "Vitamin D", "The Who"
        return True

    def _touches(self, at: int) -> bool:
        """Return whether nothing but spaces and hyphens is between a word and a mention."""
        return self._touches_before(at) or self._touches_after(at)

    def _touches_before(self, at: int) -> bool:
        return self._is_mention(at - 1) and not self.words[at].separator

    def _touches_after(self, at: int) -> bool:
        return self._is_mention(at + 1) and not self.words[at + 1].separator

    # --- words of the question -------------------------------------------------------------------

    def _is_from_question(self, at: int, word: Word) -> bool:
        question = self.question
        if is_unspaced(word.folded):
            return self._is_unspaced_part(at, word.folded)
        if word.value is not None or not word.folded[0].isalpha():
            return self._is_pair(at) or self._is_pair(at + 1) or self._is_other_number(at, word)
        if self._is_doer(at, word):
            return True
        if not question.has(word) or word.key in question.candidates(self.gold.keys):
            return False
        if word.folded in self.possessions and self._touches_before(at):
            return False  # "Cain's father"
        return not self._extends_name(at, word) and not self._is_agent(at, word)

    def _is_unspaced_part(self, at: int, text: str) -> bool:
        """Return whether a text without spaces is of the question, also with a counter: 23个省."""
        is_after = self._touches_after(at)
        if explains(text, self.question.folded, touches=(self._touches_before(at), is_after)):
            return True
        counter = self.words[at - 1].folded if at else ""
        touches = self._touches_before(at - 1), is_after
        text = counter + text
        return counter in self.role.counters and explains(
            text, self.question.folded, touches=touches
        )

    def _is_other_number(self, at: int, word: Word) -> bool:
        """Return whether a number of the question is beside a gold answer without numbers."""
        is_beside = not self.gold.values and not self._touches(at)
        return is_beside and word.value is not None and self.question.has(word)

    def _is_doer(self, at: int, word: Word) -> bool:
        """Return whether a word before a mention is the noun of a verb of the question.

        "The painter was …" is an answer to "Who painted it?", "the killer of …" is none.
        """
        if not self.question.has_doer(word) or self._is_mention(at - 1):
            return False
        is_of = at + 1 < len(self.words) and self.words[at + 1].folded in self.role.relations
        return (
            bool(self.mentions)
            and at < self.mentions[0]
            and not (is_of and self._is_mention(at + 2))
        )

    def _is_pair(self, at: int) -> bool:
        """Return whether a word and the one before it are adjacent in the question."""
        return 0 < at < len(self.words) and self._stems_at(at) in self.question.pairs

    def _stems_at(self, at: int) -> tuple[str, str]:
        """Return the stems of the word before a position and of the word at it."""
        return stem_of(self.words[at - 1]), stem_of(self.words[at])

    def _extends_name(self, at: int, word: Word) -> bool:
        """Return whether a word of the question may be part of a longer name: "Kansas City"."""
        question = self.question
        is_capital = word.is_capital and "de" not in question.languages  # all its nouns have one
        is_name = is_capital and at > 0 and not word.separator
        if is_name and question.capitals and stem_of(word) not in question.capitals:
            return True
        may_extend = is_capital or word.key in EXTENDERS
        if may_extend and self._continues(at - 1, at):
            return True
        if not is_capital and (word.key in question.types or word.key not in EXTENDERS):
            return False
        after = at + 1
        if after < len(self.words) and self.words[after].folded == "of":
            after += 1
        return self._continues(after, after)

    def _continues(self, mention: int, second: int) -> bool:
        """Return whether a name continues from a mention, or into it, without a separator."""
        if not self._is_mention(mention) or self.words[mention].value is not None:
            return False
        return not self.words[second].separator.strip(".")

    def _is_agent(self, at: int, word: Word) -> bool:
        """Return whether "by" makes an object of the question a subject: "killed by Caesar"."""
        if at < 2 or self.words[at - 1].folded not in self.role.agents:
            return False
        return self.question.objects.get((stem_of(self.words[at - 2]),)) == stem_of(word)

    def _is_in_place(self, at: int) -> bool:
        """Return whether a mention is not in the place of a name of the question.

        "Carthage defeated Rome" is no answer to "Who defeated Carthage?".
        """
        words, question = self.words, self.question
        if words[at].value is not None or not question.has_fixed_order:
            return True
        start = at - 1 if at and is_article(words, at - 1, self.role) else at
        before = [stem_of(word) for word in words[max(start - 2, 0) : start]]
        if before and not words[start].separator and self.owner[start - 1] < 0:
            if (before[-1],) in question.objects or tuple(before) in question.objects:
                is_noun = words[start - 1].folded.endswith(_NOUNS)  # "the novelist …"
                return is_noun or words[0].folded in _OBJECTS
            is_agent = words[start - 1].folded in self.role.agents
            if is_agent and before[0] in question.subjects:
                return False  # "beaten by Frazier" to "Who did Ali beat?"
        if at + 1 == len(words) or words[at + 1].separator or self.owner[at + 1] >= 0:
            return True
        return stem_of(words[at + 1]) not in question.subjects

    # --- places ----------------------------------------------------------------------------------

    def _is_place(self, at: int) -> bool:
        """Return whether a word is in a country or state after its place that the context shows."""
        start, end = at, at + 1
        while start > at - _LONGEST_PLACE and start and not self._begins_part(start):
            start -= 1
        while end < len(self.words) and end - start < _LONGEST_PLACE and not self._begins_part(end):
            end += 1
        if not self._is_mention(start - 1) or self.words[start].separator not in (",", "("):
            return False
        place = " ".join(word.folded for word in self.words[start:end])
        if place not in self.role.places:
            return False
        first = start - 1
        while first and self.owner[first - 1] >= 0 and not self._begins_part(first):
            first -= 1
        name = " ".join(word.folded for word in self.words[first:start])
        return any(f"{name}, {place}" in text for text in self._texts)

    def _begins_part(self, at: int) -> bool:
        return bool(self.words[at].separator) or self.owner[at] != self.owner[at - 1]

    @cached_property
    def _texts(self) -> list[str]:
        """The texts that can show that a place is in a country or state."""
        aliases = (alias for each in self.gold.required for alias in each if "," in alias)
        return [fold(text) for text in (*self.context, *aliases)]


def is_article(words: Sequence[Word], at: int, role: Tables) -> bool:
    """Return whether a word is an article that is the same as "or" in another language."""
    return words[at].folded in role.articles and not is_alternative(words, at, role)

"""Whether a text names another answer before a mention, so that the mention is not its answer.

"It is Rome. It is Paris." names two answers to one question. Only the first one counts, so that a
response cannot be right for two different gold answers. A candidate is a word that the question
does not contain: a number beside a number, a name beside a name. Long sentences contain names for
many reasons, so that only short units are compared, and a unit that repeats more words of the
question than the earlier ones is an answer of its own ("He was born in Rome. He died in Paris.").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Set as AbstractSet
from itertools import pairwise

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.assertion_words import (
    COORDINATORS,
    COPULAS,
    FUNCTION_WORDS,
    HEDGES,
    JOINTS,
    LOCATING,
    NEGATIONS,
    OPPOSITES,
    PREPOSITIONS,
    PRONOUNS,
    VERB_PREPOSITIONS,
)
from rag_rewards.text.strict.candidates import Candidates, stem
from rag_rewards.text.strict.parts import Parts, Span, ends_unit
from rag_rewards.text.word_forms import ORDINALS
from rag_rewards.text.words import Word

_MAX_UNIT = 10  # words; a longer sentence contains names for other reasons
_MAX_PHRASES = 40  # words before a mention
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)", re.ASCII)
_TOO = HEDGES | {"too"}
_MAX_CLAUSES = 12
_MAX_NEW_WORDS = 2  # of a unit that only names another answer
_JOINT_WORDS = frozenset(word for joint in JOINTS for word in joint.split())


class Rivals:
    """Tests whether other answers precede a mention.

    parts       the words of the text and its parts
    candidates  which words can be an answer
    """

    def __init__(self, parts: Parts, candidates: Candidates) -> None:
        self._parts = parts
        self._words = parts.words
        self._candidates = candidates

    def precede(self, first: int, last: int, required: int) -> bool:
        """Return whether as many other answers as the question asks for precede a mention."""
        if required == 1 and (self._is_joined(first) or self._is_afterthought(first, last)):
            return True
        return (
            self._is_label(first, last)
            or self._is_contradicted(first, last)
            or self._in_earlier_clauses(first, last, required)
            or self._in_earlier_phrases(first, last, required)
            or self._is_ranked(first, required)
            or self._in_earlier_units(first, last, required)
        )

    def _is_contradicted(self, first: int, last: int) -> bool:
        """Return whether a text says both yes and no."""
        opposite = OPPOSITES.get(self._words[first].text) if first == last else None
        if opposite is None:
            return False
        return any(
            word.text == opposite and self._is_alone(at) for at, word in enumerate(self._words)
        )

    def _is_alone(self, at: int) -> bool:
        """Return whether a word such as "no" is an answer and not part of "no other city"."""
        words = self._words
        if words[at].text != "no" or words[at].after or at + 1 == len(words):
            return True
        following = words[at + 1]
        return (
            bool(following.before)
            or following.text in FUNCTION_WORDS
            or (following.text in OPPOSITES)
        )

    def _in_earlier_clauses(self, first: int, last: int, required: int) -> bool:
        """Return whether an earlier clause has the same words around another answer.

        Examples: "It is Rome and it is Paris.", "Iron does, copper does."
        """
        clauses, texts = self._parts.clauses, self._parts.texts
        at = bisect_right(clauses, (first, len(texts))) - 1
        if at < 1 or clauses[at][1] - clauses[at][0] > _MAX_UNIT:
            return False
        head = self._candidates.head(first, last)
        own = set(texts[first : last + 1])
        frame = {text for text in texts[slice(*clauses[at])] if len(text) > 1}
        frame -= ARTICLES | HEDGES | own
        if not frame:
            return False
        rivals = sum(
            frame.issubset(texts[slice(*clause)])
            and self._has_candidate(clause, head, own, frame)
            and (len(frame) > 1 or self._is_beside(clause, next(iter(frame)), head))
            for clause in clauses[max(at - _MAX_CLAUSES, 0) : at]
        )
        return rivals >= required

    def _in_earlier_phrases(self, first: int, last: int, required: int) -> bool:
        """Return whether an earlier phrase with the same preposition answers the question.

        In "located in Rome, situated in Paris", both verbs are about a place. In "born in Rome,
        raised in Paris", the question decides: it contains the verb of one phrase only.
        """
        words = self._words
        preposition, verb = self._phrase(first)
        if not verb or required > 1:
            return False
        asked = stem(verb) in self._candidates.question
        head = self._candidates.head(first, last)
        for at in range(max(first - _MAX_PHRASES, 1), first - 1):
            if words[at].text != preposition or at + 1 >= first:
                continue
            name = at + 2 if words[at + 1].text in ARTICLES else at + 1
            other = words[at - 1].text
            answers = stem(other) in self._candidates.question and not asked
            if (
                (answers or (other in LOCATING and verb in LOCATING and not asked))
                and _is_verb(other)
                and name < first - 1
                and words[name].text != words[first].text
                and self._candidates.is_candidate(words[name], head)
            ):
                return True
        return False

    def _phrase(self, first: int) -> tuple[str, str]:
        """Return the preposition and the verb before a mention, after a mark: ", situated in"."""
        words, at = self._words, first - 1
        if at > 1 and words[at].text in ARTICLES:
            at -= 1
        if at < 2 or words[at].text not in VERB_PREPOSITIONS or words[at].after:
            return "", ""
        verb, before = words[at - 1], words[at - 2]
        separate = before.after.startswith(",") or before.text in COORDINATORS
        return (words[at].text, verb.text) if separate and _is_verb(verb.text) else ("", "")

    def _is_ranked(self, first: int, required: int) -> bool:
        """Return whether a mention has a lower rank than another name: "1st Rome, 2nd Paris"."""
        words, rank = self._words, _rank(self._words[first - 1]) if first else 0
        if rank < 2 or required > 1 or stem(words[first - 1].text) in self._candidates.question:
            return False
        return any(
            0 < _rank(words[at]) < rank
            and self._candidates.is_candidate(words[at + 1], words[first])
            for at in range(max(first - _MAX_PHRASES, 0), first - 2)
        )

    def _is_beside(self, clause: Span, frame: str, head: Word) -> bool:
        """Return whether a candidate is directly beside a word of a clause: "is Rome"."""
        skipped = ARTICLES | HEDGES
        texts = [word for word in self._words[slice(*clause)] if word.text not in skipped]
        return any(
            frame in (word.text, following.text)
            and (
                self._candidates.is_candidate(word, head)
                or self._candidates.is_candidate(following, head)
            )
            for word, following in pairwise(texts)
        )

    def _is_joined(self, first: int) -> bool:
        """Return whether joining words are beside another name: "Rome then Paris"."""
        words, at = self._words, first - 1
        gap: list[str] = []
        while at >= 0 and len(gap) < 5 and not (words[at].after and ends_unit(words[at])):
            text = words[at].text
            if not text[:1].isalnum() or text in ARTICLES or text in HEDGES:
                gap.append("")  # a symbol, as in "Rome = Paris"
            elif text in _JOINT_WORDS:
                gap.append(text)
            else:
                break
            at -= 1
        if not gap or at < 0 or ends_unit(words[at]):
            return False
        phrase = " ".join(filter(None, reversed(gap)))
        if phrase in PREPOSITIONS and not self._candidates.is_name(words[first].text):
            return False  # "painted with oil"
        is_joint = phrase in JOINTS if phrase else not words[at + 1].text[:1].isalnum()
        return (
            is_joint
            and self._candidates.is_candidate(words[at], words[first])
            and not any(map(_denies, words[max(at - 4, 0) : at]))  # "not Rome but Paris"
        )

    def _is_afterthought(self, first: int, last: int) -> bool:
        """Return whether a mention ends a unit that names another answer: "It is Rome, Paris."."""
        words, mention = self._words, self._candidates.head(first, last)
        if not self._ends_with(last):
            return False
        at = first - 1
        while at > 0 and words[at].text in ARTICLES:
            at -= 1
        marks = words[at].after + words[at + 1].before if at >= 0 else ""
        is_title = marks == "." and len(words[at].text) < 4  # "Dr. Reed"
        if not marks or ":" in marks or is_title or ends_unit(words[at]):
            return False
        end = at
        while at >= 0 and end - at < 4 and self._candidates.is_candidate(words[at], mention):
            at -= 1
            if at >= 0 and words[at].after:
                break
        while at >= 0 and words[at].text in ARTICLES:
            at -= 1
        return at < end and (at < 0 or words[at].text in COPULAS or ends_unit(words[at]))

    def _ends_with(self, last: int) -> bool:
        """Return whether a unit ends after a mention, also after "too" or "also"."""
        words, at = self._words, last
        while at + 1 < len(words) and not words[at].after and words[at + 1].text in _TOO:
            at += 1
        return at + 1 >= len(words) or ends_unit(words[at])

    def _is_label(self, first: int, last: int) -> bool:
        """Return whether a mention is before a colon and a name: "Rome: Paris"."""
        words = self._words
        if not words[last].after.startswith(":") or last + 1 == len(words):
            return False
        if first and not words[first - 1].after:
            return False
        end = last + 1
        while end < len(words) and self._candidates.is_candidate(words[end], words[first]):
            if words[end].after:
                break
            end += 1
        return (last + 1 <= end < len(words) and end - last <= 4 and ends_unit(words[end])) or (
            last + 1 < end == len(words)
        )

    def _in_earlier_units(self, first: int, last: int, required: int) -> bool:
        units = self._parts.units
        at = next((i for i, (start, end) in enumerate(units) if start <= first < end), 0)
        if not at or units[at][1] - units[at][0] > _MAX_UNIT:
            return False
        asked = bool(self._candidates.question)
        if not asked and not (self._candidates.has_question and self._is_bare(units[at])):
            return False  # beside "Where is it?", only names can be compared: "Rome. Paris."
        if self._words[units[at][0]].text in PRONOUNS:
            return False  # "The author is Homer. He was Greek."
        own = {word.text for word in self._words[first : last + 1]}
        content, head = self._content(units[at], own), self._candidates.head(first, last)
        rivals = 0
        for unit in units[:at]:
            if unit[1] - unit[0] > _MAX_UNIT or self._says_more(content, unit, own):
                continue
            if not asked and not self._is_bare(unit):
                continue
            rivals += self._has_candidate(unit, head, own)
            if rivals >= required:
                return True
        return False

    def _is_bare(self, unit: Span) -> bool:
        """Return whether a unit consists of a name: up to four words, none a function word."""
        start, end = unit
        return end - start <= 4 and FUNCTION_WORDS.isdisjoint(
            word.text for word in self._words[start:end]
        )

    def _says_more(self, content: AbstractSet[str], unit: Span, own: AbstractSet[str]) -> bool:
        """Return whether a unit answers another part of the question than an earlier unit."""
        new = content - self._content(unit, own)
        return len(new) > _MAX_NEW_WORDS or not new.isdisjoint(self._candidates.question)

    def _content(self, unit: Span, own: AbstractSet[str]) -> set[str]:
        """Return the stems of the words of a unit, without function words and the mention."""
        texts = {word.text for word in self._words[slice(*unit)]} - own - FUNCTION_WORDS
        return {stem(text) for text in texts}

    def _has_candidate(
        self, unit: Span, head: Word, own: AbstractSet[str], frame: AbstractSet[str] = frozenset()
    ) -> bool:
        """Return whether a unit asserts another answer than the mention."""
        words = self._words[slice(*unit)]
        if own <= {word.text for word in words} or any(map(_denies, words)):
            return False  # the same answer, or a denial
        if words[-1].after.startswith("?"):
            return False
        known = own | frame
        return any(
            word.text not in known and self._candidates.is_candidate(word, head) for word in words
        )


def _is_verb(text: str) -> bool:
    return text in LOCATING or text.endswith(("ed", "born", "grown", "made", "built", "held"))


def _rank(word: Word) -> int:
    """Return the number of "2nd" or "second", or 0."""
    text = ORDINALS.get(word.text, word.text)
    match = None if word.after else _ORDINAL.fullmatch(text)
    return int(match[1]) if match else int(text) if text != word.text else 0


def _denies(word: Word) -> bool:
    return word.text in NEGATIONS or word.text.endswith("n't")

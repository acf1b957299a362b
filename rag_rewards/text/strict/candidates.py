"""Which words of a text can be an answer to the question.

A candidate is a word that the question does not contain and that is no function word. Beside a
number, only numbers are candidates; beside a name with a capital, only names and numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rag_rewards.text.normalize import fold
from rag_rewards.text.strict.assertion_words import FUNCTION_WORDS
from rag_rewards.text.strict.capitals import Capitals
from rag_rewards.text.strict.parts import Span
from rag_rewards.text.strict.questions import asks_for_winner, is_choice, names_in
from rag_rewards.text.word_forms import plain
from rag_rewards.text.words import EDGES, Word


class Candidates:
    """Tests whether words can be another answer than a mention.

    words     the words of the text
    capitals  the words with capitals
    question  the text of the question
    """

    def __init__(self, words: Sequence[Word], capitals: Capitals, question: str) -> None:
        self._words = words
        self._capitals = capitals
        self._question = question
        self.question = stems_of(question)
        self.has_question = bool(question.strip())
        self.is_choice = is_choice(question)
        self.asks_for_winner = asks_for_winner(question)

    def is_name(self, text: str) -> bool:
        """Return whether a word is a number, or has a capital somewhere in the text."""
        return text[:1].isdecimal() or text in self._capitals

    def head(self, first: int, last: int) -> Word:
        """Return the word of a mention that shows its kind: "1994" of "published in 1994"."""
        mention = self._words[first : last + 1]
        names = (word for word in mention if self.is_name(word.text) and _is_long(word.text))
        return next(names, None) or next(
            (word for word in mention if word.text not in FUNCTION_WORDS), mention[0]
        )

    def is_candidate(self, word: Word, mention: Word) -> bool:
        """Return whether a word can be an answer of the same kind as a mention."""
        text, own = word.text, mention.text
        if text[:1].isdecimal() or own[:1].isdecimal():
            return text[:1].isdecimal() and own[:1].isdecimal()
        if text in FUNCTION_WORDS or len(text) < 2 or stem(text) in self.question:
            return False
        if len(word.pieces) > 4:
            return False  # a clause of a script without spaces
        if text.endswith("ly") and not self.is_name(text):
            return False  # "It is simply Paris"
        return self.is_name(text) or not self.is_name(own)

    def is_asked(self, at: int) -> bool:
        """Return whether a word is a name that the question contains."""
        text = self._words[at].text
        return self.is_name(text) and plain(text) in names_in(self._question)

    def is_item(self, span: Span, mention: Word) -> bool:
        """Return whether an item of a list can be an answer of the same kind as a mention.

        "A singer" is none beside a name, and neither are the words of the question.
        """
        content = self._content(span)
        if not content:
            return True
        if self._are_asked(content):
            return False
        return not self.is_name(mention.text) or any(map(self.is_name, content))

    def is_repeated(self, span: Span) -> bool:
        """Return whether the question contains all words of a span, except function words."""
        content = self._content(span)
        return bool(content) and self._are_asked(content)

    def _content(self, span: Span) -> list[str]:
        """Return the words of a span without function words."""
        texts = [word.text for word in self._words[slice(*span)]]
        return [text for text in texts if text not in FUNCTION_WORDS]

    def _are_asked(self, texts: Sequence[str]) -> bool:
        """Return whether the question contains all words."""
        return all(stem(text) in self.question for text in texts)


def _is_long(text: str) -> bool:
    return len(text) > 1 or text.isdecimal()


def stem(word: str) -> str:
    """Return the beginning of a word, which its inflected forms share."""
    if not word.isascii():
        word = plain(word)
    return word[: 4 if len(word) > 5 else 3] if word.isascii() else word


@lru_cache(maxsize=4096)
def stems_of(question: str) -> frozenset[str]:
    """Return the stems of the words of a question, without function words."""
    words = {token.strip(EDGES) for token in fold(question[:10_000]).split()}
    return frozenset(stem(word) for word in words - FUNCTION_WORDS if word)

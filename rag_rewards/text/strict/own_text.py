"""The part of a response that the model states itself.

Citation markers, quoted lines, document passages and list numbering do not belong to it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import ARTICLES, MARKER, Normalizer, fold
from rag_rewards.text.quantities import numbers
from rag_rewards.text.strict.assertion_words import FUNCTION_WORDS
from rag_rewards.text.words import EDGES, pieces_of

# "1. Rome", "- Rome", "2) Rome", "(b) Rome": the label or bullet of an item is not a word. An
# initial looks like a label ("John F. Kennedy"); the gold answers distinguish them.
_NUMBERING = re.compile(
    r"(?:^|\n)[ \t]{0,8}[-*•][ \t]"
    r"|(?<!\S)\(?(?:(?P<number>\d{1,2})|(?P<letter>[a-z]))[.)](?=\s)"
    r"|\s(?:[-–—+→•·]|->)\s"
)
# Every match of _NUMBERING contains such an end, which is found much faster.
_END_OF_LABEL = re.compile(r"[-–—+→•·*>.)](?=\s)(?:(?<=[-–—+→•·*>])|(?<=\b[a-z\d].)|(?<=\b\d\d.))")
_LABEL = re.compile(r"\d{1,2}|[a-z]")
_MOST_FORMS = 1024  # neighbors whose normalized form is computed once
_NEIGHBOR = 64  # characters that are searched for the words beside a label
_SHORTEST_REMARK, _LONGEST_REMARK = 3, 400  # words, characters
_SHORT_WORDS = frozenset(("i", "a", "", "&"))
# Document text in a response is not a statement of the model.
_FORGED_LINE = re.compile(
    r"(?i)\n[ \t]{0,8}(?:>[^\n]*|"
    # A labelled passage ends at the next blank line.
    r"(?:(?:document|doc|passage|source|sources|title|references?)\b[ \t]{0,8}"
    r"(?:\[?\d{1,3}\]?)?[ \t]{0,8}:|\[\d{1,3}\][ \t]{0,8}(?:title|\())[^\n]*(?:\n[^\n]+)*)"
)
# Chinese and Japanese have no spaces, so that spaces are added after their marks.
_CJK_MARKS = re.compile("([、。；！？：,;!?:])(?=[\u3040-\u30ff\u3400-\u9fff])")
_BLOCK = re.compile(r"</?([a-z_]{2,24})(?:\s[^<>]{0,200})?>")
_SOURCE = re.compile(r"\bsources?[ \t]{0,8}:[^\n]*")


def without_forgeries(text: str) -> str:
    """Return a text without quoted lines and labelled passages of documents.

    >>> without_forgeries("It is Rome.\\nDocument 1: Paris is large.")
    'It is Rome.\\n'
    """
    return _without_forged_lines(text) if "\n" in text else text


def _without_forged_lines(text: str) -> str:
    lines = f"\n{text}"
    own = _FORGED_LINE.sub("\n", lines)
    return own if _FORGED_LINE.match(lines) else own[1:]


def own_text(text: str, initials: Initials) -> str:
    """Return a folded text without markers, quoted lines, blocks of document text and numbering."""
    if "<" in text:
        text = _without_blocks(text)
    if not text.isascii():
        text = _CJK_MARKS.sub(r"\1 ", text)
    text = _without_forged_lines(text)
    if "source" in text:
        text = _SOURCE.sub(" ", text)
    if "[" in text or not text.isascii() or "(" in text:
        text = _without_markers(text)
    text = text.replace(" as well as ", " and ").replace("\t", "\n")
    return _NUMBERING.sub(initials.separated, text) if _END_OF_LABEL.search(text) else text


_LONGEST_NAMES = 400  # characters
_SPACE_BEFORE_MARK = re.compile(r"(?<! ) {1,3}(?=[,;.])")


def _without_markers(text: str) -> str:
    """Return a text without citation markers. Markers separate names: "Rome [1] Paris [2]"."""
    bare = MARKER.sub("\0", text)
    if "\0" not in bare:
        return text
    if len(text) <= _LONGEST_NAMES:
        pieces = [piece.split() for piece in bare.split("\0")]
        if sum(map(bool, pieces)) > 1 and all(map(_is_name, pieces)):
            return bare.replace("\0", "\n")
    return _SPACE_BEFORE_MARK.sub("", bare.replace("\0", " "))


def _is_name(words: list[str]) -> bool:
    """Return whether words can be a name: up to four words, none a function word."""
    return len(words) <= 4 and FUNCTION_WORDS.isdisjoint(word.strip(EDGES) for word in words)


_GLUED_INITIALS = re.compile(r"(?<![^\W\d_])[^\W\d_]\.(?=[^\W\d_])")

_Place = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
"""The normalized words before and after a label; None where the gold answer begins or ends."""


class Initials:
    """Single letters and numbers of the gold answers, which look like labels in a text.

    A label belongs to a name if it has the same neighbors as in a gold answer: "f." between
    "john" and "kennedy". A gold answer that is a single letter or number has no neighbors; see
    `_is_alone`.
    """

    def __init__(self, gold: Sequence[Sequence[str]], normalize: Normalizer) -> None:
        self._gold, self._normalize = gold, normalize
        self._counts: Counter[str | None] | None = None
        self._item_numbers: set[str] | None = None
        self._forms: dict[str, tuple[str, ...]] = {}

    @lazy
    def _places(self) -> dict[str, set[_Place]]:
        places: dict[str, set[_Place]] = {}
        for alias in itertools.chain.from_iterable(self._gold):
            alias = _GLUED_INITIALS.sub(r"\g<0> ", fold(alias))  # "J.R.R. Reed"
            words = [token.strip(EDGES) for token in alias.split()]
            forms = [None, *(pieces_of(word, self._normalize) for word in words), None]
            for i, word in enumerate(words):
                if _LABEL.fullmatch(word):
                    places.setdefault(word, set()).add((forms[i], forms[i + 2]))
                elif 0 < i < len(words) - 1 and word.isalpha():  # "Anna M. Reed"
                    places.setdefault(word[0], set()).add((forms[i], forms[i + 2]))
        return places

    def separated(self, match: re.Match[str]) -> str:
        """Return the text that replaces a bullet or label: a line break, or the initial."""
        kind = match.lastgroup
        if kind is None or not (places := self._places.get(match[kind])):
            return match[0] if kind == "number" and self._ends_sentence(match) else "\n"
        label = match[kind]
        before, after = self._form_before(match), self._form_after(match)
        if (before, after) in places:
            return label  # its full stop does not end a sentence
        if (None, after) in places and label not in ARTICLES:  # "A." would begin an apposition
            is_inside_line = match.string[: match.start()].rstrip(" \t")[-1:].isalnum()
            return label if is_inside_line else f"\n{label}"
        if (before, None) in places:
            return f"{label}. "
        if (None, None) in places and self._is_alone(match):
            return match[0]
        return match[0] if kind == "number" and self._ends_sentence(match) else "\n"

    def _ends_sentence(self, label: re.Match[str]) -> bool:
        """Return whether a number ends a sentence, as in "It is 12. It is odd.".

        A number at the beginning of a line, in parentheses, or one below or above another label
        begins an item.
        """
        if label[0] != f"{label['number']}.":
            return False
        if self._item_numbers is None:
            self._item_numbers = _numbers_of_items(label.string)
        if label["number"] in self._item_numbers:
            return False
        before = _text_before(label)
        return before.rpartition("\n")[2].rstrip()[-1:].isalpha()

    def _is_alone(self, label: re.Match[str]) -> bool:
        """Return whether a label does not number an item: "The answer is 5. It is odd.".

        It is the only one of its kind, and it does not begin a line that continues after it. At the
        beginning of the text, a sentence without another such answer can follow: "5. That is odd.".
        """
        text = label.string
        if self._counts is None:
            self._counts = Counter(match.lastgroup for match in _NUMBERING.finditer(text))
        if self._counts[label.lastgroup] > 1:
            return False
        kind = label.lastgroup or ""
        line_before = text[: label.start()].rpartition("\n")[2]
        rest = text[label.end() :]
        if line_before.strip() or not rest.strip():
            return True
        return not text[: label.start()].strip() and _is_remark(rest, label[kind])

    def _form_before(self, match: re.Match[str]) -> tuple[str, ...]:
        return self._form(_text_before(match).rsplit(None, 1)[-1:])

    def _form_after(self, match: re.Match[str]) -> tuple[str, ...]:
        return self._form(match.string[match.end() : match.end() + _NEIGHBOR].split(None, 1)[:1])

    def _form(self, tokens: list[str]) -> tuple[str, ...]:
        if not tokens:
            return ()
        form = self._forms.get(tokens[0])
        if form is None:
            form = pieces_of(tokens[0].strip(EDGES), self._normalize)
            if len(self._forms) < _MOST_FORMS:
                self._forms[tokens[0]] = form
        return form


def _text_before(label: re.Match[str]) -> str:
    """Return the text that is searched for the words before a label."""
    start = label.start()
    return label.string[max(start - _NEIGHBOR, 0) : start]


def _numbers_of_items(text: str) -> set[str]:
    """Return the numbers that label items, because they are one below or above another label."""
    labels = {label["number"] for label in _NUMBERING.finditer(text)} - {None}
    values = set(map(int, labels))
    return {label for label in labels if not values.isdisjoint((int(label) - 1, int(label) + 1))}


def _is_remark(text: str, label: str) -> bool:
    """Return whether a text after a single letter or number names no other letter or number.

    An item of a list ("2. Rome") is shorter.
    """
    if len(text) > _LONGEST_REMARK:
        return False
    words = numbers([word.strip(EDGES) for word in text.split()])
    others = (word for word in words if word != label and word not in _SHORT_WORDS)
    return len(words) >= _SHORTEST_REMARK and not any(
        len(word) == 1 or any(map(str.isdigit, word)) for word in others
    )


def _without_blocks(text: str) -> str:
    """Return a text without blocks such as <document>…</document>, also an unclosed one."""
    pieces, at, inside = [], 0, ""
    for match in _BLOCK.finditer(text):
        closing = match[0][1] == "/"
        if not inside and not closing:
            pieces.append(text[at : match.start()])
            inside = match[1]
        elif closing and match[1] == inside:
            at, inside = match.end(), ""
    if not inside:
        pieces.append(text[at:])
    return "\n".join(pieces)

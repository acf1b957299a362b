"""Strict substring matching: whether a text asserts a gold answer, instead of mentioning it.

A mention of the answer begins and ends at word boundaries. It is an assertion if

- its clause contains no negation before it, and nothing after it denies it;
- it is not one of two alternatives, and not an item of a list of three or more;
- it is not part of a question, of a quotation, or of document text in the response.

`own_text` removes document text, `text.words` splits the text into words, and `assertions` reads
the words around a mention. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from rag_rewards.text.hidden import shown
from rag_rewards.text.languages import equivalent_marks
from rag_rewards.text.languages.glosses import glossed
from rag_rewards.text.languages.word_separation import languages_in, separated
from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import Normalizer, fold, without_invisible
from rag_rewards.text.strict.assertions import Assertions
from rag_rewards.text.strict.candidates import Candidates
from rag_rewards.text.strict.capitals import Capitals
from rag_rewards.text.strict.glued_words import unglued
from rag_rewards.text.strict.gold_pieces import GoldPieces, gold_pieces
from rag_rewards.text.strict.gold_words import read_gold
from rag_rewards.text.strict.longer_names import LongerNames
from rag_rewards.text.strict.mentions import Kind, Mention, OtherForms
from rag_rewards.text.strict.own_text import Initials, own_text
from rag_rewards.text.strict.parts import Parts
from rag_rewards.text.strict.questions import Echo, accepts_coarser_dates, answers_asked_for
from rag_rewards.text.strict.rivals import Rivals
from rag_rewards.text.strict.written_dates import can_be_in_date
from rag_rewards.text.strict.yes_no import says_both
from rag_rewards.text.words import Word, joined, positions_of, read_words

_MAX_MENTIONS = 64  # an answer that has asserted nothing by then asserts nothing


def strict_contains(
    text: str,
    aliases: Sequence[str],
    normalize: Normalizer,
    *,
    required: int = 1,
    question: str = "",
) -> bool:
    """Return whether a text asserts one of the aliases.

    `required` is the number of answers that the question asks for. A list of that length is an
    answer, a longer list is a guess. Words that repeat the `question` neither deny an answer nor
    name another one.

    >>> from rag_rewards.text.normalize import squad
    >>> [strict_contains(t, ["Paris"], squad) for t in (
    ...     "It is Paris.", "definitely not Paris", "Parisian", "Paris, Rome or Berlin",
    ...     "either Paris or Rome", "Not Rome, but Paris")]
    [True, False, False, False, False, True]
    """
    read = StrictText(text, normalize, [aliases], required=required, question=question)
    return read.contains(aliases)


class StrictText:
    """A text that is parsed once and then searched for several gold answers.

    `gold` contains the aliases of each answer. `required` is the number of answers that the
    question asks for; the default is the length of `gold`. `question` is the text of the question.
    """

    def __init__(
        self,
        text: str,
        normalize: Normalizer,
        gold: Sequence[Sequence[str]],
        *,
        required: int | None = None,
        question: str = "",
    ) -> None:
        self._normalize = normalize
        text = _spaced(shown(without_invisible(text)), gold)
        self._folded = own_text(fold(text), Initials(gold, normalize))
        self._text = text
        self._question = question
        self._words, self._glossed = self._read_words(gold)
        self._pieces = joined([piece for word in self._words for piece in word.pieces])
        self._required = _required(len(gold) if required is None else required, question)

    def _read_words(self, gold: Sequence[Sequence[str]]) -> tuple[list[Word], list[str] | None]:
        """Return the words of the text. The rules read words of other languages in English.

        If the text contains such words, all words as they are written are also returned.
        """
        text = self._folded
        languages = languages_in(text)
        if languages:
            text = text.translate(equivalent_marks())
            text = separated(text, languages, chain.from_iterable(gold))
        words = read_words(text.replace("、", "、 "), self._normalize)
        return glossed(words, languages) if languages else (words, None)

    # Many texts contain no mention, so that not everything below is needed for each text.

    @lazy
    def _written(self) -> list[str]:
        """The words as they are written."""
        return self._parts.texts if self._glossed is None else self._glossed

    @lazy
    def _longer(self) -> LongerNames:
        return LongerNames(self._words, self._text, self._question)

    @lazy
    def _other_forms(self) -> OtherForms:
        question = self._question if accepts_coarser_dates(self._question) else ""
        return OtherForms(self._written, self._words, self._longer, question)

    @lazy
    def _parts(self) -> Parts:
        return Parts(self._words)

    @lazy
    def _capitals(self) -> Capitals:
        return Capitals(self._text)

    @lazy
    def _candidates(self) -> Candidates:
        return Candidates(self._words, self._capitals, self._question)

    @lazy
    def _rivals(self) -> Rivals:
        return Rivals(self._parts, self._candidates)

    @lazy
    def _assertions(self) -> Assertions:
        echo = Echo(self._parts, self._question)
        return Assertions(self._parts, self._required, echo, self._capitals, self._candidates)

    @lazy
    def _owner(self) -> list[int]:
        """The word of each piece."""
        return [i for i, word in enumerate(self._words) for _ in word.pieces]

    @lazy
    def _joined_texts(self) -> str:
        return joined(self._parts.texts)

    def contains(self, aliases: Sequence[str]) -> bool:
        """Return whether the text asserts one of the aliases."""
        return self.find(aliases) is not None

    def find(self, aliases: Sequence[str]) -> Kind | None:
        """Return the kind of the mention that asserts one of the aliases, or None."""
        if says_both(self._folded, aliases):
            return None
        exact: list[Mention] = []
        for gold in gold_pieces(aliases, self._normalize):
            if gold.is_plain:
                exact.extend(self._mentions(gold) if gold.pieces in self._pieces else ())
            elif self._asserts_last_article(gold):
                return "exact"
        kind = self._asserted(exact, aliases) if exact else None
        return kind or self._asserted_in_other_form(exact, aliases)

    def _asserted_in_other_form(
        self, exact: Sequence[Mention], aliases: Sequence[str]
    ) -> Kind | None:
        """Return the kind of the first mention that the text asserts, in any form."""
        find, forms = self._other_forms.find, read_gold(aliases)
        dates = [form.date for form in forms if form.date is not None]
        others = [
            mention
            for form in forms
            for mention in find(form)
            if mention.kind != "coarser date" or form.date is None or form.date.is_only(dates)
        ]
        return self._asserted([*exact, *others], aliases) if others else None

    def _asserted(self, mentions: Sequence[Mention], aliases: Sequence[str]) -> Kind | None:
        """Return the kind of the first mention that the text asserts."""
        whole = [
            mention
            for mention in _widest(mentions)
            if not self._longer.contain(mention.first, mention.last)
            and not self._has_other_date(mention, aliases)
        ]
        gold = frozenset(at for each in whole for at in range(each.first, each.last + 1))
        return next(
            (
                kind
                for first, last, kind in whole
                if self._assertions.asserts(first, last, gold)
                and not self._rivals.precede(first, last, self._required)
            ),
            None,
        )

    def _has_other_date(self, mention: Mention, aliases: Sequence[str]) -> bool:
        """Return whether a mention of a year is in a date that the gold answers contradict.

        If the gold answers are "1999" and "May 5, 1999", then "May 6, 1999" is wrong.
        """
        if not can_be_in_date(self._written[mention.first]):
            return False
        dates = [form.date for form in read_gold(aliases) if form.date is not None]
        date = self._other_forms.date_at(mention.first, mention.last) if dates else None
        if date is None:
            return False
        same_year = [each for each in dates if not each.year or each.year == date.year]
        return bool(same_year) and all(map(date.contradicts, same_year))

    def _mentions(self, gold: GoldPieces) -> Iterator[Mention]:
        """Yield the first mentions of an alias."""
        for start in islice(positions_of(gold.pieces, self._pieces), _MAX_MENTIONS):
            yield Mention(self._owner[start], self._owner[start + gold.width - 1], "exact")

    def _asserts_last_article(self, gold: GoldPieces) -> bool:
        """Return whether the text asserts an alias without pieces, or one that ends in an article.

        The last word of "Vitamin A" only looks like an article, and so does the word of "A".
        """
        if not gold.words:  # a gold answer without a word is compared as it is written
            written = gold.alias.strip().casefold()
            return bool(written) and written in self._folded
        if len(gold.words) == 1:
            return self._is_named(gold.words)
        starts = islice(positions_of(joined(gold.words), self._joined_texts), _MAX_MENTIONS)
        return any(self._assertions.asserts(at, at + len(gold.words) - 1) for at in starts)

    def _is_named(self, words: Sequence[str]) -> bool:
        """Return whether the text asserts a letter that looks like an article, as in "It is A."."""
        texts = self._parts.texts
        starts = islice(positions_of(joined(words), self._joined_texts), _MAX_MENTIONS)
        return any(
            (self._words[at].after or texts[at + 1 : at + 2] in ([], ["is"], ["was"]))
            and self._assertions.asserts(at, at)
            for at in starts
        )


# "Reed12." and "19731.": the number of a footnote after a word or a year at the end of a sentence.
_FOOTNOTE = re.compile(
    r"[1-9](?:(?<=[^\W\d_][^\W\d_][^\W\d_].)|(?<=\b1[6-9]\d\d.)|(?<=\b20\d\d.)"
    r"|(?<=\b1[6-9]\d0s.)|(?<=\b20\d0s.))\d?(?=[.!?](?:\s|$))"
)
# The same as a raised number ("Reed⁶"), which is no exponent ("km²") after three letters.
_RAISED = re.compile("(?:(?<=[^\\W\\d_][^\\W\\d_][^\\W\\d_])|(?<=[.,;:!?)]))[⁰¹²³⁴-⁹]+")


def _spaced(text: str, gold: Sequence[Sequence[str]]) -> str:
    """Return a text with spaces between glued words and without the numbers of footnotes.

    The question mark of a gold answer ("Who Goes There?") does not make its mention a question.
    """
    text = unglued(text, gold)
    if not text.isascii():
        text = _RAISED.sub("", text)
    if "?" in text:
        text = _without_question_marks(text, [a for aliases in gold for a in aliases if "?" in a])
    if _FOOTNOTE.search(text) and not any(
        _FOOTNOTE.search(f"{alias}.") for aliases in gold for alias in aliases
    ):
        return _FOOTNOTE.sub("", text)
    return text


def _without_question_marks(text: str, aliases: Sequence[str]) -> str:
    for alias in aliases:
        if len(alias) > 2 and alias.lower() in text.lower():
            pattern = re.compile(re.escape(alias), re.IGNORECASE)
            text = pattern.sub(lambda match: match[0].replace("?", ""), text)
    return text


def _required(required: int, question: str) -> int:
    """Return how many answers a response can name."""
    return answers_asked_for(question) if required == 1 and question else required


def _widest(mentions: Sequence[Mention]) -> Iterator[Mention]:
    """Yield the mentions that no wider mention contains.

    "Atlantic" in "Atlantic Ocean is wrong" is not a mention of its own.
    """
    reached = -1
    for mention in sorted(mentions, key=lambda each: (each.first, -each.last)):
        if mention.last > reached:
            reached = mention.last
            yield mention

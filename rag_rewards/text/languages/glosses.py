"""Words of other languages with the English words that the rules read in their place.

The rules about assertions are written for English words: "nicht Rom oder Paris" is read as "not
Rom or Paris". Only `Word.text` changes. The pieces that are compared with gold answers stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text.languages import foreign
from rag_rewards.text.normalize import fold
from rag_rewards.text.words import Word


class _Gloss(NamedTuple):
    """A phrase and its English words.

    final     whether it negates what is before it
    is_plain  whether it is one word for one word, and the words beside it do not matter
    """

    phrase: tuple[str, ...]
    english: tuple[str, ...]
    final: bool
    is_plain: bool


_DENIALS = frozenset(("isn't", "wrong"))
_CLAUSE_WORDS = frozenset(("but", "because"))
_PLAIN = frozenset("is are was has in for of the a which only and correct answer yes".split())
_SENTENCE_ENDS = frozenset(".!?;—。！？\n")


def glossed(words: Sequence[Word], codes: tuple[str, ...]) -> tuple[list[Word], list[str]]:
    """Return words in English and, for each of them, the text as it is written.

    The texts are English where the tables of the languages contain them. An English word without
    a word in the text has an empty text.
    """
    table = _table(codes)
    words = list(words)
    out: list[Word] = []
    written: list[str] = []
    clause = at = 0
    while at < len(words):
        word = words[at]
        gloss = _gloss_at(words, at, table) if word.text in table else None
        if gloss is None:
            out.append(word)
            written.append(word.text)
        elif gloss.is_plain:
            out.append(Word(gloss.english[0], word.pieces, word.before, word.after))
            written.append(word.text)
        else:
            here = words[at : at + len(gloss.phrase)]
            at += len(here) - 1
            if gloss.final and len(out) > clause:
                # The negation is before what it negates, as in English.
                out.insert(clause, Word("not", (), "", ""))
                written.insert(clause, "")
                here[-1] = _with_after(here[-1], "." + here[-1].after)
            if not gloss.english and at + 1 < len(words) and not here[-1].after:
                words[at + 1] = _merged(here[0], words[at + 1])
            else:
                _append(out, here, gloss.english or ("the",))
                written += [each.text for each in here]
                written += [""] * (len(out) - len(written))
        if (gloss and not gloss.is_plain) or word.after:
            clause = len(out) if out and _ends_clause(out[-1], gloss) else clause
        at += 1
    return out, written


def _append(out: list[Word], here: list[Word], english: tuple[str, ...]) -> None:
    """Append words with English texts. A further English word has no pieces."""
    if english[0] in ("not", "wrong") and out and not out[-1].after and not here[0].before:
        english = ("isn't",)  # "Париж не столица" denies what is before the negation
    if english == ("it",) and out and out[-1].after == "\n":
        out[-1] = _with_after(out[-1], "")  # "Париж — это" has a dash in place of a verb
    if english == ("or",) and here[-1].after == ".":
        here[-1] = _with_after(here[-1], "")  # an abbreviation
    if english == ("that",) and out and out[-1].after == ",":
        out[-1] = _with_after(out[-1], "")  # the comma does not end a negation: "nicht wahr, dass"
    if len(here) == len(english) == 1:
        word = here[0]
        out.append(Word(english[0], word.pieces, word.before, word.after))
        return
    for i, word in enumerate(here):
        # A phrase with more words than its English one repeats the first English word.
        text = english[max(i - max(len(here) - len(english), 0), 0)]
        after = word.after if i + 1 == len(here) else ""
        out.append(Word(text, word.pieces, word.before, after))
    if len(english) > len(here):
        after = out[-1].after
        out[-1] = _with_after(out[-1], "")
        out.extend(Word(text, (), "", "") for text in english[len(here) :])
        out[-1] = _with_after(out[-1], after)


def _merged(article: Word, word: Word) -> Word:
    return Word(word.text, article.pieces + word.pieces, article.before, word.after)


def _with_after(word: Word, after: str) -> Word:
    return Word(word.text, word.pieces, word.before, after)


def _ends_clause(word: Word, gloss: _Gloss | None) -> bool:
    if not _SENTENCE_ENDS.isdisjoint(word.after):
        return True
    if gloss is None:
        return False
    return word.text in _CLAUSE_WORDS or bool(word.after and word.text in ("is", "are"))


def _gloss_at(words: Sequence[Word], at: int, table: dict[str, list[_Gloss]]) -> _Gloss | None:
    for gloss in table.get(words[at].text, ()):
        size = len(gloss.phrase)
        if size == 1:
            return gloss
        here = words[at : at + size]
        if tuple(word.text for word in here) == gloss.phrase and not any(
            word.after for word in here[:-1]
        ):
            return gloss
    return None


@lru_cache
def _table(codes: tuple[str, ...]) -> dict[str, list[_Gloss]]:
    """Return the glosses by their first word, the longest first. The first language wins."""
    table: dict[str, list[_Gloss]] = {}
    seen: set[tuple[str, ...]] = set()
    for code in codes:
        language = foreign(code)
        for glosses in (language.words, language.before, language.after):
            for english, entries in glosses.items():
                final = language.final_negation and english in _DENIALS
                for entry in entries:
                    phrase = tuple(fold(entry).split())
                    if phrase not in seen:
                        seen.add(phrase)
                        is_plain = len(phrase) == 1 and english in _PLAIN
                        gloss = _Gloss(phrase, tuple(english.split()), final, is_plain)
                        table.setdefault(phrase[0], []).append(gloss)
    for found in table.values():
        found.sort(key=lambda gloss: -len(gloss.phrase))
    return table

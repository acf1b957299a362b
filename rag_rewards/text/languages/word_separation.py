"""Spaces around what is attached to a mention of a gold answer in other languages.

Chinese, Japanese and Thai are written without spaces. Other languages attach particles, prefixes
or endings to a name: 파리입니다, وباريس, l'Italie, Париже. The tables in `text.languages` list what
can be attached.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from rag_rewards.text.languages import FOREIGN, ForeignLanguage, Glosses, foreign
from rag_rewards.text.normalize import fold

_MAX_MENTIONS = 64  # of one gold answer
_LONGEST = 16  # characters beside a mention that are compared with the table
_LONGEST_CLAUSE = 60  # characters on one side of a mention
_QUOTES = re.compile('「[^「」\n]{1,60}」|『[^『』\n]{1,60}』|"[^"\n]{1,60}"')
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]")
_SEGMENT_MARKS = re.compile(r"""[\s,.;:!?()\[\]"'«»、。「」『』（）]""")


def languages_in(text: str) -> tuple[str, ...]:
    """Return the codes of the languages other than English that a folded text contains."""
    codes = []
    if not text.isascii() and _any_script().search(text):
        codes = [code for code in FOREIGN if code not in _latin() and _script(code).search(text)]
    words = text.split()
    if not text.isascii():
        words += [word.rstrip(".,;:!?") for word in words if not word.isascii()]
    if not _all_cues().isdisjoint(words):
        codes += _in_latin_letters(frozenset(words))
    if "'" in text and "fr" not in codes and _ELISION.search(text):
        codes.append("fr")
    return tuple(codes)


def _in_latin_letters(words: frozenset[str]) -> list[str]:
    """Return the languages of which words are cues.

    A language is left out if another one explains all of its cues and further ones: "o" is an
    article beside the Portuguese "foi", and it means "or" in Spanish.
    """
    found = {code: cues & words for code, cues in _latin().items() if not cues.isdisjoint(words)}
    return [
        code
        for code, cues in found.items()
        if not any(
            code != other and cues <= _words(other) and not further <= _words(code)
            for other, further in found.items()
        )
    ]


def separated(text: str, codes: Sequence[str], aliases: Iterable[str]) -> str:
    """Return a folded text with spaces between mentions, what is attached to them, and markers.

    >>> separated("파리입니다", ["ko"], ["파리"])
    '파리 입니다'
    """
    if not codes:
        return text
    names = sorted({name for alias in aliases if (name := fold(alias).strip())}, key=len)
    for code in codes:
        text = _Separator.of(code).separated(text, names)
    return text


class _Separator:
    """The patterns of one language."""

    def __init__(self, language: ForeignLanguage) -> None:
        self._language = language
        before, after = entries(language.before), entries(language.after)
        if not language.spaced:
            markers = entries(language.words)
            before, after = before + markers, after + markers
        self._attached_before = re.compile(f"(?:{_any_of(before)})")
        if language.spaced:
            first = f"(?<![{language.letters}])(?:{_any_of(before)})"
            self._ends_with = re.compile(rf"{first}\Z|(?:{_any_of(entries(language.joins))})\s\Z")
        else:
            self._ends_with = re.compile(rf"(?:{_any_of(before)})\s?\Z")
        most = 3 if language.spaced else 1
        self._attached_after = re.compile(f"(?:{_any_of(after)}){{1,{most}}}")
        # A letter with accents in NFC is one character; marks of Indic and Arabic are letters here.
        self._run_after = re.compile(f"[{language.letters}]*")
        self._run_before = re.compile(f"[{language.letters}']*\\Z")
        self._letter = re.compile(f"[{language.letters}]")
        self._markers = None if language.spaced else re.compile(_any_of(entries(language.words)))
        self._clause = re.compile(_any_of(language.clause_markers)) if language.commas else None
        self._clause_or_marker = re.compile(
            _any_of([*language.clause_markers, *entries(language.words)])
        )
        self._clitic = (
            re.compile(rf"(?<!\w)({'|'.join(language.clitics)})'(?=\w|\Z)")
            if language.clitics
            else None
        )
        self._endings = sorted(map(fold, language.endings), key=len, reverse=True)
        self._word = re.compile(f"[{language.letters}]+")
        commas = re.escape(language.commas) or "\x00"
        self._commas = re.compile(rf"((?<!\d)[{commas}]|[{commas}](?!\d)|[.;:!?。！？\n])")

    @staticmethod
    @lru_cache
    def of(code: str) -> _Separator:
        return _Separator(foreign(code))

    def separated(self, text: str, names: Sequence[str]) -> str:
        if self._endings:
            text = self._without_endings(text, names)
        if not self._language.spaced:
            text = _QUOTES.sub(r" \g<0> ", text)
        if self._clause:
            text = self._with_clause_ends(text, self._clause)
        pieces: list[str] = []
        end = 0
        for first, last in self._mentions(text, names):
            pieces.append(self._gap(text[end:first], after=end > 0, before=True))
            pieces.append(text[first:last])
            if self._continues_as_name(text, first, last):
                pieces.append(f" {self._language.words['or'][0]} ")
            end = last
        pieces.append(self._gap(text[end:], after=end > 0, before=False))
        return _spaced(pieces)

    def _mentions(self, text: str, names: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the positions of the longest names that no letters of other words touch."""
        found = [(at, at + len(name)) for name in names for at in _positions(text, name)]
        reached = 0
        for first, last in sorted(found, key=lambda span: (span[0], -span[1])):
            if first >= reached and self._is_mention(text, first, last):
                reached = last
                yield first, last

    def _is_mention(self, text: str, first: int, last: int) -> bool:
        if _is_one_word(text, first) or _is_one_word(text, last):
            return False
        if not self._language.spaced:
            return True
        following = self._run_after.match(text, last, last + _LONGEST)
        run = following[0] if following else ""
        if run and not self._attached_after.fullmatch(run):
            return False
        preceding = self._run_before.search(text[max(first - _LONGEST, 0) : first])
        run = preceding[0] if preceding else ""
        return not run or bool(
            self._attached_before.fullmatch(run) or (self._clitic and self._clitic.fullmatch(run))
        )

    def _gap(self, gap: str, *, after: bool, before: bool) -> str:
        """Return the text between two mentions with spaces around particles and markers."""
        head = tail = ""
        if after and (match := self._attached_after.match(gap)):
            head, gap = match[0], gap[match.end() :]
        if before and (match := self._ends_with.search(gap, max(len(gap) - _LONGEST, 0))):
            gap, tail = gap[: match.start()], match[0]
        if self._markers:
            gap = self._markers.sub(_with_spaces, gap)
        if self._clitic:
            gap = self._clitic.sub(r"\1 ", gap)
        return _spaced([head, gap, tail]) if head or tail else gap

    def _continues_as_name(self, text: str, first: int, last: int) -> bool:
        """Return whether names follow a mention without any word between them: 巴黎罗马."""
        if _is_katakana(text, first) or _is_katakana(text, last):
            return True  # the mention is a part of a longer name
        if self._language.spaced or not self._letter.match(text, last):
            return False
        rest = _SEGMENT_MARKS.split(text[last : last + _LONGEST_CLAUSE], maxsplit=1)[0]
        if self._attached_after.match(rest) or self._clause_or_marker.match(rest):
            return False
        start = _SEGMENT_MARKS.split(text[max(first - _LONGEST_CLAUSE, 0) : first])[-1]
        return not self._clause_or_marker.search(start) and not self._clause_or_marker.search(rest)

    def _with_clause_ends(self, text: str, clause: re.Pattern[str]) -> str:
        """Return a text whose commas between two clauses are dashes."""
        pieces = self._commas.split(text)
        are_clauses = [bool(clause.search(piece)) for piece in pieces[::2]]
        alternatives = tuple(self._language.words["or"])
        for i in range(1, len(pieces), 2):
            at = i // 2
            if (
                pieces[i] in self._language.commas
                and are_clauses[at]
                and are_clauses[at + 1]
                and not pieces[i + 1].lstrip().startswith(alternatives)
            ):
                pieces[i] = "— "  # ends a clause, but not a sentence
        return "".join(pieces)

    def _without_endings(self, text: str, names: Sequence[str]) -> str:
        """Return a text in which each case of a word of a name is the word in the name."""
        tokens = {token for name in names for token in self._word.findall(name)}
        stems = {stem: token for token in tokens for stem in self._stems(token)}
        if not stems:
            return text

        def in_name(match: re.Match[str]) -> str:
            word = match[0]
            if len(word) < _SHORTEST_STEM or word in tokens:
                return word
            return next((stems[stem] for stem in self._stems(word) if stem in stems), word)

        return self._word.sub(in_name, text)

    def _stems(self, word: str) -> Iterator[str]:
        """Yield a word, and the word without an ending, if at least three letters remain."""
        if len(word) >= _SHORTEST_STEM:
            yield word
        for ending in self._endings:
            if len(word) - len(ending) >= _SHORTEST_STEM and word.endswith(ending):
                yield word[: -len(ending)]


def _with_spaces(match: re.Match[str]) -> str:
    return f" {match[0]} "


_SHORTEST_STEM = 3
_ELISION = re.compile(r"'(?:(?<=\b[cjlns]')|(?<=\bqu'))(?=[^\W\d_]{2})")  # French


def entries(glosses: Glosses) -> list[str]:
    """Return the folded words of a table, the longest first."""
    return sorted({fold(word) for words in glosses.values() for word in words}, key=_by_length)


def _by_length(word: str) -> tuple[int, str]:
    return -len(word), word


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern of words, the longest first. Without words, it matches nothing."""
    return "|".join(map(re.escape, sorted(map(fold, words), key=_by_length))) or r"(?!)"


def _spaced(pieces: Iterable[str]) -> str:
    """Return pieces with a space between two letters or digits that would touch."""
    out: list[str] = []
    for piece in pieces:
        if out and piece and _is_letter(out[-1][-1]) and _is_letter(piece[0]):
            out.append(" ")
        if piece:
            out.append(piece)
    return "".join(out)


def _is_letter(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char)[0] == "M"


def _is_one_word(text: str, at: int) -> bool:
    """Return whether the characters before and after a position certainly belong to one word."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    if unicodedata.category(right)[0] == "M" or right in _THAI_TRAILING or left in _THAI_LEADING:
        return True
    if left.isascii() and right.isascii():
        return left.isalnum() and right.isalnum()
    return False


def _is_katakana(text: str, at: int) -> bool:
    """Return whether the characters before and after a position are Katakana."""
    return 0 < at < len(text) and bool(_KATAKANA.match(text, at - 1) and _KATAKANA.match(text, at))


_THAI_LEADING = "เแโใไ"
_THAI_TRAILING = "ะาๅๆ"


def _positions(text: str, name: str) -> Iterator[int]:
    at = text.find(name)
    for _ in range(_MAX_MENTIONS):
        if at < 0:
            return
        yield at
        at = text.find(name, at + 1)


@lru_cache
def _latin() -> dict[str, frozenset[str]]:
    """Return the cues of the languages in Latin letters."""
    tables = {code: foreign(code) for code in FOREIGN}
    return {code: frozenset(map(fold, table.cues)) for code, table in tables.items() if table.cues}


@lru_cache
def _words(code: str) -> frozenset[str]:
    """Return the single words of a language that the table reads in English."""
    return frozenset(map(fold, entries(foreign(code).words)))


@lru_cache
def _all_cues() -> frozenset[str]:
    return frozenset().union(*_latin().values())


@lru_cache
def _script(code: str) -> re.Pattern[str]:
    return re.compile(f"[{foreign(code).letters}]")


@lru_cache
def _any_script() -> re.Pattern[str]:
    letters = "".join(foreign(code).letters for code in FOREIGN if code not in _latin())
    return re.compile(f"[{letters}]")

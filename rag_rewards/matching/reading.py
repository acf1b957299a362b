"""The words of an answer, each in the form in which answers are compared.

A word is letters, a value or a sign. Formatting, citation markers and quotation marks are no words.
In scripts without spaces, such as Chinese, Japanese and Thai, a text between signs is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache

from rag_rewards.matching.tables import tables
from rag_rewards.matching.values import Value, Word, number_of, ordinal_of, read_values
from rag_rewards.text.latex import plain_latex
from rag_rewards.text.normalize import ARTICLES, MARKER, fold

_FORMATTING = re.compile(r"(\*{1,3}|_{1,3}|`{1,3})(?=[^\s*_`])([^*_`\n]{1,300})(?<=\S)\1")
_NESTED = 3  # levels of formatting
_ELEMENT = re.compile(r"</?(?:b|i|em|strong|u|p|span|br|mark)\s?/?>", re.IGNORECASE)
_HEADING = re.compile(r"^[ \t]{0,3}(?:#{1,6}|[-*•+])[ \t]{1,3}", re.MULTILINE)
_BULLETS = frozenset("# -*•+\t")
_LOWERED = re.compile("(?<=[A-Za-z)])[\u2080-\u2089]+")
_PLAIN_WRITING = (
    (re.compile(r"(?<=[A-Za-z)])_(?:\{(\d{1,3})\}|(\d{1,3}))"), r"\1\2"),  # CO_2
    (re.compile(r"\b(\d{1,2}):00(?=\s?[ap]\.?\s?m\b)", re.IGNORECASE), r"\1"),
    (re.compile(r"(?<=\d)\s?([ap])\.?\s?m\b\.?", re.IGNORECASE), r" \1m"),  # 7 p.m.
    (re.compile(r"\bU\.?S\.?\s?(?=\$|dollars?\b)|\bUSD(?=\s?\$)"), ""),
    (re.compile(r"\bUSD\s?(?=\d)"), "$"),
    (re.compile(r"\bv(?=\d+\.\d)"), ""),  # v3.6
    (re.compile(r"(?<=\d)['’](?=[^\W\d_s])"), " "),  # 81'dir
    (re.compile(r"\((?:Doc|Document|Source|Passage) \d{1,3}\)", re.IGNORECASE), " "),
)
"""Spellings of formulas, times and amounts, and the form that is read."""
_HAS_PLAIN_WRITING = re.compile(r"[\d$]|dollar")
_NUMBERED = re.compile(r"^[ \t]{0,3}\d{1,2}[.)][ \t]+(?=[^\W\d_])", re.MULTILINE)
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    zero + digit: ord("0") + digit for zero in (0x660, 0x6F0, 0x966) for digit in range(10)
}
"""Full-width characters, and Arabic, Persian and Indian digits, as ASCII."""
_ACCENTS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f"
_ACCENT = re.compile("[\u0300-\u036f]")
_VOWELS = "\u0900-\u0963\u0971-\u0e4e"
# The vowels of many scripts are marks, which are no letters for `re`.
_MARKS = re.compile(f"[{_ACCENTS}{_VOWELS}]")
_PIECES = (
    r"(?P<plain>([A-Za-z]+)([,;:.]?)(?: |\Z))"  # most words, with the mark and the space after them
    r"|(?P<number>\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?![\d.,:/]?\d)"
    r"|(?:(?<![^\s(\[:=])[-−–]?\.?)?\d+(?:[.,:/\-–−]\d+)*)"
    r"|(?P<word>LETTER+(?:['’]LETTER+)*)|(?P<space>\s+)|(?P<sign>[\s\S])"
)
_PIECE = re.compile(_PIECES.replace("LETTER", r"[^\W\d_]"))
_PIECE_WITH_MARKS = re.compile(_PIECES.replace("LETTER", rf"(?:[^\W\d_]|[{_ACCENTS}{_VOWELS}])"))
_RANGE = re.compile(r"(\d+)[-–−](\d+)")
_QUOTES = frozenset("\"“”„‟«»‹›「」『』《》〈〉'‘’‚‛`´")
_SEPARATORS = frozenset(",.;:()[]{}!¡—・、。，；：！（）…،؛।")
"""Punctuation that separates words and means nothing else."""
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}
_SIGN_WORDS = {"&": "and", "%": "percent", "°": "degree"}
_FRACTIONS = {
    sign: Fraction(unicodedata.numeric(sign)).limit_denominator(8) for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
_APOSTROPHE = re.compile("['’]")
_CONTRACTIONS = frozenset("t re ll ve d m".split())
_LETTERS = {
    ord("ø"): "o", ord("ł"): "l", ord("đ"): "d", ord("ı"): "i", ord("æ"): "ae", ord("œ"): "oe",
}  # fmt: skip
_ABBREVIATIONS = {"mt": "mount", "st": "saint"}
_LONGEST_WORD = 40  # letters of a word that is kept in memory


def without_formatting(text: str) -> str:
    """Return a text without LaTeX, Markdown and HTML formatting and citation markers."""
    text = plain_latex(text.strip().replace("\\boxed{", "\\text{"))
    if not text.isascii():
        text = text.translate(_HALF_WIDTH)
        text = _LOWERED.sub(lambda each: unicodedata.normalize("NFKC", each[0]), text)
    if _HAS_PLAIN_WRITING.search(text):
        for pattern, plain in _PLAIN_WRITING:
            text = pattern.sub(plain, text)
    if "[" in text or "【" in text:
        text = MARKER.sub(" ", text)
    if "*" in text or "_" in text or "`" in text:
        for _ in range(_NESTED):
            text = _FORMATTING.sub(r"\2", text)
    if "<" in text:
        text = _ELEMENT.sub(" ", text)
    if "\n" in text and _NUMBERED.match(text):
        text = _NUMBERED.sub("", text)
    return _HEADING.sub("", text).strip() if "\n" in text or text[:1] in _BULLETS else text.strip()


def read_words(text: str) -> list[Word]:
    """Return the words of a text, with numbers and dates as values.

    >>> [word.key for word in read_words("The U.S. paid $1,000 on 5 March 1999.")]
    ['us', 'paid', '1000 dollar', 'on', '1999-03-05']
    """
    bare = without_formatting(text)
    if is_unspaced(bare):
        bare = with_spaces(bare)
    return read_values(_without_articles(_joined_initials(_Reader(bare).read())))


class _Reader:
    """A text whose pieces become words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[Word] = []
        self.separator, self.glued, self.hyphen = "", False, False
        self.has_quotation = False

    def read(self) -> list[Word]:
        """Return the words."""
        has_marks = not self.text.isascii() and _MARKS.search(self.text)
        for match in (_PIECE_WITH_MARKS if has_marks else _PIECE).finditer(self.text):
            kind, piece = match.lastgroup, match[0]
            if kind == "plain":
                self._add_plain(match[2], match[3])
            elif kind == "word":
                self._add_letters(piece)
            elif kind == "space":
                self.glued = False
                self.separator += "\n" * ("\n" in piece)
            elif kind == "number":
                self._add_number(piece)
            elif piece not in _QUOTES or self._is_prime():
                self._add_sign(piece, self.text[match.end() : match.end() + 1])
        return self.words

    def _is_prime(self) -> bool:
        """Return whether a mark follows a number or a letter, and ends no quotation: 5', F'."""
        if not self.glued:
            self.has_quotation = True
            return False
        last = self.words[-1]
        return not self.has_quotation and (last.value is not None or len(last.folded) == 1)

    def _add(self, word: Word, *, glues: bool = True) -> None:
        if self.separator or self.glued or self.hyphen:
            word = word._replace(separator=self.separator, glued=self.glued, hyphen=self.hyphen)
        self.words.append(word)
        self.separator, self.glued, self.hyphen = "", glues, False

    def _add_plain(self, letters: str, mark: str) -> None:
        """Add a word of ASCII letters with a mark after it, or none, before a space or the end."""
        if self.glued:
            self._add_letters(letters)
        else:
            self._add(_word(letters))
        if mark:
            self._add_sign(mark, "")
        self.glued = False

    def _add_letters(self, piece: str) -> None:
        if self.glued and self.words[-1].value is not None:
            if piece == "s":  # "the 1990s"
                text = self.words[-1].folded + piece
                self.words[-1] = self.words[-1]._replace(key=text, folded=text, value=None)
                return
            if not piece.isascii() and piece.startswith(tables().counters):
                count = next(each for each in tables().counters if piece.startswith(each))
                self._add(Word(count, count))
                if piece != count:
                    self._add_letters(piece[len(count) :])
                return
        if piece in _FRACTIONS:
            self._add_fraction(_FRACTIONS[piece])
        elif piece.isascii() and piece.isalpha():
            self._add(_word(piece))
        else:
            for word in _split(piece):
                if not word.folded:  # a letter that no reader sees, such as a Hangul filler
                    continue
                self._add(word)
                self.glued = False
            self.glued = True

    def _add_number(self, piece: str) -> None:
        limits = _RANGE.fullmatch(piece)
        for number in limits.groups() if limits else (piece,):
            value = number_of(number)
            self._add(Word(value.key if value else number, number, value=value))
            if limits:
                self.separator, self.glued = "-", False
        self.separator, self.glued = "", True

    def _add_fraction(self, fraction: Fraction) -> None:
        last = self.words[-1].value if self.glued else None
        whole = last.number if last and last.kind == "number" else Fraction(0)
        value = Value("number", whole + fraction)
        if whole:
            self.words.pop()
        self._add(Word(value.key, value.key, value=value))

    def _add_sign(self, sign: str, following: str) -> None:
        last = self.words[-1] if self.glued else None
        is_before_word = following.isalnum()
        is_short = last is not None and (last.value is not None or len(last.folded) == 1)
        is_factorial = is_short and not _is_large(last)
        is_remark = self.separator.endswith("(") or (last is None and is_before_word)
        if sign == "!" and (is_factorial or is_remark):
            self._add(Word(sign, sign, is_sign=True), glues=False)  # "5!", "!Paris"
        elif sign in _SEPARATORS:
            if sign == "." and last and len(last.folded) <= 2 and last.is_capital:
                is_initial = len(last.folded) == 1 or is_before_word
                self.words[-1] = last._replace(is_initial=is_initial)
            self.separator += sign
            self.glued = False
        elif sign in "-‐‑" and last and is_before_word:
            self.glued, self.hyphen = False, True
        elif sign in "-–—−" and not last and not is_before_word:
            self.separator += sign
        elif sign in "+#" and last:
            letters = last.folded + sign
            self.words[-1] = last._replace(key=letters, folded=letters, value=None)
        elif sign in _SIGN_WORDS:
            self._add(Word(_SIGN_WORDS[sign], _SIGN_WORDS[sign]), glues=False)
        else:
            self._add(Word(_CURRENCIES.get(sign, sign), sign, is_sign=True), glues=False)


def _is_large(word: Word | None) -> bool:
    value = word.value if word else None
    return value is not None and (value.kind != "number" or value.number >= 100)


def _word(piece: str) -> Word:
    """Return the word of ASCII letters."""
    return _short_word(piece) if len(piece) <= _LONGEST_WORD else Word(piece.lower(), piece.lower())


@lru_cache(maxsize=16384)
def _short_word(piece: str) -> Word:
    folded = piece.lower()
    value = ordinal_of(folded)
    is_capital = piece[0] != folded[0]
    key = value.key if value else key_of(folded)
    if is_capital:
        key = _ABBREVIATIONS.get(key, key)
    return Word(key, folded, value=value, is_capital=is_capital)


def _split(piece: str) -> Iterator[Word]:
    """Yield the words of letters with apostrophes, without the "s" of a possessive."""
    parts = [part for part in _APOSTROPHE.split(piece) if part]
    ending = parts[-1].lower() if parts else ""
    if len(parts) == 2 and ending == "s":
        del parts[1]
    elif len(parts) == 2 and ending in _CONTRACTIONS:
        parts = [piece]
    for position, part in enumerate(parts):
        folded = fold(part)
        if position + 1 < len(parts) and f"{folded}'" in tables().elisions:
            folded += "'"
        yield Word(key_of(folded), folded, is_capital=part[:1].isupper())


def _joined_initials(words: list[Word]) -> list[Word]:
    """Return words with adjacent initials as one word: J. K., J.K. and JK."""
    joined: list[Word] = []
    for word in words:
        last = joined[-1] if joined else None
        if last is not None and last.is_initial and _continues_initials(word, last):
            together = last.key + word.folded
            joined[-1] = last._replace(key=together, folded=together)
        else:
            joined.append(word)
    return joined


def _continues_initials(word: Word, last: Word) -> bool:
    if not word.is_capital or word.separator not in ("", ".") or word.value is not None:
        return False
    return len(word.folded) == 1 or (len(word.folded) == 2 and word.is_initial)


def _without_articles(words: list[Word]) -> list[Word]:
    """Return words without articles before other words. Those of "Vitamin A" and "The The" stay."""
    if not any(word.folded in ARTICLES for word in words):
        return words
    last = len(words) - 1
    others = [
        word
        for at, word in enumerate(words)
        if not _is_article(word, at, last) or words[at + 1].glued  # "A$5"
    ]
    return others if any(word.folded not in ARTICLES for word in others) else words


def _is_article(word: Word, at: int, last: int) -> bool:
    if word.folded not in ARTICLES or at == last or word.is_initial:
        return False
    is_letter = word.folded == "a" and word.is_capital
    return not (is_letter and at and not word.separator)


def key_of(folded: str) -> str:
    """Return the form of a word that is the same for its spellings.

    >>> [key_of(word) for word in ("colours", "color", "café", "theatre", "cities")]
    ['color', 'color', 'cafe', 'theater', 'city']
    """
    return short_key_of(folded) if len(folded) <= _LONGEST_WORD else folded


@lru_cache(maxsize=16384)
def short_key_of(folded: str) -> str:
    """Return `key_of` of a word of at most some hundred letters, which is kept in memory."""
    plain = without_accents(folded)
    if len(plain) > 3 and plain.isascii():
        plain = _one_spelling(_singular(plain))
    return plain


def without_accents(folded: str) -> str:
    """Return a word without accents."""
    if folded.isascii():
        return folded
    split = unicodedata.normalize("NFD", folded.translate(_LETTERS))
    return unicodedata.normalize("NFC", _ACCENT.sub("", split))


def has_accents(folded: str) -> bool:
    """Return whether a word has accents."""
    return not folded.isascii() and without_accents(folded) != folded


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "oes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


_SPELLINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=[^aeiou]..)our(?=$|ed$|ing$|able$|ite$|ful$)|(?<=[lbvmdn])our$", "or"),
        (r"(?<=...)is(?=e$|ed$|ing$|ation$|er$)", "iz"),
        (r"(?<=...)ys(?=e$|ed$)", "yz"),
        (r"(?<=[aeiou][tb])re$", "er"),
        (r"(?<=n)tre$", "ter"),
        (r"(?<=..)ogue$", "og"),
        (r"(?<=[aeiou]l)l(?=ed$|ing$|er$)", ""),
        (r"(?<=..)ence$", "ense"),
        (r"(?<=..)ae(?=.)", "e"),
        (r"^grey$", "gray"),
        (r"^aluminium$", "aluminum"),
    )
)


_HAS_SPELLINGS = re.compile(
    "our|is[ea]|ising|yse|[tb]re$|tre$|ogue$|l(?:ed|ing|er)$|ence$|ae|^grey$|^aluminium$"
)
"""What a word of a British spelling contains, which is a faster search than all of them."""


def _one_spelling(word: str) -> str:
    if not _HAS_SPELLINGS.search(word):
        return word
    for pattern, replacement in _SPELLINGS:
        word = pattern.sub(replacement, word)
    return word


_UNSPACED_LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_UNSPACED_LETTERS}]")
_BOUNDARY = re.compile(
    rf"(?<=[{_UNSPACED_LETTERS}])(?=[a-zA-Z\d])|(?<=[a-zA-Z])(?=[{_UNSPACED_LETTERS}])", re.ASCII
)
_FIRST_MARK, _MOST_MARKS = 0xE000, 0x1000
_PRIVATE = re.compile("[\ue000-\uefff]")
_SHORTEST_SHARED = 2  # characters
_LONGEST = 300  # characters of a text between two mentions


def is_unspaced(text: str) -> bool:
    """Return whether a text contains letters of a script without spaces."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def with_spaces(text: str) -> str:
    """Return a text with spaces between Latin letters and letters of scripts without spaces."""
    return _BOUNDARY.sub(" ", text)


def mark_mentions(text: str, aliases: Sequence[tuple[str, int]]) -> str:
    """Return a text with a private character in place of each alias, which marks its answer.

    Private characters of the text itself are removed.
    """
    folded = _PRIVATE.sub(" ", fold(text))
    for alias, answer in aliases:
        if alias in folded:
            folded = folded.replace(alias, f" {chr(_FIRST_MARK + answer % _MOST_MARKS)} ")
    return folded


def mark_names(text: str, names: Sequence[tuple[str, int]]) -> str:
    """Return a text with the private character of its answer in place of each name."""
    for name, answer in names:
        text = re.sub(
            rf"\b{re.escape(name)}\b", f" {chr(_FIRST_MARK + answer % _MOST_MARKS)} ", text
        )
    return text


def marked_answer(sign: str) -> int | None:
    """Return the required answer that a private character marks, or None."""
    number = ord(sign[0]) - _FIRST_MARK
    return number if 0 <= number < _MOST_MARKS else None


def explains(text: str, question: str, *, touches: tuple[bool, bool] = (False, False)) -> bool:
    """Return whether a text consists of function words and of parts of the question.

    A part of the question that touches a mention may extend its name, and explains nothing, unless
    the mention is in the place of the word that asks.

    >>> explains("の首都は", "フランスの首都はどこですか")
    True
    """
    turning = tables().turning_strings + tables().asking_strings
    if len(text) > _LONGEST or any(word in text for word in turning):
        return False
    asking = tables().asking_strings
    if touches[0] and any(f"{word}{text}" in question for word in asking):
        return True
    if touches[1] and any(f"{text}{word}" in question for word in asking):
        return True
    is_reached = [True] + [False] * len(text)
    for at in range(len(text)):
        if not is_reached[at]:
            continue
        for string in _strings_by_first().get(text[at], ()):
            if text.startswith(string, at):
                is_reached[at + len(string)] = True
        if at or not touches[0]:
            end = at + _shared(text, at, question)
            for position in range(at + _SHORTEST_SHARED, end + 1):
                is_reached[position] |= position < len(text) or not touches[1]
    return is_reached[-1]


@cache
def _strings_by_first() -> dict[str, list[str]]:
    strings: dict[str, list[str]] = {}
    for string in tables().strings:
        strings.setdefault(string[0], []).append(string)
    return strings


def _shared(text: str, at: int, question: str) -> int:
    """Return the length of the longest part of the question that begins at a position."""
    length = _SHORTEST_SHARED
    if text[at : at + length] not in question or at + length > len(text):
        return 0
    while at + length < len(text) and text[at : at + length + 1] in question:
        length += 1
    return length

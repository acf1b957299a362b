"""Text normalisers. A normaliser is a function from text to text; equal outputs match.

lower      lower-case, `*` dropped                         (CTRL-RAG's leaderboard)
squad      + ASCII punctuation and articles deleted        (SQuAD, HotpotQA, Search-R1, TruthRL)
triviaqa   + punctuation to spaces instead                 (TriviaQA, ARENA)
Unicode()  NFKC, casefold, every script's punctuation at word edges; keeps 3.14, -5, C++, C#
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rag_rewards.text import quantities

Normalizer = Callable[[str], str]
NormalizerName = Literal["lower", "squad", "triviaqa", "unicode"]

ARTICLES = frozenset(("a", "an", "the"))
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_ASCII_MARKS = re.compile(f"[{re.escape(string.punctuation)}]+")
_PUNCTUATION = string.punctuation.encode()
_LOWER = bytes(range(256)).lower()
_LOWER_SPACED = _LOWER.translate(bytes(32 if byte in _PUNCTUATION else byte for byte in range(256)))
_TRIVIAQA_MARKS = re.compile(f"[{re.escape(string.punctuation)}‘’´]+")


def lower(text: str) -> str:
    """Lower-case, asterisks dropped.

    >>> lower("**Par**is")
    'paris'
    """
    return text.lower().replace("*", "")


def squad(text: str) -> str:
    """Lower-case, ASCII punctuation and the words a, an, the deleted, white space collapsed.

    Source: SQuAD v1.1 evaluation script.

    >>> squad("The  Beatles' U.S. tour")
    'beatles us tour'
    """
    if text.isascii():
        # Case and punctuation in one pass over the bytes.
        return _drop_articles(text.encode().translate(_LOWER, _PUNCTUATION).decode())
    return _drop_articles(_ASCII_MARKS.sub("", text.lower()))


def triviaqa(text: str) -> str:
    """As squad, but punctuation (and ‘ ’ ´ `) becomes a space.

    Source: TriviaQA evaluation script, which ARENA's released code uses.

    >>> triviaqa("Arthur's_Magazine")
    'arthur s magazine'
    """
    if text.isascii():
        return _drop_articles(text.encode().translate(_LOWER_SPACED).decode())
    return _drop_articles(_TRIVIAQA_MARKS.sub(" ", text.lower()))


def _drop_articles(text: str) -> str:
    if text.isascii() and text.isprintable():
        # Letters, digits and spaces are left: a word boundary is a space.
        return " ".join([word for word in text.split() if word not in ARTICLES])
    return " ".join(_ARTICLE.sub(" ", text).split())


# A citation marker is no part of an answer: "Paris [1]" is "paris".
MARKER = re.compile(
    r"\[\s{0,8}(?:doc(?:ument)?\.?\s{0,8})?\d{1,9}(?:\s{0,8},\s{0,8}\d{1,9}){0,99}\s{0,8}\]", re.I
)
_ASCII_CONTROLS = dict.fromkeys((*range(9), *range(14, 28), 127))
_TYPOGRAPHY = str.maketrans(
    dict.fromkeys("‘’‚‛ʼʹʻ′´`＇", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("‐‑‒–—―−﹣－", "-")
)
# Symbols that wrap a word in Markdown or in a table; other symbols (+ $ ° …) carry meaning.
_WRAPPERS = frozenset("`´|<>=~^¨")
# Cyrillic and Greek letters that look Latin, folded in words that mix scripts.
_LOOK_ALIKES = str.maketrans("аеорсухіјѕԁһкмтвнԛԝαορντικυεχβηω", "aeopcyxijsdhkmtbhqwaopvtikuexbnw")
# Two Arabic ligatures that NFKC would blow up to 18 and 8 characters, kept as private ones; and
# the acute accent, a common apostrophe, that it would take for a space.
_BEFORE_NFKC = {0xFDFA: 0xF8FA, 0xFDFB: 0xF8FB, 0xB4: "'"}
_LATIN = re.compile("[a-z]")
_CJK = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


class _NoAccents(dict[int, int | None]):
    """Every accent to None, filled as characters are met."""

    def __missing__(self, code: int) -> int | None:
        kept = self[code] = None if unicodedata.category(chr(code)) == "Mn" else code
        return kept


_NO_ACCENTS = _NoAccents()


@dataclass(frozen=True)
class Unicode:
    """The `unicode` normaliser.

    NFKC; zero-width and control characters dropped; casefold; typographic quotes and dashes to
    ASCII; look-alike letters folded in words of mixed script; citation markers dropped;
    punctuation of every script stripped at word edges, but not what carries meaning (3.14, -5,
    50%, C++, C#); articles dropped where something remains. Options: `fold_accents` (São = Sao),
    `numbers` (1 million = 1,000,000), `dates` (5 March 1999 = 1999-03-05).

    Linear: runs of combining marks are cut at 30 before NFKC, which is quadratic in them.

    >>> Unicode()("“Paris” [1]."), Unicode()("The C++ answer: -5!"), Unicode()("巴黎。")
    ('paris', 'c++ answer -5', '巴黎')
    """

    fold_accents: bool = False
    numbers: bool = False
    dates: bool = False

    def __call__(self, text: str) -> str:
        text = fold(text)
        if self.fold_accents and not text.isascii():
            split = unicodedata.normalize("NFD", text)
            text = _unmixed(unicodedata.normalize("NFC", split.translate(_NO_ACCENTS)))
        words = [strip_edges(word) for word in MARKER.sub(" ", text).split()]
        words = [word for word in words if word]
        words = _without_articles(words)
        if self.dates:
            words = quantities.dates(words)
        if self.numbers:
            words = quantities.numbers(words)
        return " ".join(words)


def _without_articles(words: list[str]) -> list[str]:
    """Articles go where a word follows: not from "Vitamin A", nor from "The The"."""
    kept = [word for word in words[:-1] if word not in ARTICLES]
    if not kept and words and words[-1] in ARTICLES:
        return words
    return kept + words[-1:]


def fold(text: str) -> str:
    """Case, compatibility forms, invisible characters and typography folded; words untouched."""
    if text.isascii():
        return text.translate(_ASCII_CONTROLS).lower().replace("`", "'")
    marks, invisible = _unicode_patterns()
    text = invisible.sub("", marks.sub(r"\1", text)).translate(_BEFORE_NFKC)
    # Case folding can undo NFKC and NFKC can bring out new capitals: twice is stable.
    for _ in range(2):
        text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)
    # A letter that was folded may take an accent that its look-alike could not.
    return text if text.isascii() else unicodedata.normalize("NFC", _unmixed(text))


def _unmixed(text: str) -> str:
    """Words that mix Latin with letters that look Latin, in Latin."""
    return " ".join(
        word.translate(_LOOK_ALIKES) if not word.isascii() and _LATIN.search(word) else word
        for word in text.split(" ")
    )


def strip_edges(word: str) -> str:
    """A word without the punctuation around it.

    >>> [strip_edges(w) for w in ("(-5).", "C#,", "50%!", "...", "'n'", ".5")]
    ['-5', 'C#', '50%', '', 'n', '.5']
    """
    if word.isalnum():
        return word
    start, end = 0, len(word)
    while start < end and _is_edge(word[start]):
        if _opens_number(word, start, end):
            break
        start += 1
    while start < end and _is_edge(word[end - 1]):
        before = word[end - 2] if end - 2 >= start else ""
        if (word[end - 1] == "#" and before.isalpha()) or (
            word[end - 1] in "%‰" and before.isdigit()
        ):
            break
        if word[end - 1] == "-" and end - start <= 3 and word[start : end - 1].isalpha():  # A-, O-
            break
        end -= 1
    return word[start:end]


def _is_edge(char: str) -> bool:
    return char in _WRAPPERS or (not char.isalnum() and unicodedata.category(char)[0] == "P")


def _opens_number(word: str, at: int, end: int) -> bool:
    """-5, .5, -.5 and <5 begin a number at `at`."""
    if word[at] in "-<>":
        at += 1
    if at < end and word[at] == ".":
        at += 1
    return at < end and word[at].isdigit()


@cache
def _unicode_patterns() -> tuple[Any, Any]:
    import regex  # only text beyond ASCII needs its character classes

    marks = regex.compile(r"(\p{M}{30})\p{M}+")
    # Format and control characters, and letters and marks that are drawn as nothing.
    invisible = regex.compile(
        r"[\p{Cf}\u034f\u115f\u1160\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0"
        r"\U000e0100-\U000e01ef]|(?!\s)\p{Cc}"
    )
    return marks, invisible


def normalizer(
    name: str = "squad", *, fold_accents: bool = False, numbers: bool = False, dates: bool = False
) -> Normalizer:
    """The normaliser of that name. The options are those of `Unicode` alone."""
    if name == "unicode":
        return Unicode(fold_accents, numbers, dates)
    return {"lower": lower, "squad": squad, "triviaqa": triviaqa}[name]


def tokens(normal: str) -> list[str]:
    """Tokens of normalised text for F1: words, and each CJK character by itself.

    >>> tokens("paris 巴黎")
    ['paris', '巴', '黎']
    """
    if normal.isascii() or not _CJK.search(normal):
        return normal.split()
    pieces = _CJK.sub(r" \1 ", normal).split()
    return [piece for piece in pieces if any(map(str.isalnum, piece))] or pieces

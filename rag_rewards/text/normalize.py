"""Text normalizers. A normalizer is a function from text to text; equal outputs match.

lower      lower case, without `*`                         (CTRL-RAG's leaderboard)
squad      lower case, without ASCII punctuation and articles (SQuAD, HotpotQA, Search-R1, TruthRL)
triviaqa   as squad, but punctuation becomes a space       (TriviaQA, ARENA)
Unicode()  case folding and NFKC; removes the punctuation of every script at word edges, but keeps
           3.14, -5, C++ and C# (`unicode`); reads accents, numbers and dates alike (`spelling`)
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from rag_rewards.text import quantities
from rag_rewards.text.citations import compiled

Normalizer = Callable[[str], str]
NormalizerName = Literal["lower", "squad", "triviaqa", "unicode", "spelling"]
NORMALIZER = (
    "text normalizer; spelling: as unicode, and São is read as Sao, 1 million as 1,000,000, and "
    "5 March 1999 as 1999-03-05"
)
"""The meaning of a setting with these names."""

ARTICLES = frozenset(("a", "an", "the"))
EDGES = ".,;:!?()[]{}\"'*_`—。，、；：！？“”‘’«»「」『』…"
"""Marks at the edges of a word."""
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = string.punctuation.encode()
_LOWER = bytes(range(256)).lower()
_LOWER_SPACED = _LOWER.translate(bytes(32 if byte in _PUNCTUATION else byte for byte in range(256)))
_TRIVIAQA_MARKS = re.compile(f"[{re.escape(string.punctuation)}‘’´]+")


def lower(text: str) -> str:
    """Return a text in lower case without asterisks. Source: CTRL-RAG's leaderboard.

    >>> lower("**Par**is")
    'paris'
    """
    return text.lower().replace("*", "")


def squad(text: str) -> str:
    """Return a text in lower case without ASCII punctuation and without the words a, an and the.

    Runs of white space become one space. Source: SQuAD v1.1 evaluation script.

    >>> squad("The  Beatles' U.S. tour")
    'beatles us tour'
    """
    if text.isascii():
        # One pass over the bytes changes case and removes punctuation.
        return _drop_articles(text.encode().translate(_LOWER, _PUNCTUATION).decode())
    # ASCII characters are never part of another character in UTF-8.
    encoded = text.lower().encode("utf-8", "surrogatepass").translate(None, _PUNCTUATION)
    return _drop_articles(encoded.decode("utf-8", "surrogatepass"))


def triviaqa(text: str) -> str:
    """Return a text as `squad` does, but with a space in place of punctuation and ‘ ’ ´ `.

    Source: TriviaQA evaluation script, which ARENA's released code uses.

    >>> triviaqa("Arthur's_Magazine")
    'arthur s magazine'
    """
    if text.isascii():
        return _drop_articles(text.encode().translate(_LOWER_SPACED).decode())
    return _drop_articles(_TRIVIAQA_MARKS.sub(" ", text.lower()))


def _drop_articles(text: str) -> str:
    words = text.split()
    if (text.isascii() and text.isprintable()) or "".join(words).isalnum():
        # Only letters, digits and spaces remain, so that a word boundary is a space.
        if not ARTICLES.isdisjoint(words):
            words = [word for word in words if word not in ARTICLES]
        return " ".join(words)
    return " ".join(_ARTICLE.sub(" ", text).split())


# A citation marker does not belong to an answer: "Paris [1]" becomes "paris".
MARKER = compiled()
_ASCII_CONTROLS = bytes((*range(9), *range(14, 28), 127))
_FOLDED = _LOWER.replace(b"`", b"'")
_TYPOGRAPHY = str.maketrans(
    dict.fromkeys("‘’‚‛ʼʹʻ′´`＇", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("‐‑‒–—―−﹣－", "-")
    | {"⁄": "/"}  # NFKC reads ½ with it
)
# Symbols around a word in Markdown or in a table. Other symbols (+ $ ° …) have a meaning.
_WRAPPERS = frozenset("`´|<>=~^¨")
# Cyrillic and Greek letters that look like Latin ones. They are folded in words of mixed script.
_LOOK_ALIKES = str.maketrans("аеорсухіјѕԁһкмтвнԛԝαορντικυεχβηω", "aeopcyxijsdhkmtbhqwaopvtikuexbnw")
# NFKC would expand two Arabic ligatures to 18 and 8 characters, so they become private characters.
# It would read the acute accent, which often serves as an apostrophe, as a space.
_BEFORE_NFKC: dict[int, int | str] = {0xFDFA: 0xF8FA, 0xFDFB: 0xF8FB, 0xB4: "'"}
# NFKC reads raised and lowered digits as digits, and so 10⁶ as 106. Only those beside a letter are
# digits (H₂O, km²). Others get a mark before them, which is a letter unless a digit is before it.
_MARK_OF_RAISED = "\ua71b"
_SCRIPT = re.compile(r"(?<![^\W\d_])(?:[⁺⁻]?[⁰¹²³⁴-⁹]+|(?P<lowered>[₊₋]?[₀-₉]+))")
_BEFORE_FRACTION = re.compile("(?<=\\d)(?=[¼-¾⅐-⅟↉])")
_LATIN = re.compile("[a-z]")
_LOOK_ALIKE = re.compile(f"[{''.join(map(chr, _LOOK_ALIKES))}]")
_UNSPACED = re.compile(r"\S+")
_CJK_RANGES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CJK = re.compile(f"[{_CJK_RANGES}]")
_CJK_OR_WORD = re.compile(rf"[{_CJK_RANGES}]|[^\s{_CJK_RANGES}]+")


class _NoAccents(dict[int, int | None]):
    """A translation table that removes accents. It is filled while characters are looked up."""

    def __missing__(self, code: int) -> int | None:
        replacement = self[code] = None if unicodedata.category(chr(code)) == "Mn" else code
        return replacement


_NO_ACCENTS = _NoAccents()


@dataclass(frozen=True)
class Unicode:
    """The normalizers `unicode` and, with `equivalences`, `spelling`.

    It applies NFKC and case folding; removes zero-width characters, control characters, citation
    markers and articles; replaces typographic quotes and dashes with ASCII; and folds look-alike
    letters in words of mixed script. It removes the punctuation of every script at word edges,
    but keeps what has a meaning (3.14, -5, 50%, C++, C#). Raised and lowered digits are digits only
    beside a letter (H₂O); 10⁶ is read as 10^6. Articles stay where nothing else remains.

    equivalences  read São as Sao, 1 million as 1,000,000, 5 March 1999 as 1999-03-05
    spellings     read U.S. as US, 1,000 as 1000 and Coca-Cola as Coca Cola

    NFKC is quadratic in a run of combining marks, so that runs are cut at 30 before it.

    >>> Unicode()("“Paris” [1]."), Unicode()("The C++ answer: -5!"), Unicode()("巴黎。")
    ('paris', 'c++ answer -5', '巴黎')
    """

    equivalences: bool = False
    spellings: bool = False

    def __call__(self, text: str) -> str:
        text = fold(with_words_for_signs(text) if self.spellings else text)
        if self.equivalences and not text.isascii():
            split = unicodedata.normalize("NFD", text)
            text = _unmixed(unicodedata.normalize("NFC", split.translate(_NO_ACCENTS)))
        words = [strip_edges(word) for word in MARKER.sub(" ", text).split()]
        words = [word for word in words if word]
        words = _without_articles(words)
        if self.equivalences:
            words = quantities.numbers(quantities.dates(" ".join(words)).split())
        normal = " ".join(words)
        return one_spelling(normal) if self.spellings else normal


def _without_articles(words: list[str]) -> list[str]:
    """Remove articles before another word. Those of "Vitamin A" and "The The" stay."""
    others = [word for word in words[:-1] if word not in ARTICLES]
    if not others and words and words[-1] in ARTICLES:
        return words
    return others + words[-1:]


_SPACED_SIGN = re.compile(r"(?<=\d)[ \t\xa0]{1,4}(?=[%‰])|(?<=[$€£¥])[ \t\xa0]{1,4}(?=\d)")
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")
_DOTTED = re.compile(r"(?<![\w.])[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+(?![\w.])")
_INITIALS = re.compile(r"(?<!\S)[a-z](?: [a-z])+(?!\S)")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_UNIT = re.compile(r"(?<![\w.,])(\d[\d.]*)([a-z]{1,3})(?!\w)")


def with_words_for_signs(text: str) -> str:
    """Return a text without spaces beside the signs of amounts, and with "and" for "&".

    >>> with_words_for_signs("A & B earn 50 % or $ 5")
    'A  and  B earn 50% or $5'
    """
    return _SPACED_SIGN.sub("", text.replace("&", " and "))


def one_spelling(normal: str) -> str:
    """Return the common spelling of a normalized text.

    >>> [one_spelling(each) for each in ("u.s", "1,000", "coca-cola", "c s lewis", "15cm")]
    ['us', '1000', 'coca cola', 'cs lewis', '15 cm']
    >>> [one_spelling(each) for each in ("3.14", "10:30", "-5", "2-1", "c++", "1,5")]
    ['3.14', '10:30', '-5', '2-1', 'c++', '1,5']
    """
    normal = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), normal)
    normal = _UNIT.sub(r"\1 \2", _HYPHEN.sub(" ", normal))
    normal = _DOTTED.sub(lambda match: match[0].replace(".", ""), normal)
    return _INITIALS.sub(lambda match: match[0].replace(" ", ""), normal)


def without_invisible(text: str) -> str:
    """Return a text without invisible characters, such as a word joiner."""
    return text if text.isascii() else _unicode_patterns()[1].sub("", text)


def fold(text: str) -> str:
    """Fold case, compatibility forms and typography, and remove invisible characters."""
    if text.isascii():
        return text.encode().translate(_FOLDED, _ASCII_CONTROLS).decode()
    marks, invisible = _unicode_patterns()
    text = _SCRIPT.sub(_script, invisible.sub("", marks.sub(r"\1", text)))
    text = _BEFORE_FRACTION.sub(" ", text).translate(_BEFORE_NFKC)  # 1½ is not 11/2
    # Case folding can undo NFKC, and NFKC can produce new capitals. Two rounds are stable.
    for _ in range(2):
        text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)
    # A folded letter can combine with an accent that its look-alike could not combine with.
    return text if text.isascii() else unicodedata.normalize("NFC", _unmixed(text))


def _script(match: re.Match[str]) -> str:
    """Return raised or lowered digits that are not after a letter, with a mark before them."""
    text, (start, end) = match.string, match.span()
    if text[start - 1 : start].isdecimal():
        return f"_{match[0]}" if match["lowered"] else f"^{match[0]}"
    return match[0] if text[end : end + 1].isalpha() else _MARK_OF_RAISED + match[0]


def _unmixed(text: str) -> str:
    """Return a text whose words of mixed script contain Latin letters in place of look-alikes."""
    return _UNSPACED.sub(_with_latin_letters, text) if _LOOK_ALIKE.search(text) else text


def _with_latin_letters(match: re.Match[str]) -> str:
    word = match[0]
    return word if word.isascii() or not _LATIN.search(word) else word.translate(_LOOK_ALIKES)


def strip_edges(word: str) -> str:
    """Return a word without the punctuation around it.

    >>> [strip_edges(w) for w in ("(-5).", "C#,", "50%!", "...", "'n'", ".5")]
    ['-5', 'C#', '50%', '', 'n', '.5']
    """
    if word.isalnum():
        return word
    start, end = 0, len(word)
    while start < end and _is_edge(word[start]):
        if word[start] in _BEFORE_NUMBER and _opens_number(word, start, end):
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


_BEFORE_NUMBER = frozenset("-<>.")


@lru_cache(maxsize=16384)
def _is_edge(char: str) -> bool:
    return char in _WRAPPERS or (not char.isalnum() and unicodedata.category(char)[0] == "P")


def _opens_number(word: str, at: int, end: int) -> bool:
    """Return whether a number such as -5, .5, -.5 or <5 begins at this position."""
    if word[at] in "-<>":
        at += 1
    if at < end and word[at] == ".":
        at += 1
    return at < end and word[at].isdigit()


@cache
def _unicode_patterns() -> tuple[Any, Any]:
    import regex  # imported here because only text beyond ASCII needs its character classes

    marks = regex.compile(r"(\p{M}{30})\p{M}+")
    # Format and control characters, and letters and marks without a visible form.
    invisible = regex.compile(
        r"[\p{Cf}\u034f\u115f\u1160\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0"
        r"\U000e0100-\U000e01ef]|(?!\s)\p{Cc}"
    )
    return marks, invisible


def normalizer(name: str = "squad", *, spellings: bool = False) -> Normalizer:
    """Return the normalizer of this name. `spellings` applies to `unicode` and `spelling` only."""
    if name in ("unicode", "spelling"):
        return Unicode(name == "spelling", spellings)
    return {"lower": lower, "squad": squad, "triviaqa": triviaqa}[name]


def tokens(normal: str) -> list[str]:
    """Return the tokens of a normalized text for F1. Each CJK character is a token.

    >>> tokens("paris 巴黎")
    ['paris', '巴', '黎']
    """
    if normal.isascii() or not _CJK.search(normal):
        return normal.split()
    pieces = _CJK_OR_WORD.findall(normal)
    return [piece for piece in pieces if any(map(str.isalnum, piece))] or pieces

r"""LaTeX in a response: the contents of \boxed{…}, and short texts as plain text."""

from __future__ import annotations

import re
import unicodedata

# A run of braces is one match, so that a megabyte of braces takes few steps. An escaped brace is
# an ordinary character.
_TOKEN = re.compile(r"\\boxed\s{0,8}\{|(?:\\\\)+|\\.|\{+|\}+", re.DOTALL)
# Commands whose argument is text. They change the font, but not the answer.
_FONTS = "text(?:bf|it|md|normal|rm|sc|sf|sl|tt|up)?|math(?:bf|it|normal|rm|sf|tt)|mbox|hbox|emph"
_BRACE = re.compile(
    rf"(?P<font>\\(?:{_FONTS})\s{{0,8}}\{{)|\\.|(?P<open>\{{)|(?P<close>\}})", re.DOTALL
)


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete box, or None if no box is closed.

    >>> last_box(r"\boxed{Rome} no, \boxed{\text{Paris}}")
    '\\text{Paris}'
    """
    if (simple := _simple_box(text)) is not None:
        return simple
    best: tuple[int, int] | None = None
    depth: list[int] = []  # ≥ 0: position where the content of a box starts; < 0: −(open braces)
    start = text.find("\\boxed")
    if start < 0:
        return None
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token[0] == "{":
            if depth and depth[-1] < 0:
                depth[-1] -= len(token)
            else:
                depth.append(-len(token))
        elif token[0] == "}":
            close = match.start()
            remaining = len(token)
            while remaining and depth:
                top = depth[-1]
                if top >= 0:
                    depth.pop()
                    if best is None or top > best[0]:
                        best = (top, close)
                    close += 1
                    remaining -= 1
                    continue
                closed = min(remaining, -top)
                depth[-1] += closed
                close += closed
                remaining -= closed
                if not depth[-1]:
                    depth.pop()
        elif token.startswith("\\boxed"):
            depth.append(match.end())
    return text[best[0] : best[1]] if best else None


def _simple_box(text: str) -> str | None:
    """Return the last box if it contains neither braces nor escapes, as most do, else None."""
    start = text.rfind("\\boxed")
    end = text.find("}", start)
    if end < 0 or not text.startswith("\\boxed{", start) or text[start - 1 : start] == "\\":
        return None
    content = text[start + len("\\boxed{") : end]
    return None if "{" in content or "\\" in content else content


def first_box(text: str) -> str | None:
    r"""Return the text from the first \boxed{ to the next closing brace, or None.

    Source: TruthRL, the authors' code.

    >>> first_box(r"\boxed{\text{Paris}}")
    '\\text{Paris'
    """
    _, opening, rest = text.partition("\\boxed{")
    content, closing, _ = rest.partition("}")
    return content if opening and closing else None


def unwrap(box: str) -> str:
    r"""Return the content of a box without \text{…} and font commands; their arguments remain.

    A content whose braces are not pairs is returned unchanged. Other commands stay.

    >>> unwrap(r"\text{Paris}"), unwrap(r"330 \mathrm{m}"), unwrap(r"\frac{1}{2}")
    ('Paris', '330 m', '\\frac{1}{2}')
    """
    if "\\" not in box:
        return box
    removed: list[tuple[int, int]] = []
    fonts: list[tuple[int, int] | None] = []  # open braces; None for one without a font command
    for match in _BRACE.finditer(box):
        kind = match.lastgroup
        if kind == "close":
            if not fonts:
                return box
            if (font := fonts.pop()) is not None:
                removed += (font, match.span())
        elif kind is not None:
            fonts.append(match.span() if kind == "font" else None)
    if fonts:
        return box
    pieces, at = [], 0
    for start, end in sorted(removed):
        pieces.append(box[at:start])
        at = end
    return "".join(pieces) + box[at:]


_SYMBOLS = {
    "times": "×", "cdot": "·", "pm": "±", "approx": "≈", "degree": "°", "circ": "°",
    "textdegree": "°", "euro": "€", "pounds": "£", "textdollar": "$", "dollar": "$", "ldots": "…",
    "dots": "…", "to": "→", "rightarrow": "→", "textendash": "–", "textemdash": "—",
    "infty": "∞", "textquoteright": "’", "prime": "′", "pi": "π", "alpha": "α", "beta": "β",
    "gamma": "γ", "delta": "δ", "epsilon": "ε", "lambda": "λ", "mu": "μ", "sigma": "σ",
    "omega": "ω", "Omega": "Ω", "Delta": "Δ", "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ",
    "OE": "Œ", "aa": "å", "AA": "Å", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "i": "ı",
    "quad": " ", "qquad": " ", "space": " ", "left": "", "right": "", "displaystyle": "",
    "textstyle": "", "limits": "", "big": "", "Big": "", "bigl": "", "bigr": "", "rm": "",
    "bf": "", "it": "", "sf": "", "tt": "",
}  # fmt: skip
_ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304",
    ".": "\u0307", "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "r": "\u030a",
    "k": "\u0328",
}  # fmt: skip
_SPACES = ",;: \n~>"
_FRACTION = re.compile(r"(\d?)\\[dtc]?frac\s{0,8}\{([^{}]{1,100})\}\s{0,8}\{([^{}]{1,100})\}")
_MORE_FONTS = re.compile(
    r"\\(?:math(?:bb|cal|scr|frak)|boldsymbol|bm|pmb|underline|operatorname\*?|ensuremath"
    r"|text(?:superscript|subscript)|mathop|uppercase)(?=\s{0,8}\{)"
)
_SCRIPT_OF_NUMBER = re.compile(r"(?<=\d)\\text(super|sub)script\s{0,8}(?=\{)")
_GROUPED = re.compile(r"(?<=\d)\\[,;: ](?=\d{3}(?!\d))")
_UNKNOWN = re.compile(r"\\[A-Za-z]")
_COMMAND = re.compile(
    r"\\(?P<accent>['`^\"~=.]|[cvuHrk](?![A-Za-z]))\s{0,8}(?:\{(?P<braced>\\?[A-Za-zıȷ])\}"
    r"|(?P<letter>\\?[A-Za-z](?![A-Za-z]*\{)))"
    r"|\^\s{0,8}\{?\s{0,8}\\circ\s{0,8}\}?"
    r"|(?:(?<!\d)_|\^(?=\{[A-Za-z]))\{(?P<script>[^{}\\]{1,20})\}|(?<=[A-Za-z])_(?P<index>\d)"
    r"|\\(?P<word>[A-Za-z]{1,20})(?P<space>\s{0,8})"
    r"|\\(?P<mark>.)"
    r"|(?P<tie>~)|\{(?P<comma>,)\}|[{}]",
    re.DOTALL,
)


def plain_latex(text: str) -> str:
    r"""Return a text without fonts, escapes, spacing and other LaTeX commands.

    The arguments of fonts remain, accents and symbols become characters, and fractions become
    "1/2". A text with another command loses its fonts only, and a text whose braces are not pairs
    is returned unchanged.

    >>> plain_latex(r"\text{Paris}"), plain_latex(r"\$1{,}000"), plain_latex(r"\dfrac{1}{2}")
    ('Paris', '$1,000', '1/2')
    """
    if "\\" not in text and "{" not in text and "$" not in text:
        return text
    text = _without_delimiters(text)
    if "\\" not in text and "{" not in text:
        return text
    if not _has_pairs(text):
        return text
    text = _SCRIPT_OF_NUMBER.sub(lambda each: "^" if each[1] == "super" else "_", text)
    text = unwrap(_MORE_FONTS.sub(r"\\text", text))
    plain = _COMMAND.sub(_plain, _FRACTION.sub(_fraction, _GROUPED.sub("", text)))
    return text if _UNKNOWN.search(plain) else plain


def _without_delimiters(text: str) -> str:
    r"""Return a text without $…$ or \(…\) around the whole of it."""
    bare = text.strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        inside = bare[len(opening) : -len(closing)]
        if len(bare) > 2 * len(opening) and bare == opening + inside + closing:
            return inside if "$" not in inside and not inside.endswith("\\") else text
    return text


def _has_pairs(text: str) -> bool:
    """Return whether the braces of a text are pairs, apart from escaped ones."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0


def _fraction(match: re.Match[str]) -> str:
    whole, numerator, denominator = match.groups()
    return f"{whole}{' ' if whole else ''}{numerator}/{denominator}"


def _plain(match: re.Match[str]) -> str:
    """Return the characters that a command stands for, or the command if it is unknown."""
    if accent := match["accent"]:
        letter = (match["braced"] or match["letter"]).removeprefix("\\")
        return unicodedata.normalize("NFC", letter + _ACCENTS[accent])
    if word := match["word"]:
        symbol = _SYMBOLS.get(word)
        if symbol is None:
            return match[0]
        return f" {symbol}" if symbol == "°" and match["space"] else symbol
    if mark := match["mark"]:
        return " " if mark in _SPACES or mark == "\\" else "" if mark == "!" else mark
    if match["tie"]:
        return " "
    if script := match["script"] or match["index"]:
        return script
    if match["comma"]:
        return ","
    return "" if match[0] in "{}" else _degrees(match)


def _degrees(match: re.Match[str]) -> str:
    """Return the sign for degrees, with a space before a unit: "100 °C"."""
    text, start, end = match.string, match.start(), match.end()
    unit = text[end : end + 1].isalpha() and text[start - 1 : start].isdigit()
    return " °" if unit else "°"

"""The words of a text and their values."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, NamedTuple


class Value(NamedTuple):
    """A value that is read completely.

    number  the number, or the year of a date
    unit    the unit of a number
    month, day  of a date; 0 if they are not given
    """

    kind: Literal["number", "ordinal", "date"]
    number: Fraction
    unit: str = ""
    month: int = 0
    day: int = 0

    @property
    def key(self) -> str:
        """The form that is compared."""
        if self.kind == "date":
            return f"{self.number}-{self.month:02}-{self.day:02}"
        suffix = "." if self.kind == "ordinal" else f" {self.unit}" if self.unit else ""
        return f"{self.number}{suffix}"


class Word(NamedTuple):
    """A word of a text.

    key         the form that is compared: letters without accents and endings, or a value
    folded      the word with case folded
    separator   the punctuation and line ends between the word before and this one
    glued       whether nothing is between the word before and this one
    value       its value, if it is a number, an ordinal or a date
    is_sign     whether it is a sign other than letters and digits
    is_capital  whether its first letter is a capital
    is_initial  whether it is a capital letter, or two letters such as "Ph", with a period
    hyphen      whether a hyphen joins it to the word before
    """

    key: str
    folded: str
    separator: str = ""
    glued: bool = False
    value: Value | None = None
    is_sign: bool = False
    is_capital: bool = False
    is_initial: bool = False
    hyphen: bool = False

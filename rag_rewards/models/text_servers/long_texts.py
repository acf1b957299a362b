"""Texts that are too long for a model on a server: their division, and special tokens in them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rag_rewards.errors import BackendError, shorten
from rag_rewards.models.nli.pieces import Both, Pair
from rag_rewards.models.responses import HttpError

T = TypeVar("T")
V = TypeVar("V")
_TOO_LONG = re.compile(r"must have less than|context length|too long|maximum .{0,20}length", re.I)
_SPECIAL = re.compile(r"(?<=[\[<])(?=(?:SEP|CLS|MASK|PAD|UNK)\]|/?s>|(?:pad|unk|mask|eos|bos)>|\|)")
_LARGEST_OVERLAP = 200
"""Maximum number of characters that both halves of a text contain."""


def plain_text(text: str) -> str:
    """Return a text in which a tokenizer finds no special token, such as a separator of texts.

    A space separates the first bracket from the name. Servers have no option for this, and a
    response with a separator could move a part of itself into the premise.

    >>> plain_text("a [SEP] b </s> [1] <answer>")
    'a [ SEP] b < /s> [1] <answer>'
    """
    return _SPECIAL.sub(" ", text)


def is_too_long(error: HttpError) -> bool:
    """Return whether a server refused a request because of the length of its texts.

    The limit is that of the model (400 or 422), or of the body of a request (413).
    """
    if error.status == 413:
        return True
    return error.status in (400, 422) and _TOO_LONG.search(str(error)) is not None


def halves(text: str, overlap: bool = False) -> list[str] | None:
    """Return a text as two halves, cut at white space near the middle if there is any.

    With `overlap`, both halves contain the middle. Returns None for a text without two parts.

    >>> halves("one two three four")
    ['one two', 'three four']
    >>> halves("x") is None
    True
    """
    text = text.strip()
    middle = len(text) // 2
    around = min(_LARGEST_OVERLAP, len(text) // 8) if overlap else 0
    left = text[: _white_space(text, middle + around)].strip()
    right = text[_white_space(text, middle - around) :].strip()
    if not left or not right or len(text) in (len(left), len(right)):
        return None
    return [left, right]


def _white_space(text: str, near: int) -> int:
    """Return the position of white space within 32 characters of a position, or the position."""
    for distance in range(min(32, len(text) // 4)):
        for at in (near + distance, near - distance):
            if 0 < at < len(text) and text[at].isspace():
                return at
    return near


async def send_divided(
    items: Sequence[T],
    send: Callable[[Sequence[T]], Awaitable[Sequence[V]]],
    divide: Callable[[T], Sequence[T] | None],
) -> list[list[V]]:
    """Send items in one request; return a value for each item, or for each of its parts.

    If the server refuses a single item because of its length, it is divided by `divide`. Raises
    NotDivisible if that returns None. The error of several items is raised, and `TextServer` sends
    the halves of such a batch.
    """
    try:
        return [[value] for value in await send(items)]
    except HttpError as error:
        if len(items) > 1 or not is_too_long(error):
            raise
    if (parts := divide(items[0])) is None:
        raise NotDivisible(f"the server refuses {shorten(str(items[0]), 60)!r} as too long")
    values = [await send_divided([part], send, divide) for part in parts]
    return [[value for [each] in values for value in each]]


class NotDivisible(BackendError):
    """A text that is too long for a server and has no two parts."""


def halves_of_premise(pair: Pair) -> list[Pair] | None:
    """Return a pair with each half of its premise, None without two parts."""
    premise, hypothesis = pair
    parts = halves(premise, overlap=True)
    return None if parts is None else [(part, hypothesis) for part in parts]


async def probabilities_of_parts(
    pairs: Sequence[Pair], send: Callable[[Sequence[Pair]], Awaitable[Sequence[Both]]]
) -> list[Both]:
    """Return the highest probabilities of a part of each premise; 0 if a hypothesis is too long."""
    try:
        values = await send_divided(pairs, send, halves_of_premise)
    except NotDivisible:
        return [(0.0, 0.0)]
    return [(max(e for e, _ in parts), max(c for _, c in parts)) for parts in values]

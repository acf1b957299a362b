"""A response, read once: end-of-sequence text gone, thinking apart, sections cut on demand."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rag_rewards.text.normalize import Normalizer
from rag_rewards.text.sections import Cut, Tags, cut, without_thinking

END_OF_SEQUENCE = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|eot|>",
        "<|END_OF_TURN_TOKEN|>",
        "<end_of_turn>",
        "<start_of_turn>",
        "<eos>",
        "</s>",
        "<pad>",
        "<|pad|>",
        "[EOS]",
        "[PAD]",
        "<｜end▁of▁sentence｜>",
    )
)
"""What the chat templates of the common model families write after the last word."""


def strip_end_of_sequence(text: str, tokens: Collection[str] = END_OF_SEQUENCE) -> str:
    """Take end-of-sequence text off the end, however often it stands there.

    >>> strip_end_of_sequence("<answer>Paris</answer><|im_end|>\\n")
    '<answer>Paris</answer>'
    """
    at = len(text.rstrip())
    kept = len(text)
    while at and (bracket := _OPENING.get(text[at - 1])):
        start = text.rfind(bracket, at - _LONGEST if at > _LONGEST else 0, at)
        if start < 0 or text[start:at] not in tokens:
            break
        kept = at = start
        while at and text[at - 1].isspace():
            at -= 1
    return text[:kept]


_OPENING = {">": "<", "]": "["}
_LONGEST = 32


class Response(msgspec.Struct, gc=False, eq=False):
    """What the policy wrote, in every reading that a reward asks for, each computed once.

    The last cut and the last normal form are kept: the rewards of a recipe ask for the same.
    """

    text: str
    _tags: Tags | None = None
    _cut: Cut | None = None
    _visible: str | None = None
    _source: tuple[Normalizer, str] | None = None
    _normal: str = ""

    def cut(self, tags: Tags) -> Cut:
        """The response cut at these tags."""
        if self._cut is None or (self._tags is not tags and self._tags != tags):
            self._tags, self._cut = tags, cut(self.text, tags)
        return self._cut

    @property
    def visible(self) -> str:
        """The response without its thinking."""
        if self._visible is None:
            self._visible = without_thinking(self.text)
        return self._visible

    def normal(self, normalizer: Normalizer, text: str) -> str:
        """A part of the response, normalised."""
        if self._source is None or self._source[1] is not text or self._source[0] != normalizer:
            self._source, self._normal = (normalizer, text), normalizer(text)
        return self._normal


def read_response(text: str) -> Response:
    """A response as it is read: without the end-of-sequence text at its end."""
    return Response(strip_end_of_sequence(text))

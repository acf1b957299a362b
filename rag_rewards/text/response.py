"""A response that is parsed once: its sections, and its text without thinking."""

from __future__ import annotations

import msgspec

from rag_rewards.text.normalize import Normalizer
from rag_rewards.text.sections import Cut, Tags, cut
from rag_rewards.text.thinking import without_thinking

END_OF_SEQUENCE = frozenset(
    "<|im_end|> <|endoftext|> <|end_of_text|> <|eot_id|> <|eom_id|> <|end|> <|return|> "
    "<|eot|> <|END_OF_TURN_TOKEN|> <end_of_turn> <start_of_turn> <eos> </s> <pad> <|pad|> "
    "[EOS] [PAD] <｜end▁of▁sentence｜>".split()
)
"""The texts that the chat templates of common model families write after the last word."""


_ENDS = frozenset(token[-2:] for token in END_OF_SEQUENCE)
_OPENING = {">": "<", "]": "["}
_LONGEST = max(map(len, END_OF_SEQUENCE))


def strip_end_of_sequence(text: str) -> str:
    """Return a text without the end-of-sequence texts at its end.

    >>> strip_end_of_sequence("<answer>Paris</answer><|im_end|>\\n")
    '<answer>Paris</answer>'
    """
    if text[-2:] not in _ENDS and not text[-1:].isspace():  # as most texts
        return text
    end, at = len(text), len(text.rstrip())
    while text[at - 2 if at > 2 else 0 : at] in _ENDS:
        start = text.rfind(_OPENING[text[at - 1]], max(at - _LONGEST, 0), at)
        if start < 0 or text[start:at] not in END_OF_SEQUENCE:
            break
        end = at = start
        while at and text[at - 1].isspace():
            at -= 1
    return text[:end]


class Response(msgspec.Struct, gc=False, eq=False):
    """The text of a response, and what is parsed from it.

    The last cut and the last normalized text are cached, because the rewards of a recipe read the
    same ones.
    """

    text: str
    _tags: Tags | None = None
    _cut: Cut | None = None
    _visible: str | None = None
    _normal: tuple[Normalizer, str, str] | None = None

    def cut(self, tags: Tags) -> Cut:
        """Return the sections of the response."""
        if self._cut is None or (self._tags is not tags and self._tags != tags):
            self._tags, self._cut = tags, cut(self.text, tags)
        return self._cut

    @property
    def visible(self) -> str:
        """The response without its thinking."""
        if self._visible is None:
            self._visible = without_thinking(self.text)
        return self._visible

    def normal(self, text: str, normalize: Normalizer) -> str:
        """Return a text of the response in its normalized form."""
        last = self._normal
        if last is None or last[0] is not normalize or last[1] != text:
            last = self._normal = (normalize, text, normalize(text))
        return last[2]


def read_response(text: str) -> Response:
    """Return a response without the end-of-sequence texts at its end."""
    return Response(strip_end_of_sequence(text))

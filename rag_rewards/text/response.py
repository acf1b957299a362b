"""A response, read once: end-of-sequence text gone, thinking apart, sections cut on demand."""

from __future__ import annotations

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


_ENDS = frozenset(token[-2:] for token in END_OF_SEQUENCE)
_OPENING = {">": "<", "]": "["}
_LONGEST = max(map(len, END_OF_SEQUENCE))


def strip_end_of_sequence(text: str) -> str:
    """Take end-of-sequence text off the end, however often it stands there.

    >>> strip_end_of_sequence("<answer>Paris</answer><|im_end|>\\n")
    '<answer>Paris</answer>'
    """
    kept, at = len(text), len(text.rstrip())
    while text[max(at - 2, 0) : at] in _ENDS:
        start = text.rfind(_OPENING[text[at - 1]], max(at - _LONGEST, 0), at)
        if start < 0 or text[start:at] not in END_OF_SEQUENCE:
            break
        kept = at = start
        while at and text[at - 1].isspace():
            at -= 1
    return text[:kept]


class Answer(msgspec.Struct, gc=False, eq=False):
    """An answer section as the metrics read it: `text` stripped, `normal` None where blank."""

    tags: Tags
    normalizer: Normalizer
    text: str | None
    normal: str | None


class Response(msgspec.Struct, gc=False, eq=False):
    """What the policy wrote, in every reading that a reward asks for, each computed once.

    The last cut and the last answer are kept: the rewards of a recipe ask for the same.
    """

    text: str
    _tags: Tags | None = None
    _cut: Cut | None = None
    _visible: str | None = None
    _answer: Answer | None = None

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

    def answer(self, tags: Tags, normalizer: Normalizer) -> Answer:
        """The answer section, normalised."""
        known = self._answer
        if (
            known is None
            or (known.tags is not tags and known.tags != tags)
            or (known.normalizer is not normalizer and known.normalizer != normalizer)
        ):
            text = self.cut(tags).content.get("answer")
            text = text and text.strip()
            known = Answer(tags, normalizer, text, normalizer(text) if text else None)
            self._answer = known
        return known


def read_response(text: str) -> Response:
    """A response as it is read: without the end-of-sequence text at its end."""
    return Response(strip_end_of_sequence(text))

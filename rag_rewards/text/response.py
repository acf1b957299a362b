"""A response, read once: end-of-sequence text gone, thinking apart, sections cut on demand."""

from __future__ import annotations

from functools import cached_property

from rag_rewards.text.normalize import Normalizer
from rag_rewards.text.sections import Cut, Tags, cut, without_thinking

END_OF_SEQUENCE = (
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
"""What the chat templates of the common model families write after the last word."""


def strip_end_of_sequence(text: str, tokens: tuple[str, ...] = END_OF_SEQUENCE) -> str:
    """Take end-of-sequence text off the end, however often it stands there.

    >>> strip_end_of_sequence("<answer>Paris</answer><|im_end|>\\n")
    '<answer>Paris</answer>'
    """
    end = len(text)
    at = len(text.rstrip())
    while text.endswith(tokens, 0, at):
        end = at - next(len(token) for token in tokens if text.endswith(token, 0, at))
        at = end
        while at and text[at - 1].isspace():
            at -= 1
    return text[:end]


class Response:
    """What the policy wrote, in every reading that a reward asks for, each computed once."""

    def __init__(self, text: str) -> None:
        self.text = strip_end_of_sequence(text)
        self._cuts: dict[Tags, Cut] = {}
        self._normal: dict[tuple[Normalizer, str], str] = {}

    def cut(self, tags: Tags) -> Cut:
        """The response cut at these tags."""
        found = self._cuts.get(tags)
        if found is None:
            found = self._cuts[tags] = cut(self.text, tags)
        return found

    @cached_property
    def visible(self) -> str:
        """The response without its thinking."""
        return without_thinking(self.text)

    def normal(self, normalizer: Normalizer, text: str) -> str:
        """A part of the response, normalised once however many rewards read it."""
        key = (normalizer, text)
        found = self._normal.get(key)
        if found is None:
            found = self._normal[key] = normalizer(text)
        return found


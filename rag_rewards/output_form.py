"""Output forms: where the sections and the answer are in a response that a recipe asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rag_rewards.prompts import fill
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.text.sections import SectionStyle, Tags

_SECTION = re.compile(r"<(\w+)>\{\1\}</\1>")


@dataclass(frozen=True)
class OutputForm:
    r"""The form of a response that a recipe asks for and reads.

    description  the form in words, for people
    template     a response with a place for each part: `<think>{think}</think>\boxed{{answer}}`
    examples     the other parts of a right response to `What is the capital of France?`, where
                 document 1 of five is the one that supports the answer
    abstention   the text in the place of the answer that the reward recognizes as declining to
                 answer; None where the reward recognizes none
    cites        whether a right answer must cite documents, so that a gold answer alone is not
                 a right answer
    """

    description: str
    template: str = "<think>{think}</think><answer>{answer}</answer>"
    examples: Mapping[str, str] = field(default_factory=lambda: {"think": "Some thinking."})
    abstention: str | None = None
    cites: bool = False

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of the sections, in their order.

        >>> OutputForm("think, then answer").sections
        ('think', 'answer')
        """
        return tuple(_SECTION.findall(self.template))

    def tags(self, style: SectionStyle) -> Tags:
        """The sections as tags that are read in this style."""
        return Tags(self.sections, style)

    def write(self, answer: str, **parts: str) -> str:
        """Return a response with this answer; a part that is not given is its example.

        >>> OutputForm("think, then answer").write("Paris", think="Easy.")
        '<think>Easy.</think><answer>Paris</answer>'
        """
        return fill(self.template, **{**self.examples, **parts, "answer": answer})

    def write_answer(self, answer: str) -> str:
        r"""Return the answer in its place, without the other parts of a response.

        >>> OutputForm("", r"<think>{think}</think> \boxed{{answer}}").write_answer("Paris")
        '\\boxed{Paris}'
        """
        rest = _SECTION.sub(lambda tag: tag[0] if tag[1] == "answer" else "", self.template)
        return fill(rest.strip(), answer=answer)

    def write_abstention(self) -> str:
        """Return the text that declines to answer, in the place of the answer."""
        return self.write_answer(self.abstention or ABSTENTIONS[0])


ANY_FORM = OutputForm("any")
"""The form of recipes that ask for none."""

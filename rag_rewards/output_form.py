"""Output forms: the sections of a response, and the place of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rag_rewards.prompts import fill
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.text.sections import SectionStyle, Tags

_MARK = re.compile(r"<\w+>|\\\w+")
_SECTION = re.compile(r"<(\w+)>\{\1\}</\1>")


@dataclass(frozen=True)
class OutputForm:
    r"""The form of a response that a recipe prompts for and reads.

    description  the form as text
    template     response with a placeholder for each part: `<think>{think}</think>\boxed{{answer}}`
    examples     the other parts of a right response to `What is the capital of France?`, which
                 document 1 of five answers
    abstention   answer that the reward recognizes as declining to answer; None if there is none
    cites        whether a right answer must cite documents
    required     whether the reward reads the parts, so that a prompt must request them; `answer` if
                 it reads only the answer
    """

    description: str
    template: str = "<think>{think}</think><answer>{answer}</answer>"
    examples: Mapping[str, str] = field(default_factory=lambda: {"think": "Some thinking."})
    abstention: str | None = None
    cites: bool = False
    required: bool | Literal["answer"] = True

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of the sections, in order.

        >>> OutputForm("think, then answer").sections
        ('think', 'answer')
        """
        return tuple(_SECTION.findall(self.template))

    @property
    def marks(self) -> tuple[str, ...]:
        r"""The texts by which a prompt requests the form. There are none if it is not required.

        >>> OutputForm("", r"<think>{think}</think> \boxed{{answer}}").marks
        ('<think>', '\\boxed')
        """
        marks = tuple(_MARK.findall(self.template)) if self.required else ()
        return marks[-1:] if self.required == "answer" else marks

    @property
    def answer_mark(self) -> str:
        r"""The text that begins the answer; empty if the form is not required.

        >>> OutputForm("", r"<think>{think}</think> \boxed{{answer}}").answer_mark
        '\\boxed'
        """
        return self.marks[-1] if self.marks else ""

    @property
    def answer_name(self) -> str:
        """The name of the part that contains the answer.

        >>> OutputForm("think, then answer").answer_name
        '<answer> section'
        """
        is_box = self.answer_mark.startswith("\\")
        return "box" if is_box else f"{self.answer_mark} section"

    def answer_part(self, reader: str) -> str:
        """Return the name of this part, and who reads it.

        >>> OutputForm("think, then answer").answer_part("arena")
        '<answer> section, which arena reads'
        """
        return f"{self.answer_name}, which {reader} reads"

    def requiring_answer(self) -> OutputForm:
        """Return the form of a reward that reads the section or box with the answer.

        >>> OutputForm("any", required=False).requiring_answer().marks
        ('<answer>',)
        """
        return self if self.required else replace(self, required="answer")

    def tags(self, style: SectionStyle) -> Tags:
        """Return the tags of the sections, in a style of reading."""
        return Tags(self.sections, style)

    def write(self, answer: str, **parts: str) -> str:
        """Return a response with an answer and other parts. The default of a part is its example.

        >>> OutputForm("think, then answer").write("Paris", think="Easy.")
        '<think>Easy.</think><answer>Paris</answer>'
        """
        return fill(self.template, **{**self.examples, **parts, "answer": answer})

    def write_answer(self, answer: str) -> str:
        r"""Return the answer as the template contains it, without the other parts of a response.

        >>> OutputForm("", r"<think>{think}</think> \boxed{{answer}}").write_answer("Paris")
        '\\boxed{Paris}'
        """
        rest = _SECTION.sub(lambda tag: tag[0] if tag[1] == "answer" else "", self.template)
        return fill(rest.strip(), answer=answer)

    def write_abstention(self) -> str:
        """Return the abstention as the template contains an answer, without the other parts."""
        return self.write_answer(self.abstention or ABSTENTIONS[0])


ANY_FORM = OutputForm("any", required=False)
"""The form of recipes that require no form."""

"""Judges for `judge_injection.py` that a text misleads in one known way each.

A double reads the messages of a request as a model would, and returns its output. Apart from its
weakness, it is right: a response is right if it equals a reference, and a claim is supported if a
document states each of its lines. A criterion is met if the response states what it requires in its
own words. A response of a group gets the best grade if it equals a reference or a document, else
the worst one. No double is a model of the error rates of a language model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rag_rewards.text.normalize import fold, without_invisible

Double = Callable[["Message"], str]
_BLOCK = re.compile(r"<([a-z-]+(?:-[0-9]+)?)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
_CLOSING = re.compile(r"<\s*/\s*(?:prediction|response|claim|document)|^-{3,}$|^end of the")
_DEMAND = re.compile(r"score\W{0,4}1|score it 1|accepts?\b|correct")
_TAG = re.compile(r"<\s*(/?)\s*response-([0-9]+)")
_STATES = re.compile(r"The response states that (.*)\.")
_DOES_NOT = re.compile(r"The response does not mention (.*)\.")
_BEST = re.compile(r"to ([0-9]+) \(best\)")
GRADED = ("prediction", "response", "claim")
Truth = int | list[int]


@dataclass(frozen=True)
class Message:
    """The messages of a request, and the texts of the user message by tag, without marks."""

    content: str
    system: str = ""

    @property
    def is_marked(self) -> bool:
        return '"code": "' in self.content.splitlines()[-1]

    @property
    def code(self) -> str:
        return self.content.split("The code is ")[1][:16]

    @property
    def blocks(self) -> list[tuple[str, str]]:
        texts = [(tag, text) for tag, code, text in _BLOCK.findall(self.content)]
        return [(tag, re.sub(r"(?m)^\| ", "", text)) for tag, text in texts]

    @property
    def graded(self) -> str:
        """The graded text; of a group, all of them."""
        return "\n".join(self.responses or [t for tag, t in self.blocks if tag in GRADED])

    @property
    def criteria(self) -> list[str]:
        return [text for tag, text in self.blocks if tag.startswith("criterion-")]

    @property
    def responses(self) -> list[str]:
        return [text for tag, text in self.blocks if tag.startswith("response-")]

    def each(self, verdict: Callable[[str], bool]) -> Truth:
        """Return the verdict on the graded text; of a group, one for each response."""
        if self.responses:
            return [int(verdict(text)) for text in self.responses]
        return int(verdict(self.graded))

    @property
    def outside(self) -> str:
        """The lines that follow what looks like the end of a text, as a careless reader sees them.

        A mark shows such a reader that a line is part of a text.
        """
        outside: list[str] = []
        for _, _, text in _BLOCK.findall(self.content):
            lines = fold(text).splitlines()
            ends = [i for i, line in enumerate(lines) if _CLOSING.search(line)]
            outside += lines[ends[0] + 1 :] if ends else []
        return "\n".join(line for line in outside if not line.startswith("| "))

    def reply(self, verdict: Truth, after: str = "") -> str:
        """Return a reply with 1 as the best grade, and 0 as the worst; one number is for all."""
        code = f'"code": "{self.code}", ' if self.is_marked else ""
        best = int(match[1]) if (match := _BEST.search(self.system)) else 1
        score = f'"score": {verdict}'
        if items := len(self.criteria or self.responses):
            grades = [verdict] * items if isinstance(verdict, int) else verdict
            scores = {str(i): best * grade for i, grade in enumerate(grades, 1)}
            score = f'"scores": {json.dumps(scores)}'
        return f'{{"explanation": "compared", {code}{score}}}{after}'


def states(text: str, criterion: str) -> bool:
    """Return whether a text states in its own words what a criterion requires."""
    if match := _DOES_NOT.fullmatch(criterion):
        return fold(match[1]) not in fold(text)
    match = _STATES.fullmatch(criterion)
    return bool(match) and fold(match[1]) in fold(text).replace(fold(criterion), "")


def truth(message: Message) -> Truth:
    """Return the right verdict, or the right verdicts."""
    texts = message.blocks
    if message.criteria:
        return [int(states(message.graded, each)) for each in message.criteria]
    if message.responses:
        tags = ("reference", "accepted-answer", "document")
        return grades_of(message.responses, [text for tag, text in texts if tag in tags])
    if any(tag == "claim" for tag, _ in texts):
        documents = [text for tag, text in texts if tag == "document"]
        return int(all(any(x in d for d in documents) for x in message.graded.splitlines()))
    references = [fold(text) for tag, text in texts if tag in ("reference", "accepted-answer")]
    return int(fold(message.graded) in references)


def grades_of(responses: Sequence[str], right: Sequence[str]) -> list[int]:
    folded = [fold(text) for text in right]
    return [int(fold(response) in folded) for response in responses]


def reliable(message: Message) -> str:
    """Return the right verdict."""
    return message.reply(truth(message))


def obedient(texts: Collection[tuple[str, bool]]) -> Double:
    """Return a judge that obeys each of these texts: (text, whether its demand is invisible)."""
    exact = {_key(text) for text, _ in texts}
    visible = {_key(without_invisible(text)) for text, is_hidden in texts if not is_hidden}
    keys = exact | visible

    def judge(message: Message) -> str:
        # A claim or a response can have planted lines after the text.
        def obeys(text: str) -> bool:
            lines = text.split("\n")
            parts = ("\n".join(lines[: len(lines) - planted]) for planted in range(3))
            return any(_key(part) in keys for part in parts if part)

        if not any(obeys(text) for _, text in message.blocks):
            return message.reply(truth(message))
        return message.reply(message.each(obeys) if message.responses else 1)

    return judge


def careless_about_fences(message: Message) -> str:
    """Obey demands after anything in a text that looks like its end, and no others."""
    return message.reply(1 if _DEMAND.search(message.outside) else truth(message))


def quoting(message: Message) -> str:
    """Repeat the graded text after the right verdict."""
    return message.reply(truth(message), f"\nThe text was:\n{message.graded}")


def prefers_the_last_text(message: Message) -> str:
    """Accept the graded text if it is the last one; of several criteria or responses, the last."""
    if items := len(message.criteria or message.responses):
        return message.reply([0] * (items - 1) + [1])
    return message.reply(int(message.blocks[-1][0] in GRADED))


def accepts_openings(message: Message) -> str:
    """Accept a text without content."""

    def is_empty(text: str) -> bool:
        words = re.findall(r"\w+", fold(text))
        return not words or words[0] in ("solution", "thought", "let", "answer", "the", "reasoning")

    empty = message.each(is_empty)
    if isinstance(empty, list):
        return message.reply(empty if any(empty) else truth(message))
    return message.reply(1 if empty else truth(message))


def meets_copied_criteria(message: Message) -> str:
    """Accept each criterion that the response repeats."""
    right = truth(message)
    if message.criteria and isinstance(right, list):
        copied = [fold(each) in fold(message.graded) for each in message.criteria]
        right = [max(grade, int(copy)) for grade, copy in zip(right, copied, strict=True)]
    return message.reply(right)


def mixes_up_responses(message: Message) -> str:
    """Read tags of responses without their code, so that the last text of a number counts."""
    if not message.responses:
        return reliable(message)
    read: dict[int, list[str]] = {}
    number = 0
    for line in message.content.splitlines():
        if match := _TAG.match(line):
            number = 0 if match[1] else int(match[2])
            read |= {number: []}
        else:
            read.setdefault(number, []).append(line.removeprefix("| "))
    texts = ["\n".join(read.get(i + 1, [])) for i in range(len(message.responses))]
    tags = ("reference", "accepted-answer", "document")
    return message.reply(grades_of(texts, [t for tag, t in message.blocks if tag in tags]))


def _key(text: str) -> str:
    """Return a text without the characters that its place in a message changes."""
    return re.sub(r"[\s|]", "", text)

"""Judges for `judge_injection.py` that a text misleads in one known way each.

A double reads the messages of a request as a model would, and returns its output. Apart from its
weakness, it is right: a response is right if it equals a reference, and a claim is supported if a
document states each of its lines. No double is a model of the error rates of a language model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rag_rewards.text.normalize import fold, without_invisible

Double = Callable[["Message"], str]
_BLOCK = re.compile(r"<([a-z-]+)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
_CLOSING = re.compile(r"<\s*/\s*(?:prediction|response|claim|document)|^-{3,}$|^end of the")
_DEMAND = re.compile(r"score\W{0,4}1|score it 1|accepts?\b|correct")
GRADED = ("prediction", "response", "claim")


@dataclass(frozen=True)
class Message:
    """The user message of a request, and its texts by tag, without marks."""

    content: str

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
        return next(text for tag, text in self.blocks if tag in GRADED)

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

    def reply(self, verdict: int, after: str = "") -> str:
        code = f'"code": "{self.code}", ' if self.is_marked else ""
        return f'{{"explanation": "compared", {code}"score": {verdict}}}{after}'


def truth(message: Message) -> int:
    """Return the right verdict."""
    texts = message.blocks
    if any(tag == "claim" for tag, _ in texts):
        documents = [text for tag, text in texts if tag == "document"]
        return int(all(any(x in d for d in documents) for x in message.graded.splitlines()))
    references = [fold(text) for tag, text in texts if tag in ("reference", "accepted-answer")]
    return int(fold(message.graded) in references)


def reliable(message: Message) -> str:
    """Return the right verdict."""
    return message.reply(truth(message))


def obedient(texts: Collection[tuple[str, bool]]) -> Double:
    """Return a judge that obeys each of these texts: (text, whether its demand is invisible)."""
    exact = {_key(text) for text, _ in texts}
    visible = {_key(without_invisible(text)) for text, is_hidden in texts if not is_hidden}
    keys = exact | visible

    def judge(message: Message) -> str:
        # A claim can have a planted line after the text.
        candidates = {_key(text) for _, text in message.blocks}
        candidates |= {_key(text.rpartition("\n")[0]) for _, text in message.blocks if "\n" in text}
        return message.reply(1 if candidates & keys else truth(message))

    return judge


def careless_about_fences(message: Message) -> str:
    """Obey demands after anything in a text that looks like its end, and no others."""
    return message.reply(1 if _DEMAND.search(message.outside) else truth(message))


def quoting(message: Message) -> str:
    """Repeat the graded text after the right verdict."""
    return message.reply(truth(message), f"\nThe text was:\n{message.graded}")


def prefers_the_last_text(message: Message) -> str:
    """Accept the graded text if it is the last one."""
    return message.reply(int(message.blocks[-1][0] in GRADED))


def accepts_openings(message: Message) -> str:
    """Accept a text without content."""
    words = re.findall(r"\w+", fold(message.graded))
    is_empty = not words or words[0] in ("solution", "thought", "let", "answer", "the", "reasoning")
    return message.reply(1 if is_empty else truth(message))


def _key(text: str) -> str:
    """Return a text without the characters that its place in a message changes."""
    return re.sub(r"[\s|]", "", text)

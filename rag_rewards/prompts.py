"""Prompts: the chat that asks a policy a question, with numbered documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from rag_rewards.errors import UsageError
from rag_rewards.rollout import Document, Rollout

_PLACE = re.compile(r"\{(\w+)\}")
_PLACES = frozenset({"label", "title", "text"})
"""The places of a document's form."""


@dataclass(frozen=True)
class Prompt:
    """A message with the places `{question}`, `{documents}` and `{query_time}`.

    `message` is a text, or a function that returns the text for a rollout. Each document is
    written in the form `document` (`untitled` where it has no title), with `separator` between
    documents. A row with a prompt of its own needs no message, but a document can be left out of
    that prompt only where it is written in this form.
    """

    message: str | Callable[[Rollout], str]
    system: str = ""
    document: str = "[{label}] {title}\n{text}"
    untitled: str = "[{label}] {text}"
    separator: str = "\n\n"

    def block(self, label: str, document: Document) -> str:
        """Return a document in the form in which the prompt shows it.

        >>> Prompt("").block("2", Document(title="Paris", text="A city."))
        '[2] Paris\\nA city.'
        """
        form = self.document if document.title else self.untitled
        return fill(form, label=label, title=document.title or "", text=document.text)

    def showing(self, form: str | None, separator: str | None) -> Prompt:
        """Return the prompt with this form of a document, titled or not, and this separator.

        None keeps the present one. Raise UsageError for a form without `{text}`.

        >>> Prompt("").showing("{text} ({label})", None).block("2", Document(text="Rome."))
        'Rome. (2)'
        """
        if form is not None:
            places = _PLACE.findall(form)
            if "text" not in places or not _PLACES.issuperset(places):
                raise UsageError(
                    "a document's form has {text}, and may have {label} and {title}, "
                    f"found {form!r}"
                )
        return replace(
            self,
            document=self.document if form is None else form,
            untitled=self.untitled if form is None else form,
            separator=self.separator if separator is None else separator,
        )

    def message_for(self, rollout: Rollout) -> str:
        """Return the message for a rollout, with its places open."""
        return self.message if isinstance(self.message, str) else self.message(rollout)

    def messages(self, rollout: Rollout, without: Collection[str] = ()) -> list[dict[str, str]]:
        """Return the chat that asks a rollout's question, without the documents of these labels."""
        pairs = zip(rollout.labels, rollout.documents or (), strict=True)
        blocks = [self.block(label, doc) for label, doc in pairs if label not in without]
        content = fill(
            self.message_for(rollout),
            question=rollout.question or "",
            documents=self.separator.join(blocks),
            query_time=rollout.query_time or "",
        )
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": content}]


def fill(form: str, **values: str) -> str:
    """Return the form with values in its places, in one pass: a value never opens a place.

    >>> fill("{a} {b} {c}", a="{b}", b="x")
    '{b} x {c}'
    """
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), form)


GROUNDED = Prompt(
    "Answer the question with the help of the documents below. Reason step by step inside "
    "<think> and </think>, cite a document you rely on by its number, as in [1], and put the "
    "final answer alone inside <answer> and </answer>.\n\n"
    "Documents:\n\n{documents}\n\nQuestion: {question}"
)
"""The prompt of recipes whose paper asks for no particular sections, and of custom rewards."""

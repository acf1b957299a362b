"""Prompts: the chat that contains a question and its numbered documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.rollout import Document, Rollout

Text = str | Callable[[Rollout], str]
"""A text, or a function that returns it for a rollout."""

BLANK = Rollout(question="", documents=(), answers="", response="")
"""A rollout for the text of a prompt that no question fills yet."""

_PLACE = re.compile(r"\{(\w+)\}")
GOLD_PLACES = ("gold_documents", "gold_answer", "gold_answers")
"""The placeholders of gold data, which only prompts for writers of training data contain."""
_PLACES = frozenset({"label", "title", "text"})
"""The placeholders in the form of a document."""


@dataclass(frozen=True)
class Prompt:
    """The prompt of a recipe.

    message      text with the placeholders `{instruction}`, `{documents}`, `{question}` and
                 `{query_time}`, or a function that returns this text for a rollout; a prompt for a
                 rationale also has `{gold_documents}`, `{gold_answer}` and `{gold_answers}`
    system       system message; "" for none
    document     form of a document, with the placeholders `{label}`, `{title}` and `{text}`
    untitled     form of a document without a title
    separator    text between two documents
    instruction  what the policy does and in which form it responds, as text or as a function

    A row with its own prompt does not use the message. A document can be removed from that prompt
    only if it has this form there.
    """

    message: Text
    system: str = ""
    document: str = "[{label}] {title}\n{text}"
    untitled: str = "[{label}] {text}"
    separator: str = "\n\n"
    instruction: Text = ""

    def block(self, label: str, document: Document) -> str:
        """Return a document in the form that it has in the prompt.

        >>> Prompt("").block("2", Document(title="Paris", text="A city."))
        '[2] Paris\\nA city.'
        """
        form = self.document if document.title else self.untitled
        return fill(form, label=label, title=document.title or "", text=document.text)

    def showing(self, form: str | None, separator: str | None) -> Prompt:
        """Return the prompt with another form of documents, titled or not, and another separator.

        None leaves a value unchanged. Raises UsageError for a form without `{text}`.

        >>> Prompt("").showing("{text} ({label})", None).block("2", Document(text="Rome."))
        'Rome. (2)'
        """
        if form is not None:
            places = _PLACE.findall(form)
            if "text" not in places or not _PLACES.issuperset(places):
                raise UsageError(
                    "the form of a document must contain {text}, and can contain {label} and "
                    f"{{title}}, found {form!r}"
                )
        return replace(
            self,
            document=self.document if form is None else form,
            untitled=self.untitled if form is None else form,
            separator=self.separator if separator is None else separator,
        )

    @property
    def identity(self) -> str:
        """A text that is equal for equal prompts in every process.

        A function is identified by its module and its name, because `repr` writes its address.
        """
        return repr([_identity(getattr(self, field.name)) for field in fields(self)])

    @property
    def shows_documents(self) -> bool:
        """Whether the message contains the documents. Without them, the prompt is closed-book.

        >>> Prompt("{documents} {question}").shows_documents, Prompt("{question}").shows_documents
        (True, False)
        """
        return "{documents}" in self.message_for(BLANK)

    @property
    def shows_gold(self) -> bool:
        """Whether the message contains gold data. No policy can be trained with such a prompt.

        >>> Prompt("{question} Why {gold_answer}?").shows_gold, Prompt("{question}").shows_gold
        (True, False)
        """
        message = self.message_for(BLANK)
        return any(f"{{{place}}}" in message for place in GOLD_PLACES)

    def message_for(self, rollout: Rollout) -> str:
        """Return the message for a rollout, with its placeholders except for `{instruction}`."""
        message = _text_for(self.message, rollout)
        if rollout.query_time and "{query_time}" not in message:
            # The instruction must not refer to a time that the message does not contain.
            rollout = msgspec.structs.replace(rollout, query_time=None)
        return fill(message, instruction=_text_for(self.instruction, rollout))

    def messages(self, rollout: Rollout, without: Collection[str] = ()) -> list[dict[str, str]]:
        """Return the chat for a rollout, without the documents that have these labels."""
        pairs = zip(rollout.labels, rollout.documents or (), strict=True)
        blocks = [self.block(label, doc) for label, doc in pairs if label not in without]
        message = self.message_for(rollout)
        content = fill(
            message,
            question=rollout.question or "",
            documents=self.separator.join(blocks),
            query_time=rollout.query_time or "",
            **_gold_values(message, rollout),
        )
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": content}]


def _gold_values(message: str, rollout: Rollout) -> dict[str, str]:
    """The gold data in a message. Only a message with their placeholders requires them."""
    values = {}
    if "{gold_documents}" in message:
        values["gold_documents"] = f"[{', '.join(rollout.supporting_in_order)}]"
    if "{gold_answer}" in message:
        values["gold_answer"] = rollout.gold_text
    if "{gold_answers}" in message:
        values["gold_answers"] = "\n".join(
            f"Answer {i + 1}: {rollout.gold[i][0]}" for i in rollout.supported_gold
        )
    return values


def _identity(text: Text) -> str:
    if isinstance(text, str):
        return text
    function = text if hasattr(text, "__qualname__") else type(text)
    return f"{function.__module__}:{function.__qualname__}"


def _text_for(text: Text, rollout: Rollout) -> str:
    return text if isinstance(text, str) else text(rollout)


def fill(form: str, **values: str) -> str:
    """Return a form with values in place of its placeholders.

    A placeholder in a value is not filled, and a placeholder without a value stays.

    >>> fill("{a} {b} {c}", a="{b}", b="x")
    '{b} x {c}'
    """
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), form)


LAYOUT = "{instruction}\n\nDocuments:\n\n{documents}\n\nQuestion: {question}"
"""The message of a prompt with documents, if a recipe has no other."""
CLOSED_BOOK_LAYOUT = "{instruction}\n\nQuestion: {question}"
"""The message of a prompt without documents, if a recipe has no other."""

GROUNDED = Prompt(
    LAYOUT,
    instruction="Answer the question with the help of the documents below. Reason step by step "
    "inside <think> and </think>, cite a document you rely on by its number, as in [1], and put "
    "the final answer alone inside <answer> and </answer>.",
)
"""The prompt of recipes whose paper requires no sections, and of custom rewards."""

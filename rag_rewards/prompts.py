"""How each recipe asks: the sections that its reward reads, and the paper's rules, in our words."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from rag_rewards.errors import UsageError
from rag_rewards.rollout import Document, Rollout
from rag_rewards.text.refusal import REFUSAL

_PLACE = re.compile(r"\{(\w+)\}")
_PLACES = frozenset({"label", "title", "text"})
"""What can be said of a document."""


@dataclass(frozen=True)
class Prompt:
    """How a recipe asks: a message with `{question}`, `{documents}` and `{query_time}`.

    Each document stands as `document` says (`untitled` where it has no title), with `{label}`,
    `{title}` and `{text}`, `separator` between them. A row that brings its own prompt needs no
    message from here, but its documents must stand in it that way to be left out of it.
    """

    message: str
    system: str = ""
    document: str = "[{label}] {title}\n{text}"
    untitled: str = "[{label}] {text}"
    separator: str = "\n\n"

    def block(self, label: str, document: Document) -> str:
        """A document as the prompt shows it.

        >>> Prompt("").block("2", Document(title="Paris", text="A city."))
        '[2] Paris\\nA city.'
        """
        form = self.document if document.title else self.untitled
        return fill(form, label=label, title=document.title or "", text=document.text)

    def showing(self, form: str | None, separator: str | None) -> Prompt:
        """The same request with documents in this form, titled or not, and with this separator;
        None keeps what it has. UsageError for a form that does not show a document.

        >>> Prompt("").showing("{text} ({label})", None).block("2", Document(text="Rome."))
        'Rome. (2)'
        """
        if form is not None:
            places = _PLACE.findall(form)
            if "text" not in places or not _PLACES.issuperset(places):
                raise UsageError(
                    "a document's form has {text}, and where wanted {label} and {title}, "
                    f"found {form!r}"
                )
        return replace(
            self,
            document=self.document if form is None else form,
            untitled=self.untitled if form is None else form,
            separator=self.separator if separator is None else separator,
        )

    def messages(self, rollout: Rollout, without: Collection[str] = ()) -> list[dict[str, str]]:
        """The chat that asks a rollout's question, without the documents of these labels."""
        pairs = zip(rollout.labels, rollout.documents or (), strict=True)
        blocks = [self.block(label, doc) for label, doc in pairs if label not in without]
        said = fill(
            self.message,
            question=rollout.question or "",
            documents=self.separator.join(blocks),
            query_time=rollout.query_time or "",
        )
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": said}]


def fill(form: str, **values: str) -> str:
    """Put values into places in one pass: what stands in a value is never a place itself.

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
RATIONAL = Prompt(
    "Read the passages and answer the question in three parts. First, inside <reason> and "
    "</reason>, work out what the passages say about it. Then, inside <extract> and </extract>, "
    "give the evidence that is needed, and no more. Last, inside <answer> and </answer>, give the "
    "answer in a few words.\n\n"
    "Passages:\n\n{documents}\n\nQuestion: {question}"
)
# Source: ARENA, Table 1 and appendix B: numbered references without titles, three sections.
TRACEABLE = Prompt(
    "Answer the question from the numbered references. Reply with exactly three sections, in this "
    "order, and with nothing outside them.\n"
    "<relevance>[the numbers of the references that help, and no others, as in [1, 5]]</relevance>"
    "\n"
    "<analysis>how these references lead to the answer, with the number of the reference behind "
    "each claim</analysis>\n"
    "<answer>the answer alone: a word or a short phrase, unexplained</answer>\n\n"
    "<question>{question}</question>\n\n"
    "<references>\n{documents}\n</references>",
    document="[{label}] {text}",
)
# Source: Ground-GRPO, section 2; the instructions of ALCE and Trust-Align, the latter's refusal.
_ATTRIBUTED = (
    "Answer the question from the documents below alone; some of them may not bear on it. Think "
    "inside <think> and </think> about what they say and whether they answer it. Then, inside "
    "<answer> and </answer>, {rule} If no document holds an answer, write this sentence and "
    "nothing else there: " + REFUSAL + "\n\nDocuments:\n\n{documents}\n\nQuestion: {question}"
)
ATTRIBUTED = Prompt(
    _ATTRIBUTED.replace(
        "{rule}",
        "give the answer in precise sentences, without your reasoning. Every statement of fact "
        "cites, by number, the documents that prove it, as few as will do and three at most: [1] "
        "or [1][2].",
    )
)
ATTRIBUTED_LIST = Prompt(
    _ATTRIBUTED.replace(
        "{rule}",
        "list all the answers that the documents give, separated by commas, without your "
        "reasoning. Behind each stands the number of one document that proves it: [1].",
    )
)
# Source: TruthRL, appendix B, Table 10.
_TRUTHFUL = (
    "Answer the question{when}. Rely on what you know and on the references below, which may or "
    "may not help. Think step by step inside <think> and </think>, then put the final answer, and "
    "it alone, into \\boxed{}: \\boxed{New York}, \\boxed{3 times}. If the question rests on "
    "something false, answer \\boxed{invalid question}. If you are not sure of the answer, write "
    "\\boxed{I don't know}.\n\n"
    "References:\n\n{documents}\n\nQuestion: {question}"
)
TRUTHFUL = Prompt(
    _TRUTHFUL.replace("{when}", " as of the time at which it was asked")
    + "\nQuery time: {query_time}"
)
TRUTHFUL_UNTIMED = Prompt(_TRUTHFUL.replace("{when}", ""))

PROMPTS: dict[str, Prompt] = {
    "arena": TRACEABLE,
    "ground-grpo-stage1": ATTRIBUTED,
    "ground-grpo": ATTRIBUTED,
    "lear": RATIONAL,
    "truthrl": TRUTHFUL,
}
"""By recipe; the others ask as GROUNDED does."""


def prompt_of(recipe: str, rollout: Rollout) -> Prompt:
    """The prompt of a recipe for this question: lists are asked for as lists, and time where known.

    >>> prompt_of("truthrl", Rollout(question="Who?", response="")) is TRUTHFUL_UNTIMED
    True
    """
    prompt = PROMPTS.get(recipe, GROUNDED)
    if prompt is TRUTHFUL and not rollout.query_time:
        return TRUTHFUL_UNTIMED
    if prompt is ATTRIBUTED and rollout.answer_kind == "list":
        return ATTRIBUTED_LIST
    return prompt

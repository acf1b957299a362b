"""Prompts of recipes, templates in the words of a user, and the output forms of responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.rollout import Document, Rollout
from rag_rewards.settings import did_you_mean
from rag_rewards.text.sections import SectionStyle, Tags

Text = str | Callable[[Rollout], str]
"""A text, or a function that returns it for a rollout."""

BLANK = Rollout(question="", documents=(), answers="", response="")
"""A rollout for the text of a prompt that no question fills yet."""

_PLACE = re.compile(r"\{(\w+)\}")
GOLD_PLACES = ("gold_documents", "gold_answer", "gold_answers")
"""The placeholders of gold data, which only prompts for writers of training data contain."""


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
            if "text" not in places or not {"label", "title", "text"}.issuperset(places):
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


# --- output forms ------------------------------------------------------------------------------

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
        r"""The text that begins the answer: `<answer>` if the form has it, else its last mark.

        It is empty if the form is not required.

        >>> OutputForm("", r"<think>{think}</think> \boxed{{answer}}").answer_mark
        '\\boxed'
        """
        if "<answer>" in self.marks:
            return "<answer>"
        return self.marks[-1] if self.marks else ""

    def answer_part(self, reader: str, mark: str = "") -> str:
        """Return the name of the part with the answer, or with another mark, and who reads it.

        >>> OutputForm("think, then answer").answer_part("arena")
        '<answer> section, which arena reads'
        """
        mark = mark or self.answer_mark
        return f"{'box' if mark.startswith(chr(92)) else f'{mark} section'}, which {reader} reads"

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


ANY_FORM = OutputForm("any", required=False)
"""The form of recipes that require no form."""


# --- prompt templates --------------------------------------------------------------------------

PLACEHOLDERS = ("instruction", "documents", "question", "query_time", *GOLD_PLACES)
MAX_TEMPLATE_BYTES = 100_000
"""Size of the largest template. A prompt of this size has no room for documents."""

_BRACES = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<place>[^{}\n]{1,40})\}")


@dataclass(frozen=True)
class PromptTemplate:
    """A text with placeholders, which replaces the message of a prompt.

    `{question}` and, unless the prompt is closed-book, `{documents}` are required. `{instruction}`
    becomes the instruction of the recipe, and `{query_time}` the time of the question or nothing. A
    prompt for rationales also has the placeholders of gold data. All other braces are literal, and
    `{{word}}` becomes the literal text `{word}`. Raises OptionError for an empty text, and for an
    unknown or repeated placeholder.

    >>> template = PromptTemplate("{documents} {question} Reply as {{json}}.")
    >>> template.placeholders, template.message
    (('documents', 'question'), '{documents} {question} Reply as {json}.')
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise _error("is empty: write a text with the placeholders {documents} and {question}")
        for match in _BRACES.finditer(self.text):
            _check_braces(match)
        for place in self.placeholders:
            if self.placeholders.count(place) > 1:
                raise _error(f"contains {{{place}}} more than once: write it once")

    @classmethod
    def read(cls, path: str | Path) -> PromptTemplate:
        """Read a template from a UTF-8 file of at most 100,000 bytes.

        A line break at the end of the file is not part of the template. Raises OptionError.
        """
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_TEMPLATE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise _error(f"cannot be read: {path}: {reason}") from None
        if len(data) > MAX_TEMPLATE_BYTES:
            raise _error(f"is larger than {MAX_TEMPLATE_BYTES:,} bytes: {path} is not a prompt")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _error(
                f"is not UTF-8: {path} has an invalid byte at position {error.start}; convert the "
                "file to UTF-8"
            ) from None
        return cls(text.replace("\r\n", "\n").removesuffix("\n"))

    @cached_property
    def placeholders(self) -> tuple[str, ...]:
        """The names of the placeholders, in order."""
        return tuple(match["place"] for match in _BRACES.finditer(self.text) if match["place"])

    @cached_property
    def message(self) -> str:
        """The text as the message of a prompt, in which `{{word}}` is `{word}`."""
        return _BRACES.sub(lambda m: f"{{{m['literal']}}}" if m["literal"] else m[0], self.text)

    def apply(self, prompt: Prompt, form: OutputForm) -> Prompt:
        """Return a prompt with this template as its message, instead of its own.

        The template has the documents if and only if the prompt has them. Without `{instruction}`,
        it must mention the same parts of the output form as the prompt. Raises OptionError.
        """
        self._check_placeholders(prompt)
        if "instruction" not in self.placeholders:
            self._check_form(prompt, form)
        elif not prompt.instruction:
            raise _error(
                "contains {instruction}, but the recipe has no separate instruction: write the "
                "instruction in its place"
            )
        return replace(prompt, message=self.message)

    def _check_placeholders(self, prompt: Prompt) -> None:
        """Raise OptionError unless the template shows the same data as a prompt."""
        has_documents = "documents" in self.placeholders
        if prompt.shows_documents and not has_documents:
            raise _error(
                "has no {documents}: add it where the documents belong, or use a closed-book prompt"
            )
        if has_documents and not prompt.shows_documents:
            raise _error("contains {documents}, but the prompt is closed-book: remove it")
        gold = [place for place in self.placeholders if place in GOLD_PLACES]
        if gold and not prompt.shows_gold:
            raise _error(
                f"contains {{{gold[0]}}}, but the policy must not see gold data: remove it, or use "
                "a prompt for rationales"
            )
        if prompt.shows_gold and not gold:
            raise _error("has no {gold_answer} or {gold_answers}: add it where the answer belongs")
        if "question" not in self.placeholders:
            raise _error("has no {question}: add it where the question belongs")

    def _check_form(self, prompt: Prompt, form: OutputForm) -> None:
        own = prompt.message_for(BLANK)
        missing = [mark for mark in form.marks if mark in own and mark not in self.text]
        if missing:
            raise _error(
                f"does not request {' and '.join(missing)}, which the recipe reads: add "
                "{instruction}, or describe the output form in your own words"
            )


def adjusted(
    prompt: Prompt,
    form: OutputForm,
    prompt_template: PromptTemplate | None = None,
    document_form: str | None = None,
    document_separator: str | None = None,
) -> Prompt:
    """Return a prompt with another message, another form of documents, and another separator.

    None leaves a value unchanged. Raises OptionError for a template, and UsageError for a form of
    documents that cannot be used.
    """
    if prompt_template is not None:
        prompt = prompt_template.apply(prompt, form)
    return prompt.showing(document_form, document_separator)


def _check_braces(match: re.Match[str]) -> None:
    """Raise OptionError for a placeholder that does not exist, or that has two pairs of braces."""
    if match["literal"] in PLACEHOLDERS:
        raise _error(f"contains {match[0]}: write the placeholder as {{{match['literal']}}}")
    place = match["place"]
    if place is None or place in PLACEHOLDERS:
        return
    normal = re.sub(r"\W+", "_", place.strip().lower())
    if re.fullmatch(r"\w+", place) or normal in PLACEHOLDERS:
        hint = did_you_mean(normal, PLACEHOLDERS)
        raise _error(
            f"contains the unknown placeholder {match[0]}; write {{{match[0]}}} for the literal "
            f"text{hint}"
        )


def _error(problem: str) -> OptionError:
    return OptionError("{prompt_template}: the template {problem}", problem=problem)


# --- all prompts of a recipe -------------------------------------------------------------------

DEFAULT, DIRECT, CLOSED_BOOK = "default", "direct", "closed-book"
"""Names of the prompts that every recipe has: its own; a request for the answer alone (ARENA,
"direct RAG" and SFT-direct); the same without documents (ARENA, "direct"; TruthRL, Table 9; LEAR,
Table 8; Acc(Q) of CTRL-RAG). A recipe replaces these two and adds others in its `baselines`."""

_DIRECT = (
    "Answer the question from the documents below. Reply with {shape} and nothing else: the answer "
    "is a word or a short phrase, unexplained."
)
_CLOSED_BOOK = (
    "Answer the question from what you know. Reply with {shape} and nothing else: the answer is a "
    "word or a short phrase, unexplained. If the question asks for several answers, separate them "
    "by commas."
)


def prompts_of(
    prompt: Prompt, form: OutputForm, baselines: Mapping[str, Prompt]
) -> dict[str, Prompt]:
    """Return all prompts of a recipe by name, from its own prompt, its form and its baselines."""
    shape = form.write_answer("…")
    direct = replace(prompt, message=LAYOUT, system="", instruction=fill(_DIRECT, shape=shape))
    closed_book = Prompt(CLOSED_BOOK_LAYOUT, instruction=fill(_CLOSED_BOOK, shape=shape))
    return {DEFAULT: prompt, DIRECT: direct, CLOSED_BOOK: closed_book, **baselines}


def prompt_named(name: str, prompts: Mapping[str, Prompt], recipe: str) -> Prompt:
    """Return a prompt of a recipe by name. Raises OptionError for an unknown name."""
    if name not in prompts:
        hint = did_you_mean(name, prompts)
        message = "{prompt}: {recipe} has no prompt {name!r}{hint}"
        raise OptionError(message, recipe=recipe, name=name, hint=hint)
    return prompts[name]


@dataclass(frozen=True)
class GoldRationale:
    """How a recipe assembles a response from gold data and a rationale.

    prompt    name of the prompt that requests a rationale; it contains the gold data
    section   section that contains the rationale
    required  components that must be 1, so that a bad rationale trains no policy
    gold      function that returns the other sections of a row, except for the answer
    """

    prompt: str
    section: str
    required: tuple[str, ...]
    gold: Callable[[Rollout], Mapping[str, str]]

    def assemble(self, form: OutputForm, row: Rollout, rationale: str) -> str:
        """Return the response in the output form of the recipe.

        Raises DataError for a row without the gold data.
        """
        parts = {**self.gold(row), self.section: rationale.strip()}
        return form.write(row.gold_text, **parts)

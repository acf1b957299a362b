"""Prompt templates: the prompt of a recipe in the words of a user, as text with placeholders.

    Answer the question inside <answer> and </answer>, after you have thought inside <think> and
    </think>.

    {documents}

    Question: {question}

`{question}` and, unless the prompt is closed-book, `{documents}` are required. `{instruction}`
becomes the instruction of the recipe, and `{query_time}` the time of the question or nothing. A
prompt for rationales also has `{gold_documents}`, `{gold_answer}` and `{gold_answers}`. All other
braces are literal. `{{word}}` becomes the literal text `{word}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rag_rewards.errors import OptionError
from rag_rewards.output_form import OutputForm
from rag_rewards.prompts import BLANK, GOLD_PLACES, Prompt
from rag_rewards.settings import did_you_mean

PLACEHOLDERS = ("instruction", "documents", "question", "query_time", *GOLD_PLACES)
MAX_BYTES = 100_000
"""Size of the largest template. A prompt of this size has no room for documents."""

_BRACES = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<place>[^{}\n]{1,40})\}")


@dataclass(frozen=True)
class PromptTemplate:
    """A text with placeholders, which replaces the message of a prompt.

    Raises OptionError for an empty text, and for an unknown or repeated placeholder.

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
                data = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise _error(f"cannot be read: {path}: {reason}") from None
        if len(data) > MAX_BYTES:
            raise _error(f"is larger than {MAX_BYTES:,} bytes: {path} is not a prompt")
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
        self._check_documents(prompt)
        self._check_gold(prompt)
        if "question" not in self.placeholders:
            raise _error("has no {question}: add it where the question belongs")
        if "instruction" not in self.placeholders:
            self._check_form(prompt, form)
        elif not prompt.instruction:
            raise _error(
                "contains {instruction}, but the recipe has no separate instruction: write the "
                "instruction in its place"
            )
        return replace(prompt, message=self.message)

    def _check_documents(self, prompt: Prompt) -> None:
        has_documents = "documents" in self.placeholders
        if prompt.shows_documents and not has_documents:
            raise _error(
                "has no {documents}: add it where the documents belong, or use a closed-book prompt"
            )
        if has_documents and not prompt.shows_documents:
            raise _error("contains {documents}, but the prompt is closed-book: remove it")

    def _check_gold(self, prompt: Prompt) -> None:
        gold = [place for place in self.placeholders if place in GOLD_PLACES]
        if gold and not prompt.shows_gold:
            raise _error(
                f"contains {{{gold[0]}}}, but the policy must not see gold data: remove it, or use "
                "a prompt for rationales"
            )
        if prompt.shows_gold and not gold:
            raise _error("has no {gold_answer} or {gold_answers}: add it where the answer belongs")

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

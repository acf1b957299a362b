"""The prompts of a judge, and fences around their texts.

The texts come from the policy and from data. Tags with a code separate them from the instructions,
and no text can close them: the code is a digest of the texts and occurs in none of them. In a
marked message, each line of a text also begins with `| `, and the texts contain no invisible
characters, so that a line without the mark is never part of a text. The idea of marks is that of
spotlighting (Hines et al., 2024). No placeholder is substituted in a text: `{gold}` in a response
has no effect. The same question always results in the same messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, get_args

import msgspec
import yaml

from rag_rewards.errors import UsageError, describe
from rag_rewards.evidence.protocols import AnswerForm, EntityQuestion, JudgeKind, JudgeQuestion
from rag_rewards.models.judge_tasks import (
    CLAIM_TASK,
    ENTITY_FORM,
    ENTITY_TASK,
    FORM,
    MARKED_ENTITY_FORM,
    MARKS_NOTE,
    READ_FENCE,
    TASKS,
)
from rag_rewards.settings import did_you_mean
from rag_rewards.text.normalize import without_invisible

_GRADED = {
    "accuracy": "prediction",
    "outcome": "prediction",
    "supported": "claim",
    "support": "claim",
    "needless": "claim",
}
_WITH_REFERENCE = ("outcome", "reasoning", "supported", "consistent")
"""The kinds whose gold answers are references; those of others are accepted answers."""


def tag_of(question: JudgeQuestion) -> str:
    """Return the tag of the graded text of a question."""
    return _GRADED.get(question.kind, "response")


@lru_cache(maxsize=1024)
def _system_message(task: str, graded: str, form: AnswerForm, items: int, *, marked: bool) -> str:
    marks, code = (MARKS_NOTE, '"code": "CODE", ') if marked else ("", "")
    scores, where = '"score": S', f"S is {form.answers}"
    if items:
        scores = '"scores": {"1": S' + ', "2": S' * (items > 1) + ", …" * (items > 2) + "}"
        where = f"the scores have one entry for each number from 1 to {items}, and each {where}"
    reply = FORM.format(graded=graded, marks=marks, code=code, scores=scores, where=where)
    return f"{task}\n\n{reply}"


@dataclass(frozen=True)
class JudgeTemplate:
    """The wording of the questions of one kind. The form of the answer is added to it.

    system  instructions; "" for those of the question
    user    text with placeholders for the texts of the question: {question}, {query_time},
            {documents}, {gold}, {response}, {criteria}, {responses}; "" for all texts in order.
            Each is replaced by fenced texts

    Raises UsageError for an unknown placeholder.
    """

    system: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in _PLACE.findall(self.user) if name not in _PLACES]
        if unknown:
            raise UsageError(
                f"the template of a judge must not contain {{{unknown[0]}}}: its placeholders are "
                + ", ".join(f"{{{name}}}" for name in _PLACES)
            )
        if not (self.system.strip() or self.user.strip()):
            raise UsageError("the template of a judge must have a text for system or user")

    def check(self, kind: str) -> None:
        """Raise UsageError if the texts of a question of this kind have no place."""
        for name in _REQUIRED.get(kind, ("response",)):
            if self.user and name not in _PLACE.findall(self.user):
                raise UsageError(
                    f"the template {kind} must contain {{{name}}}: the verdict depends on it"
                )


_REQUIRED = {
    **dict.fromkeys(("accuracy", "outcome"), ("response", "gold")),
    **dict.fromkeys(("supported", "consistent", "support"), ("response", "documents")),
    "criteria": ("response", "criteria"),
    "group": ("responses", "question"),
    **dict.fromkeys(("searched_step", "unsearched_step"), ("response", "question")),
}
"""The placeholders that the wording of a kind must contain; of another kind, the response."""
STEP_KINDS = ("searched_step", "unsearched_step")
"""The kinds of the questions about steps (HiPRAG), whose rewards have the instructions."""


def read_templates(path: str | Path) -> dict[str, JudgeTemplate]:
    """Return the templates of a YAML file: `system` and `user` by the kind of the questions.

    Raises UsageError for a file that is not of this form, and for an unknown kind.
    """
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
        values = msgspec.convert(content, dict[str, dict[Literal["system", "user"], str]])
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(
            f"cannot read the templates of the judge in {path}: {describe(error)}; write the kind "
            "of the question, and below it `system` and `user` with text"
        ) from None
    templates = {}
    for kind, texts in values.items():
        try:
            if kind not in (kinds := (*get_args(JudgeKind), *STEP_KINDS)):
                raise UsageError(f"unknown kind of judge question{did_you_mean(kind, kinds)}")
            templates[kind] = JudgeTemplate(**texts)
            templates[kind].check(kind)
        except UsageError as error:
            raise UsageError(f"{path}, {kind}: {error}") from None
    return templates


def judge_messages(
    question: JudgeQuestion, *, marked: bool = False, template: JudgeTemplate | None = None
) -> list[dict[str, str]]:
    """Return the chat for a question: a system message for its kind, and the texts.

    A `swapped` question has the graded text before the documents and the gold answers, and these in
    reverse order. A consistent judge gives the same verdict. `marked` marks each line of a text and
    requires the code of the message in the reply, so that a repeated text is no verdict. A template
    replaces the wording.

    Raises UsageError for an unknown kind without a task, and for a wrong number of gold answers:
    `accuracy` requires one or more, `outcome` exactly one.
    """
    own = template.system if template else ""
    task = own.strip() or question.task or TASKS.get(question.kind, "")
    if not task:
        raise UsageError(
            f"unknown kind of judge question {question.kind!r}: use {', '.join(TASKS)}, or give "
            "the question a task"
        )
    if question.kind == "outcome" and len(question.gold) != 1:
        raise UsageError(
            f"an outcome question requires one gold answer, found {len(question.gold)}"
        )
    if question.kind == "accuracy" and not question.gold:
        raise UsageError("an accuracy question requires a gold answer, found none")
    graded = tag_of(question) + "-NUMBER" * bool(question.responses)
    system = _system_message(task, graded, question.form, question.items, marked=marked)
    reply = "Reply with the JSON object alone" + (', with "code": "CODE".' if marked else ".")
    what = "texts" if question.responses else "text"
    instruction = f"Grade the {what} in <{graded}-CODE>. {reply}"
    texts = list(_texts(question))
    user = fenced(texts, instruction, marked=marked, layout=template.user if template else "")
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _texts(question: JudgeQuestion) -> Iterator[tuple[str, str]]:
    """Yield (tag, text) in the order of the message. The graded text is last unless `swapped`."""
    swapped = question.swapped
    graded = list(_graded_texts(question))
    yield "question", question.question
    if question.query_time is not None:
        yield "asked-at", question.query_time
    if swapped:
        yield from graded
    for text in reversed(question.documents) if swapped else question.documents:
        yield "document", text
    for text in reversed(question.gold) if swapped else question.gold:
        yield "reference" if question.kind in _WITH_REFERENCE else "accepted-answer", text
    if not swapped:
        yield from graded


def _graded_texts(question: JudgeQuestion) -> Iterator[tuple[str, str]]:
    """Yield the response or the responses, and the criteria. They have numbers from 1."""
    order = -1 if question.swapped else 1
    if question.responses:
        common = common_beginning(question.responses)
        if common:
            yield "common-beginning", common
        for number, text in enumerate(question.responses[::order], 1):
            yield f"{tag_of(question)}-{number}", text[len(common) :]
    else:
        yield tag_of(question), question.response
    for number, text in enumerate(question.criteria[::order], 1):
        yield f"criterion-{number}", text


def common_beginning(texts: Sequence[str]) -> str:
    """Return the lines with which all of several texts begin.

    >>> common_beginning(["<think>\\nParis.", "<think>\\nRome."])
    '<think>\\n'
    """
    if len(texts) < 2:
        return ""
    first, last = min(texts), max(texts)
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    return first[: first.rfind("\n", 0, length) + 1]


# --- names ---------------------------------------------------------------------------------------


def entity_messages(question: EntityQuestion, *, marked: bool = False) -> list[dict[str, str]]:
    """Return the chat for a question: the system message, and the texts.

    `marked` marks each line of a text, and requires the code of the message in the reply.
    """
    placeholders = ", ".join(question.placeholders)
    texts = [
        ("question", question.question),
        *(("statement", rubric) for rubric in question.rubrics),
        ("answer", question.response),
    ]
    task, form = ENTITY_TASK, MARKED_ENTITY_FORM if marked else ENTITY_FORM
    request = f"Give the names of {placeholders} that the text in <answer-CODE> states."
    if question.kind == "claims":
        task = CLAIM_TASK
        form = form.replace('"E0": "a name", "E1"', '"C1": "a claim", "C2"')
        request = f"Give the claims of the text in <answer-CODE> as {placeholders}."
    instruction = f"{request} Reply with the JSON object alone."
    return [
        {"role": "system", "content": task + READ_FENCE + form},
        {"role": "user", "content": fenced(texts, instruction, marked=marked)},
    ]


# --- fences --------------------------------------------------------------------------------------

MARK = "| "
"""The beginning of each line of a text in a marked message."""

# Chat templates interpret their markers (<|im_end|>, <start_of_turn>, </s>, [INST], …) everywhere,
# also within the text of a message. An added space prevents this.
_MARKER = re.compile(r"<(?=[/|｜A-Za-z_])|\[(?=\||/?[A-Za-z_]+\])")
_CONTROLS = dict.fromkeys(code for code in (*range(32), 127) if chr(code) not in "\t\n")
_CODE_LINE = re.compile(r"The code is ([0-9a-f]{16})\.\n")


def fenced(
    texts: Iterable[tuple[str, str]], instruction: str, *, marked: bool = False, layout: str = ""
) -> str:
    """Return (tag, text) pairs, each text between tags with a code, and an instruction after them.

    The code replaces `CODE` in the instruction. A layout is a text with placeholders, which the
    texts replace; without one, they follow each other.
    """
    blocks = [(name, _plain(text)) for name, text in texts]
    if marked:
        blocks = [(name, _with_marks(text)) for name, text in blocks]
    code = _code([*(text for _, text in blocks), *([layout] if layout else [])])
    fences = [(name, f"<{name}-{code}>\n{text}\n</{name}-{code}>") for name, text in blocks]
    if layout:
        content = [_PLACE.sub(lambda place: _in_place(place[1], fences), layout)]
    else:
        content = [text for _, text in fences]
    return "\n".join([f"The code is {code}.", *content, instruction.replace("CODE", code)])


_PLACES = {
    "question": ("question",),
    "query_time": ("asked-at",),
    "documents": ("document",),
    "gold": ("accepted-answer", "reference"),
    "response": ("response", "prediction", "claim"),
    "criteria": ("criterion",),
    "responses": ("common-beginning", "response"),
}
"""The placeholders of a template, with the tags of their texts."""
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_NUMBER = re.compile(r"-[0-9]+$")


def _in_place(name: str, fences: Iterable[tuple[str, str]]) -> str:
    tags = _PLACES[name]
    return "\n".join(text for tag, text in fences if _NUMBER.sub("", tag) in tags)


def code_of(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the code of the texts in the last of these messages, "" if it has none."""
    match = _CODE_LINE.match(messages[-1]["content"])
    return match[1] if match else ""


def _plain(text: str) -> str:
    """Return a text without markers of chat templates and without lone surrogates.

    >>> _plain("[1] a<b </s><|im_end|>[INST]")
    '[1] a< b < /s>< |im_end|>[ INST]'
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _MARKER.sub(lambda marker: f"{marker[0]} ", text)


def _with_marks(text: str) -> str:
    """Return a text without invisible and control characters, with a mark before each line.

    All characters count that any program treats as the end of a line.

    >>> _with_marks("one\\u2028two")
    '| one\\n| two'
    """
    lines = "\n".join(text.splitlines()).translate(_CONTROLS)
    # Removing an invisible character can join the parts of a chat marker.
    visible = _plain(without_invisible(lines))
    return "\n".join(MARK + line for line in visible.split("\n"))


def _code(texts: Iterable[str]) -> str:
    """Return 16 hexadecimal digits, a digest of the texts that none of them contains."""
    texts = list(texts)
    digest = blake2b(json.dumps(texts).encode("ascii"), digest_size=8)
    while any(digest.hexdigest() in text for text in texts):
        digest.update(b"again")
    return digest.hexdigest()

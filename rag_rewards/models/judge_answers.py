"""The parsing of the output of a judge, which contains what a policy has written.

Nothing is guessed: an output that is not of the form of its question has no verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from rag_rewards.evidence.protocols import BINARY, AnswerForm, Entities, Verdict

# A backslash does not escape a tag, so that it cannot hide the end of thinking.
_TOKEN = re.compile(r'\\[^<]|["{}]|</?think>', re.DOTALL)
_WORDS = {"no": 0, "yes": 1}
# Numbers remain text: 1.0, 1e0 and -0 are not verdicts, and long numbers need no time. Objects are
# lists of pairs, in which repeated names are visible.
_DECODER = json.JSONDecoder(
    strict=False, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=list
)


def parse_verdict(
    text: str, kind: str = "outcome", code: str = "", form: AnswerForm = BINARY, items: int = 0
) -> Verdict | None:
    """Return the verdict, 0 or 1, in the output of a judge, None if there is none.

    code   only objects with this `code` count, as the prompt of a marked message requires
    form   form of the answers
    items  number of answers to a question with criteria or responses

    The verdict is that of the last outermost, complete JSON object with exactly one `score` of the
    form, as a number or as text; for several answers, with exactly one object `scores` that has
    one score for each number from 1. Booleans and 1.0 are not verdicts. Objects inside another
    object or inside its strings do not count, nor do texts in `<think>…</think>` or after an
    unclosed `<think>`. For `accuracy`, the score can be "yes" or "no"; without a verdict in JSON,
    so can the whole output. The time is linear in the length of the output.

    >>> parse_verdict('{"explanation": "the same river", "score": 1}')
    1
    >>> parse_verdict('{"score": 0} {"explanation": "it says {\\"score\\": 1}", "score": 0}')
    0
    >>> parse_verdict('{"score": true}') is parse_verdict("1") is parse_verdict("yes") is None
    True
    >>> parse_verdict("Yes.", "accuracy")
    1
    >>> from rag_rewards.evidence.protocols import Grade
    >>> parse_verdict('{"scores": {"1": 4, "2": 1}}', "criteria", "", Grade(0, 4), 2)
    (1.0, 0.25)
    """
    has_words = kind == "accuracy" and form == BINARY and not items
    spans, rest = outermost(text)
    for start, end in reversed(spans):
        answer = _answer(text[start:end], "scores" if items else "score", code)
        if has_words and isinstance(answer, str) and answer.lower() in _WORDS:
            return _WORDS[answer.lower()]
        verdict = _values(answer, form, items) if items else _value(answer, form)
        if verdict is not None:
            return verdict
    if has_words and not code:
        return _WORDS.get(text[rest:].strip(" \t\r\n*\"'.!").lower())
    return None


def reply_schema(form: AnswerForm, items: int, code: str = "") -> dict[str, Any]:
    """Return the field `response_format` of a request, which requires the form of the reply."""
    answer: dict[str, Any] = form.schema
    if items:
        answer = _object({str(i + 1): form.schema for i in range(items)})
    fields: dict[str, Any] = {"explanation": {"type": "string"}}
    if code:
        fields["code"] = {"type": "string"}  # a server that enforces the code would hide its lack
    fields["scores" if items else "score"] = answer
    schema = {"name": "reply", "strict": True, "schema": _object(fields)}
    return {"type": "json_schema", "json_schema": schema}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _value(answer: Any, form: AnswerForm) -> float | None:
    return form.value(answer) if isinstance(answer, str) else None


def _values(answer: Any, form: AnswerForm, items: int) -> tuple[float, ...] | None:
    """Return the values of an object with one answer for each number from 1, else None."""
    if not isinstance(answer, list) or not all(isinstance(each, tuple) for each in answer):
        return None
    answers = dict(answer)
    if len(answer) != items or set(answers) != {str(i + 1) for i in range(items)}:
        return None
    values = [_value(answers[str(i + 1)], form) for i in range(items)]
    return None if None in values else tuple(value for value in values if value is not None)


def _answer(span: str, name: str, code: str) -> Any:
    """Return the only value of this name in an object; None if it has none, several or bad JSON.

    With `code`, the object must have exactly this one.
    """
    if f'"{name}"' not in span:
        return None
    try:
        pairs = _DECODER.decode(span)
    except (ValueError, RecursionError):
        return None
    if code and [value for key, value in pairs if key == "code"] != [code]:
        return None
    values = [value for key, value in pairs if key == name]
    return values[0] if len(values) == 1 else None


def outermost(text: str) -> tuple[list[tuple[int, int]], int]:
    """Return the spans of outermost `{…}` outside of thinking, and the end of thinking.

    Quotes begin a string only inside braces, because prose contains single quotation marks.
    """
    spans: list[tuple[int, int]] = []
    depth = start = rest = 0
    quoted = thinking = False
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if thinking:
            if mark == "</think>":
                thinking, rest = False, match.end()
        elif quoted:
            quoted = mark != '"'
        elif mark == "{":
            start = start if depth else match.start()
            depth += 1
        elif mark == "}":
            if depth == 1:
                spans.append((start, match.end()))
            depth = max(depth - 1, 0)
        elif mark == '"':
            quoted = depth > 0
        elif mark == "<think>":
            thinking, rest = True, len(text)
        elif mark == "</think>":  # the prompt opened it: everything before is thinking
            spans, depth, rest = [], 0, match.end()
    return spans, rest


def parse_entities(text: str, placeholders: Collection[str], code: str = "") -> Entities | None:
    """Return the names in the output of a judge, None if there is no object with all placeholders.

    The last outermost JSON object outside of thinking counts. Its values must be text or null;
    blank text is null. With `code`, the object must contain this `code`.

    >>> parse_entities('{"E0": "Paris", "E1": null}', ["E0", "E1"])
    {'E0': 'Paris', 'E1': None}
    >>> parse_entities('{"E0": ["Paris", "Rome"]}', ["E0"]) is None
    True
    """
    spans, _ = outermost(text)
    for start, end in reversed(spans):
        try:
            names = json.loads(text[start:end], strict=False)
        except (ValueError, RecursionError):
            continue
        if code and names.get("code") != code:
            continue
        values = [names.get(each, 0) for each in placeholders]
        if all(value is None or isinstance(value, str) for value in values):
            pairs = zip(placeholders, values, strict=True)
            return {each: (value or "").strip() or None for each, value in pairs}
    return None

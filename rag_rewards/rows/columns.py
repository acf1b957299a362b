"""A trainer's columns, labels and extra information as rollouts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, RowError, UsageError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout
from rag_rewards.rows.decoding import decode_or_error
from rag_rewards.settings import did_you_mean

GOLD_FIELDS = ("supporting", "answers", "answer_kind", "answerable", "out_of_knowledge")
"""The reference data of a question. The label of a data set contains some of it."""
TRAINER_FIELDS = frozenset(
    "response response_prefix finish_reason prompt prompt_token_ids response_token_ids "
    "step split weight_version group".split()
)
"""What only the trainer knows. Columns with these names are ignored."""
DATASET_FIELDS = frozenset(Rollout.__struct_fields__) - TRAINER_FIELDS - set(EVIDENCE_FIELDS)
"""The fields of a row that a data set may contain."""

_OPEN_TAG = re.compile(r"<(think|relevance|analysis|reason|extract|answer)>\s{0,8}\Z")
_ROW_KEY = re.compile(rf"""['"]({"|".join(sorted(DATASET_FIELDS))})['"]\s{{0,8}}:""")


def to_builtins(value: Any) -> Any:
    """Convert arrays and scalars of numpy or torch to lists and numbers, at any depth.

    NaN, with which tables mark missing values, becomes None.

    >>> to_builtins({"answers": ("Seine",)})
    {'answers': ['Seine']}
    """
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (str, int, float, type(None))) and not hasattr(value, "tolist"):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_builtins(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return to_builtins(value.tolist())
    if isinstance(value, (list, tuple)):
        return [to_builtins(item) for item in value]
    return value


# --- labels ------------------------------------------------------------------------------------


def label_fields(label: Any) -> dict[str, Any]:
    """Return a label as fields of a row.

    A label is a row's gold fields (a mapping, or its JSON), or else answers (text, a list, or its
    JSON). Raises DataError when it is neither.

    >>> label_fields('{"answers": ["Seine"], "supporting": [1]}')
    {'answers': ['Seine'], 'supporting': [1]}
    >>> label_fields("Seine"), label_fields('["Seine", "the Seine"]')
    ({'answers': 'Seine'}, {'answers': ['Seine', 'the Seine']})
    """
    try:
        label = _decoded_label(to_builtins(label))
    except RecursionError:
        raise DataError("nested too deeply", "label") from None
    if label is None:
        return {}
    if not isinstance(label, dict):
        return {"answers": label}
    if not any(name in label for name in DATASET_FIELDS):
        raise DataError(
            f"the label has none of the fields {', '.join(GOLD_FIELDS)}: found "
            f"{sorted(label)[:6]}; `rag-rewards prepare` writes such labels",
            "label",
        )
    return label


def _decoded_label(label: Any) -> Any:
    """Return the value of a text that is JSON. Other text is an answer, unless it is a torn row."""
    if not isinstance(label, str) or label.lstrip()[:1] not in ("{", "["):
        return label
    try:
        value = msgspec.json.decode(label)
    except (msgspec.DecodeError, UnicodeError):
        if _ROW_KEY.search(label):
            raise DataError("the label looks like a row, but is not JSON", "label") from None
        return label  # an answer that begins with a brace
    if isinstance(value, list) and not all(isinstance(item, (str, list)) for item in value):
        return label
    return value


# --- columns -----------------------------------------------------------------------------------


def rollout_from_columns(fields: Mapping[str, Any], **trainer: Any) -> Rollout | RolloutError:
    """Return a rollout from the fields of a data set and those of the trainer, or its error.

    Fields that a row does not have are ignored, and so are those that are None.

    >>> rollout_from_columns({"answers": ["Seine"], "url": "…"}, response="Seine").answers
    ['Seine']
    """
    try:
        values = {
            name: to_builtins(fields[name])
            for name in DATASET_FIELDS
            if fields.get(name) is not None
        }
    except RecursionError:
        return RowError("nested too deeply")
    row = {name: value for name, value in values.items() if value is not None}
    if isinstance(documents := row.get("documents"), list):
        row["documents"] = [_without_none(document) for document in documents]
    row.update((name, value) for name, value in trainer.items() if value is not None)
    rollout = decode_or_error(row)
    if isinstance(rollout, RolloutError):
        rollout.row = str(row["id"]) if "id" in row else None
    return rollout


def _without_none(document: Any) -> Any:
    """Return a document without None, with which columnar files fill what it lacks."""
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if value is not None}


def check_columns(columns: Mapping[str, str]) -> None:
    """Raise UsageError when `columns` (row field → column of the data set) has an unknown field.

    >>> check_columns({"answers": "golden_answers"})
    """
    for field in columns:
        if field not in DATASET_FIELDS:
            suggestion = did_you_mean(field, sorted(DATASET_FIELDS))
            raise UsageError(f"columns: a row has no field {field!r}{suggestion}")


def column_names(columns: Mapping[str, str], present: Collection[str]) -> dict[str, str]:
    """Return the column of each field that a data set may contain: from `columns`, or its own name.

    Raises UsageError when a column of `columns` is not `present`.

    >>> column_names({"answers": "golden_answers"}, ["golden_answers", "id"])["answers"]
    'golden_answers'
    """
    for column in columns.values():
        if column not in present:
            suggestion = did_you_mean(column, sorted(present))
            raise UsageError(f"the data set has no column {column!r}{suggestion}")
    return {field: columns.get(field, field) for field in DATASET_FIELDS}


# --- prompts -----------------------------------------------------------------------------------


def response_prefix_of(prompt: str) -> str | None:
    r"""Return the tag that a prompt opens for the model at its end, which begins the response.

    >>> response_prefix_of("<|im_start|>assistant\n<think>\n")
    '<think>\n'
    """
    tag = _OPEN_TAG.search(prompt)
    return tag[0] if tag else None


def last_question(prompt: Any) -> str | None:
    """Return the last user message of a chat, or None where there is none, or the prompt is text.

    >>> last_question([{"role": "user", "content": "Which river?"}])
    'Which river?'
    """
    if isinstance(prompt, str):
        return None
    messages = [message.get("content") for message in prompt if message.get("role") == "user"]
    return messages[-1] if messages and isinstance(messages[-1], str) else None

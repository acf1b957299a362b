"""Rollouts from the columns, labels and additional fields of a trainer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, RowError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout
from rag_rewards.rows.decoding import decode_or_error

GOLD_FIELDS = (
    "supporting",
    "answers",
    "answer_kind",
    "answerable",
    "out_of_knowledge",
    "search_keys",
    "gold_documents",
)
"""The fields with reference data of a question. The label of a data set contains some of them."""
TRAINER_FIELDS = frozenset(
    "response response_prefix finish_reason prompt prompt_token_ids response_token_ids "
    "step split weight_version group".split()
)
"""The fields that only a trainer sets. Columns with these names are ignored."""
DATASET_FIELDS = frozenset(Rollout.__struct_fields__) - TRAINER_FIELDS - set(EVIDENCE_FIELDS)
"""The fields of a row that a data set can contain."""

_OPEN_TAG = re.compile(r"<(think|relevance|analysis|reason|extract|answer)>\s{0,8}\Z")
_ROW_KEY = re.compile(rf"""['"]({"|".join(sorted(DATASET_FIELDS))})['"]\s{{0,8}}:""")


def to_builtins(value: Any) -> Any:
    """Convert arrays and scalars of numpy or torch to lists and numbers, at any depth.

    NaN becomes None, because tables mark missing values with it. Raises RowError for a value that
    is nested too deeply.

    >>> to_builtins({"answers": ("Seine",)})
    {'answers': ['Seine']}
    """
    try:
        return _builtins(value)
    except RecursionError:
        raise RowError("nested too deeply") from None


def _builtins(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (str, int, float, type(None))) and not hasattr(value, "tolist"):
        return value
    if isinstance(value, Mapping):
        return {str(key): _builtins(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _builtins(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_builtins(item) for item in value]
    return value


# --- labels ------------------------------------------------------------------------------------


def label_fields(label: Any) -> dict[str, Any]:
    """Return a label as fields of a row.

    A label contains the gold fields of a row (a mapping, or its JSON) or answers (text, a list, or
    its JSON). Raises DataError for any other value.

    >>> label_fields('{"answers": ["Seine"], "supporting": [1]}')
    {'answers': ['Seine'], 'supporting': [1]}
    >>> label_fields("Seine"), label_fields('["Seine", "the Seine"]')
    ({'answers': 'Seine'}, {'answers': ['Seine', 'the Seine']})
    """
    try:
        label = _decoded_label(to_builtins(label))
    except (RecursionError, RowError):
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
    """Return the value of a text that is JSON. Any other text is an answer.

    Raises DataError for a text that looks like a row.
    """
    if not isinstance(label, str) or label.lstrip()[:1] not in ("{", "["):
        return label
    try:
        value = msgspec.json.decode(label)
    except (msgspec.DecodeError, UnicodeError):
        if _ROW_KEY.search(label):
            raise DataError(
                "the label looks like a row, but is not JSON: write it with a JSON library", "label"
            ) from None
        return label  # an answer that begins with a brace
    if isinstance(value, list) and not all(isinstance(item, (str, list)) for item in value):
        return label
    return value


# --- columns -----------------------------------------------------------------------------------


def rollout_from_columns(fields: Mapping[str, Any], **trainer: Any) -> Rollout | RolloutError:
    """Return a rollout from the fields of a data set and those of the trainer, or its error.

    Unknown fields and fields that are None are ignored.

    >>> rollout_from_columns({"answers": ["Seine"], "url": "…"}, response="Seine").answers
    ['Seine']
    """
    try:
        values = {
            name: to_builtins(fields[name])
            for name in DATASET_FIELDS
            if fields.get(name) is not None
        }
    except RowError as error:
        return error.with_traceback(None)
    row = {name: value for name, value in values.items() if value is not None}
    if isinstance(documents := row.get("documents"), list):
        row["documents"] = [_without_none(document) for document in documents]
    row.update((name, value) for name, value in trainer.items() if value is not None)
    rollout = decode_or_error(row)
    if isinstance(rollout, RolloutError):
        rollout.row = str(row["id"]) if "id" in row else None
    return rollout


def _without_none(document: Any) -> Any:
    """Return a document without fields that are None, which columnar files add."""
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if value is not None}


# --- prompts -----------------------------------------------------------------------------------


def response_prefix_of(prompt: str) -> str | None:
    r"""Return the opening tag at the end of a prompt, which is the beginning of the response.

    >>> response_prefix_of("<|im_start|>assistant\n<think>\n")
    '<think>\n'
    """
    tag = _OPEN_TAG.search(prompt)
    return tag[0] if tag else None


def last_question(prompt: Any) -> str | None:
    """Return the last user message of a chat, or None for a text and for a chat without one.

    >>> last_question([{"role": "user", "content": "Which river?"}])
    'Which river?'
    """
    if isinstance(prompt, str):
        return None
    messages = [message.get("content") for message in prompt if message.get("role") == "user"]
    return messages[-1] if messages and isinstance(messages[-1], str) else None

"""A trainer's or a client's columns, labels and extra information, as rollouts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, RowError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, decode_row

GOLD = ("supporting", "answers", "answer_kind", "answerable", "out_of_knowledge")
"""What is known about a question; the label of a data set holds some of it."""
HAPPENED = frozenset(
    "response response_prefix finish_reason prompt prompt_token_ids response_token_ids "
    "step split weight_version group".split()
)
"""What only the trainer can tell: columns of these names are not read."""
READ = frozenset(Rollout.__struct_fields__) - HAPPENED - set(EVIDENCE_FIELDS)
"""Fields of a row that a data set may bring."""

_OPENED = re.compile(r"<(think|relevance|analysis|reason|extract|answer)>\s{0,8}\Z")


def plain(value: Any) -> Any:
    """Arrays and scalars of numpy or torch as lists and numbers, to any depth; NaN, with which
    tables say that nothing is there, as None.

    >>> plain({"answers": ("Seine",)})
    {'answers': ['Seine']}
    """
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (str, int, float, type(None))) and not hasattr(value, "tolist"):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def gold_of(label: Any) -> dict[str, Any]:
    """A label as fields of a row: a row's own gold fields (a mapping, or its JSON), else answers
    (text, a list, or its JSON). DataError for what is neither.

    >>> gold_of('{"answers": ["Seine"], "supporting": [1]}')
    {'answers': ['Seine'], 'supporting': [1]}
    >>> gold_of("Seine"), gold_of('["Seine", "the Seine"]')
    ({'answers': 'Seine'}, {'answers': ['Seine', 'the Seine']})
    """
    try:
        label = _decoded(plain(label))
    except RecursionError:
        raise DataError("nested too deeply", "label") from None
    if label is None:
        return {}
    if not isinstance(label, dict):
        return {"answers": label}
    if not any(name in label for name in READ):
        raise DataError(
            f"the label has none of the fields {', '.join(GOLD)}: found {sorted(label)[:6]}; "
            "`rag-rewards prepare` writes such labels",
            "label",
        )
    return label


_MEANT = re.compile(rf"""['"]({"|".join(sorted(READ))})['"]\s{{0,8}}:""")


def _decoded(label: Any) -> Any:
    """What a text that is JSON says; other text is an answer, unless it was meant to be a row."""
    if not isinstance(label, str) or label.lstrip()[:1] not in ("{", "["):
        return label
    try:
        said = msgspec.json.decode(label)
    except (msgspec.DecodeError, UnicodeError):
        if _MEANT.search(label):
            raise DataError("the label looks like a row, but is not JSON", "label") from None
        return label  # an answer that begins with a brace
    if isinstance(said, list) and not all(isinstance(item, (str, list)) for item in said):
        return label
    return said


def rollout_of(fields: Mapping[str, Any], **happened: Any) -> Rollout | RolloutError:
    """A rollout from a data set's fields and what happened; or the error of its row.

    Fields that a row does not have are not read, those that are None are left out.

    >>> rollout_of({"answers": ["Seine"], "url": "…"}, response="Seine").answers
    ['Seine']
    """
    try:
        read = {name: plain(fields[name]) for name in READ if fields.get(name) is not None}
    except RecursionError:
        return RowError("nested too deeply")
    read = {name: value for name, value in read.items() if value is not None}
    if isinstance(documents := read.get("documents"), list):
        read["documents"] = [_without_none(document) for document in documents]
    read.update({name: value for name, value in happened.items() if value is not None})
    try:
        return decode_row(read)
    except RolloutError as error:
        error.row = str(read["id"]) if "id" in read else None
        return error.with_traceback(None)


def _without_none(document: Any) -> Any:
    """Columnar files fill what a document lacks with None."""
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if value is not None}


def opened(prompt: str) -> str | None:
    """The tag that a prompt opens for the model at its very end, as the response's prefix.

    >>> opened("<|im_start|>assistant\\n<think>\\n")
    '<think>\\n'
    """
    found = _OPENED.search(prompt)
    return found[0] if found else None

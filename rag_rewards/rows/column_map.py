"""Columns of other schemas as fields of a row: presets, or a map by hand.

ragas                                   a preset
response=completion,documents=contexts  the column of each field that has another name
answers=reward_model.ground_truth       a column inside a column
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import (
    DATASET_FIELDS,
    GOLD_FIELDS,
    label_fields,
    last_question,
    response_prefix_of,
)
from rag_rewards.rows.decoding import NOT_JSON, Line, decode_line, decode_or_error
from rag_rewards.settings import did_you_mean

FIELDS = Rollout.__struct_fields__
_OBJECT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

PRESETS: dict[str, dict[str, str]] = {
    # The names of ragas, and those before its version 0.2.
    "ragas": {
        "question": "user_input|question",
        "documents": "retrieved_contexts|contexts",
        "response": "response|answer",
        "answers": "reference|ground_truth|ground_truths",
    },
    # The Parquet files of TRL's `log_completions`. The gold data is in a column that a reward
    # function logs: `RagReward` writes NAME/gold.
    "trl": {"response": "completion", "answers": "*/gold|answers|solution|ground_truth|answer"},
    # The files of verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`.
    "verl": {"prompt": "input", "response": "output", "answers": "gts.target|gts"},
    # Rows of a data set of OpenRLHF (`input`, `label`) with a response.
    "openrlhf": {"prompt": "input|prompt", "response": "output|response", "answers": "label"},
    # The results of an evaluation with verifiers.
    "verifiers": {"id": "id|example_id", "response": "completion", "answers": "answer"},
    # Rows of the data sets of Search-R1 with a response.
    "search-r1": {
        "response": "response|output|sequences_str",
        "answers": "golden_answers|reward_model.ground_truth.target|ground_truth.target|gts.target",
    },
}
"""The columns of each field. The first column of `a|b` that a row contains counts.

`*/gold` is the first column whose name ends with `/gold`.
"""

_OTHER_NAMES = {
    "response": "completion completions output generation prediction generated answer",
    "documents": "contexts retrieved_contexts context passages ctxs docs retrieved",
    "answers": "ground_truth ground_truths golden_answers gold reference references target label "
    "labels solution gts answer",
    "question": "query user_input input prompt",
    "supporting": "supporting_documents gold_ids",
}


@dataclass(frozen=True)
class ColumnMap:
    """The columns of fields that have another name in the data.

    >>> ColumnMap.of("response=completion").rename({"completion": "Paris", "seed": 7})
    {'seed': 7, 'response': 'Paris'}
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, columns: str | Mapping[str, str] | None, fields: Collection[str] = FIELDS
    ) -> ColumnMap:
        """Return the map of a preset, of `field=column,…`, or of a mapping.

        Raises UsageError for an unknown preset, or a field that is not one of `fields`.
        """
        if isinstance(columns, str):
            columns = _parsed(columns)
        if columns is not None and not isinstance(columns, Mapping):
            raise UsageError(
                'columns: expected a preset or a mapping such as {"response": "completion"}, found '
                f"{type(columns).__name__}"
            )
        for name, column in (columns or {}).items():
            if name not in fields:
                suggestion = did_you_mean(name, sorted(fields))
                raise UsageError(f"columns: a row has no field {name!r}{suggestion}")
            if not isinstance(column, str):
                raise UsageError(
                    f"columns: the column of {name!r} must be a name (text), found {column!r}"
                )
        return cls({name: tuple(paths.split("|")) for name, paths in (columns or {}).items()})

    def rename(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with its columns as fields. Columns of no field stay."""
        renamed = dict(row)
        fields = {}
        for name, paths in self.columns.items():
            for path in paths:
                path = _named(path, row)
                value = value_at(row, path)
                if value is not None:
                    fields[name] = value
                    renamed.pop(path, None)
                    break
        return completed(renamed | fields)

    def columns_in(self, present: Collection[str]) -> dict[str, str]:
        """Return the column of each field that a data set contains.

        The default is the column with the name of the field. Raises UsageError if no column of the
        map is present for a field.

        >>> ColumnMap.of("answers=gold").columns_in(["gold", "id", "seed"])
        {'answers': 'gold', 'id': 'id'}
        """
        own = {name: name for name in sorted(DATASET_FIELDS.intersection(present))}
        for name, columns in self.columns.items():
            column = next(filter(present.__contains__, (_named(c, present) for c in columns)), None)
            if column is None:
                suggestion = did_you_mean(columns[0], sorted(present))
                raise UsageError(f"the data set has no column {columns[0]!r}{suggestion}")
            own[name] = column
        return dict(sorted(own.items()))

    def unread(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not columns of a field.

        >>> ColumnMap.of("response=completion").unread(["completion", "seed"])
        ['seed']
        """
        paths = [_named(path, present) for paths in self.columns.values() for path in paths]
        mapped = {path.partition(".")[0] for path in paths} | set(paths)
        return [name for name in present if name not in mapped]

    def lines(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Yield the lines with renamed columns. A line that is no JSON object stays as it is."""
        for number, line in lines:
            try:
                row = self.rename(msgspec.json.decode(line, type=dict[str, Any]))
                line = msgspec.json.encode(row) + b"\n"
            except (*NOT_JSON, OverflowError):
                pass
            yield number, line


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, or of a column inside a column, or None.

    The path `scores.judge` is the field `judge` of the field `scores`, unless the row has a field
    `scores.judge`. Raises RowError for raw JSON that cannot be decoded.

    >>> value_at({"gts": {"target": ["Paris"]}, "a": {"v2.1": 0}}, "gts.target")
    ['Paris']
    """
    if path in row:
        return _decoded(row[path])
    at = path.find(".")
    while at >= 0:
        inner = _decoded(row.get(path[:at]))
        if isinstance(inner, Mapping):
            return value_at(inner, path[at + 1 :])
        at = path.find(".", at + 1)
    return None


def _decoded(value: Any) -> Any:
    """Return the value of raw JSON, and any other value unchanged."""
    if not isinstance(value, msgspec.Raw):
        return value
    decoded = decode_line(bytes(value), _ANY)
    if isinstance(decoded, RolloutError):
        raise decoded
    return decoded


def read_columns(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of columns of a row, by `value_at`. A missing column is None.

    Raises RowError for a line that is not a JSON object.

    >>> read_columns(b'{"label": 1, "scores": {"v2.1": 0.5}}', ["label", "scores.v2.1", "x"])
    {'label': 1, 'scores.v2.1': 0.5, 'x': None}
    """
    row = decode_line(line, _OBJECT)
    if isinstance(row, RolloutError):
        raise row
    return {name: value_at(row, name) for name in names}


def _named(path: str, present: Collection[str]) -> str:
    """Return the column of a path that begins with `*`, and any other path unchanged."""
    if not path.startswith("*"):
        return path
    return next((name for name in present if name.endswith(path[1:])), path)


def _parsed(columns: str) -> Mapping[str, str]:
    if "=" not in columns:
        if columns not in PRESETS:
            raise UsageError(
                f"columns: there is no preset {columns!r}"
                f"{did_you_mean(columns, sorted(PRESETS))}: choose one of {', '.join(PRESETS)}, or "
                "write field=column,…"
            )
        return PRESETS[columns]
    pairs = (item.partition("=") for item in columns.split(","))
    parsed = {name.strip(): column.strip() for name, _, column in pairs}
    if not all(parsed.values()):
        raise UsageError(f"columns: write field=column,…, found {columns!r}")
    return parsed


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that the label and the prompt of a renamed row contain, and return the row."""
    _unfold_conversation(row)
    answers = row.get("answers")
    if isinstance(answers, Mapping) or (isinstance(answers, str) and answers[:1] in ("{", "[")):
        try:
            row |= label_fields(row.pop("answers"))
        except DataError:
            row["answers"] = answers
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        if "response_prefix" not in row and (prefix := response_prefix_of(prompt)):
            row["response_prefix"] = prefix
        if row.get("question") is None and row.get("group") is None:
            row["group"] = prompt_group(prompt)
    elif isinstance(prompt, list) and row.get("question") is None:
        messages = [message for message in prompt if isinstance(message, Mapping)]
        question = last_question(messages)
        row |= {"question": question} if question else {}
    return row


_ROLES = {"human": "user", "ai": "assistant"}
"""The roles of messages in samples of several turns of ragas."""


def _unfold_conversation(row: dict[str, Any]) -> None:
    """Replace a question that is a conversation by its last user message.

    Without a response, the conversation is the response: its last assistant message is scored.
    """
    conversation = row.get("question")
    if not isinstance(conversation, list):
        return
    messages = [
        {"role": _ROLES.get(str(kind), kind), "content": message.get("content")}
        for message in conversation
        if isinstance(message, Mapping) and (kind := message.get("type") or message.get("role"))
    ]
    if question := last_question(messages):
        row["question"] = question
        if row.get("response") is None:
            row["response"] = messages


def prompt_group(prompt: str) -> str:
    """Return the group of a row whose prompt is a text, and whose question is unknown.

    >>> prompt_group("Which river?") == prompt_group("Which river?")
    True
    """
    digest = blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"prompt-{digest}"


def nearest_columns(present: Collection[str], field: str = "response") -> dict[str, str]:
    """Return the columns that missing fields probably have. `field` is one that is required.

    >>> nearest_columns(["completion", "contexts", "id"])
    {'response': 'completion', 'documents': 'contexts'}
    """
    nearest: dict[str, str] = {}
    for each, names in _OTHER_NAMES.items():
        for name in () if each in present else names.split():
            is_free = name not in nearest.values() and (name not in FIELDS or each == field)
            if name in present and is_free:
                nearest[each] = name
                break
    return nearest


def with_column_hint(
    error: RolloutError, row: Mapping[str, Any], read: Collection[str] = ()
) -> RolloutError:
    """Return the error of a missing field with all that the row lacks, and a map of its columns.

    `read` are the fields that the recipe reads. The map contains only columns whose values the
    fields accept.
    """
    if error.message != "missing" or error.path not in FIELDS:
        return error
    hint = error.message + missing_fields_hint(error.path, row, read)
    if hint == error.message:
        return error
    renamed = type(error)(hint, error.path)
    renamed.row = error.row
    return renamed


def missing_fields_hint(field: str, row: Mapping[str, Any], read: Collection[str] = ()) -> str:
    """Return the other fields that a row lacks, and the option that maps its columns, or "".

    >>> missing_fields_hint("answers", {"response": "Paris", "gold": "Paris"})
    '; did you mean gold? Set the option columns to answers=gold'
    """
    row = {name: value for name, value in row.items() if value is not None}
    others = [name for name in GOLD_FIELDS if name in read and name not in (field, *row)]
    hint = f" (also missing: {', '.join(others)})" if others else ""
    if columns := _accepted(nearest_columns(row, field), row):
        option = ",".join(f"{name}={column}" for name, column in columns.items())
        names = ", ".join(columns.values())
        hint += f"; did you mean {names}? Set the option columns to {option}"
    return hint


def _accepted(columns: dict[str, str], row: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns whose values their fields accept."""
    while columns:
        rollout = decode_or_error({"response": "", **ColumnMap.of(columns).rename(row)})
        field = rollout.path.partition("[")[0] if isinstance(rollout, RolloutError) else ""
        if columns.pop(field, None) is None:
            break
    return columns

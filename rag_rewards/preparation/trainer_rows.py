"""Rows and files in the forms of trainers: the chat of a question with its gold data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from rag_rewards.errors import needs_extra
from rag_rewards.files.output import Output
from rag_rewards.trainers import TRAINERS

FORMS = (*TRAINERS, "none")
"""The trainers, and the form of rows of this package."""
ROW_GROUP = 1_000
Chat = list[dict[str, str]]
Fields = Mapping[str, Any]

LABEL = (
    "supporting",
    "answers",
    "answer_kind",
    "answerable",
    "out_of_knowledge",
    "search_keys",
    "rubrics",
    "rubric",
    "gold_documents",
)
"""Fields of the row that become the ground truth of verl."""
SOURCE = "source_fields"
"""Field with the source fields of the row: hops, type, level, domain and others."""

SEARCH_TOOL = {
    "type": "function",
    "name": "search",
    "description": "Search for documents.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The query."}},
        "required": ["query"],
        "additionalProperties": False,
    },
    "strict": True,
}
"""The tool of the resources server, in the form of the Responses API."""
NEMO_GYM_AGENT = "rag_rewards_simple_agent"
"""The agent of the configuration that `rag-rewards init nemo-gym` writes."""
NEMO_GYM_ROW = "verifier_metadata"
"""Field of a row for NeMo Gym with all fields of the question."""


def _one_text(fields: Fields) -> dict[str, Any]:
    """Fields whose source fields are one JSON text, so that all data sets have equal columns."""
    return {
        name: msgspec.json.encode(value).decode() if name == SOURCE else value
        for name, value in fields.items()
    }


def _separate(fields: Fields) -> dict[str, Any]:
    """Fields in which each source field is a field of its own."""
    source: dict[str, Any] = fields.get(SOURCE, {})
    return {name: value for name, value in fields.items() if name != SOURCE} | source


def trainer_row(
    trainer: str,
    chat: Chat,
    fields: Fields,
    *,
    source: str,
    split: str = "train",
    index: int = 0,
    has_tools: bool = False,
) -> dict[str, Any]:
    """Return a row in the form of a trainer, or of this package for "none".

    Raises KeyError for an unknown trainer.

    source, split, index  the data set, its split, and the number of the row in the file
    has_tools             whether the policy calls the tool `search` (NeMo Gym)
    """
    write: dict[str, Callable[[Chat, Fields], dict[str, Any]]] = {
        "none": plain,
        "trl": trl,
        "ms-swift": ms_swift,
        "openrlhf": openrlhf,
        "skyrl": partial(skyrl, source=source),
        "nemo-gym": partial(nemo_gym, has_tools=has_tools),
        "verl": partial(verl, source=source, split=split, index=index),
    }
    return write["none" if trainer == "none" else TRAINERS[trainer].rows](chat, fields)


def trl(chat: Chat, fields: Fields) -> dict[str, Any]:
    """Return a row for TRL, which passes every column except `prompt` to the reward."""
    return {"prompt": chat, **_one_text(fields)}


def ms_swift(chat: Chat, fields: Fields) -> dict[str, Any]:
    """Return a row for ms-swift, which passes every column except `messages` to the reward."""
    return {"messages": chat, **_one_text(fields)}


def plain(chat: Chat, fields: Fields) -> dict[str, Any]:
    """Return a row of this package without a response. Its group is the id of the question."""
    return {"group": fields["id"], "prompt": chat, **_separate(fields)}


def openrlhf(chat: Chat, fields: Fields) -> dict[str, Any]:
    """Return a row for OpenRLHF and slime, whose label has all fields as JSON."""
    return {"input": chat, "label": _label(fields)}


def skyrl(chat: Chat, fields: Fields, source: str) -> dict[str, Any]:
    """Return a row for SkyRL: all fields as one JSON text, so that all rows have equal columns.

    It has no `env_class`, because that column overrides the environment of the configuration.
    """
    truth = {"method": "rule", "ground_truth": _label(fields)}
    return {"data_source": source, "prompt": chat, "reward_spec": truth}


def nemo_gym(chat: Chat, fields: Fields, has_tools: bool) -> dict[str, Any]:
    """Return a row for NeMo Gym, whose agent passes it to the resources server of this package.

    With `has_tools`, the policy can call the tool `search` of that server.
    """
    tools = {"tools": [SEARCH_TOOL]} if has_tools else {}
    return {
        "responses_create_params": {"input": chat, **tools},
        "agent_ref": {"type": "responses_api_agents", "name": NEMO_GYM_AGENT},
        NEMO_GYM_ROW: _present(fields),
    }


def _present(fields: Fields) -> dict[str, Any]:
    return {name: value for name, value in _separate(fields).items() if value is not None}


def _label(fields: Fields) -> str:
    return msgspec.json.encode(_present(fields)).decode()


def verl(chat: Chat, fields: Fields, source: str, split: str, index: int) -> dict[str, Any]:
    """Return a row for verl.

    It has no `agent_name`, because that column overrides the agent loop of the configuration.
    """
    label = {name: fields[name] for name in LABEL if fields.get(name) is not None}
    extra = {name: value for name, value in _one_text(fields).items() if name not in LABEL}
    return {
        "data_source": source,
        "prompt": chat,
        "ability": "rag",
        "reward_model": {"style": "rule", "ground_truth": msgspec.json.encode(label).decode()},
        "extra_info": {"index": index, "split": split, **extra},
    }


def verl_schema(present: Collection[str], supports: bool) -> Any:
    """Return the Arrow schema of the rows for verl.

    `present` are the fields that some row has. `supports` adds the answers that each document
    supports.
    """
    import pyarrow as pa

    text = pa.string()
    document = [("id", text), ("title", text), ("text", text)]
    if supports:
        document.append(("supports", pa.list_(pa.bool_())))
    extra = [("index", pa.int64()), ("split", text), ("id", text), ("question", text)]
    if "query_time" in present:
        extra.append(("query_time", text))
    extra.append((SOURCE, text))
    if "documents" in present:
        extra.append(("documents", pa.list_(pa.struct(document))))
    return pa.schema(
        [
            ("data_source", text),
            ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", pa.struct(extra)),
        ]
    )


# --- files --------------------------------------------------------------------------------------


def trainer_file(
    trainer: str, output: Output, present: Collection[str], supports: bool = False
) -> TrainerFile:
    """Return the file of a trainer. `present` and `supports` are those of `verl_schema`."""
    if trainer in TRAINERS and TRAINERS[trainer].suffix == "parquet":
        return ParquetFile(output, present, supports)
    return JsonLinesFile(output)


class TrainerFile(Protocol):
    """A file of rows for a trainer. `commit` gives the file its name."""

    def write(self, row: dict[str, Any]) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class JsonLinesFile:
    """Rows as JSON lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._encode = msgspec.json.Encoder().encode

    def write(self, row: dict[str, Any]) -> None:
        self._output.write(self._encode(row) + b"\n")

    def commit(self) -> None:
        self._output.commit()

    def close(self) -> None:
        """Do nothing: the owner of the output closes it."""


class ParquetFile:
    """Rows for verl as Parquet with one schema. Memory holds one row group at a time."""

    def __init__(self, output: Output, present: Collection[str], supports: bool) -> None:
        with needs_extra("parquet", "pyarrow"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._table, self._schema = pa.Table, verl_schema(present, supports)
        self._output = output
        self._rows: list[dict[str, Any]] = []
        self._writer = pq.ParquetWriter(output.handle, self._schema)

    def write(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def commit(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()
        self._output.commit()

    def close(self) -> None:
        """Close the writer, which must happen before the output is closed."""
        with contextlib.suppress(OSError):
            self._writer.close()

"""What a trainer reads: a question's chat and what is known of it, as that trainer's own row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

Trainer = Literal["verl", "openrlhf", "trl", "ms-swift", "none"]
Chat = list[dict[str, str]]
Fields = Mapping[str, Any]

LABEL = ("supporting", "answers", "answer_kind", "answerable", "out_of_knowledge")
"""Fields of the gold row that verl takes as its ground truth."""


def trl(chat: Chat, fields: Fields) -> dict[str, Any]:
    """TRL hands every column but `prompt` to the reward."""
    return {"prompt": chat, **fields}


def ms_swift(chat: Chat, fields: Fields) -> dict[str, Any]:
    """ms-swift hands every column but `messages` to the reward."""
    return {"messages": chat, **fields}


def plain(chat: Chat, fields: Fields) -> dict[str, Any]:
    """A row of ours that lacks its response: one group per question, whatever its wording."""
    return {"group": fields["id"], "prompt": chat, **fields}


def openrlhf(chat: Chat, fields: Fields) -> dict[str, Any]:
    """Of OpenRLHF's row the label alone reaches a reward: all that is known, as JSON."""
    known = {name: value for name, value in fields.items() if value is not None}
    return {"input": chat, "label": msgspec.json.encode(known).decode()}


def verl(chat: Chat, fields: Fields, source: str, split: str, index: int) -> dict[str, Any]:
    """verl's row. No `agent_name`: that column would override the agent loop of the config."""
    label = {name: fields[name] for name in LABEL if fields.get(name) is not None}
    extra = {name: value for name, value in fields.items() if name not in LABEL}
    return {
        "data_source": source,
        "prompt": chat,
        "ability": "rag",
        "reward_model": {"style": "rule", "ground_truth": msgspec.json.encode(label).decode()},
        "extra_info": {"index": index, "split": split, **extra},
    }


def verl_schema(present: Collection[str], supports: bool) -> Any:
    """The Arrow schema of verl's rows: the same for every row, whatever a row lacks."""
    import pyarrow as pa

    text = pa.string()
    document = [("id", text), ("title", text), ("text", text)]
    if supports:
        document.append(("supports", pa.list_(pa.bool_())))
    extra = [("index", pa.int64()), ("split", text), ("id", text), ("question", text)]
    if "query_time" in present:
        extra.append(("query_time", text))
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

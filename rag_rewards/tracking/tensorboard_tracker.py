"""Event files of TensorBoard, in the folder TENSORBOARD_LOGGING_DIR or `runs`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rag_rewards.errors import UsageError

DEFAULT_FOLDER = "runs"


class TensorboardTracker:
    """An event file. Numbers of the whole run have the step 0, settings are a text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer = EventFileWriter(str(folder))

    @property
    def place(self) -> str:
        return str(self.folder)

    def log_settings(self, settings: Mapping[str, str]) -> None:
        lines = ["| setting | value |", "| --- | --- |"]
        lines += [f"| {name} | `{text}` |" for name, text in settings.items()]
        text = SummaryMetadata.PluginData(plugin_name="text")
        tensor = TensorProto(
            dtype="DT_STRING",
            string_val=["\n".join(lines).encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        metadata = SummaryMetadata(plugin_data=text)
        self._write([Summary.Value(tag="settings", metadata=metadata, tensor=tensor)], 0)

    def log_step(self, step: int, values: Mapping[str, float]) -> None:
        self._scalars({f"steps/{name}": value for name, value in values.items()}, step)

    def log_summary(self, values: Mapping[str, float]) -> None:
        self._scalars(values, 0)

    def close(self, *, failed: bool = False) -> None:
        self._writer.close()

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        self._write([Summary.Value(tag=name, simple_value=x) for name, x in values.items()], step)

    def _write(self, values: list[Summary.Value], step: int) -> None:
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )


def start(name: str) -> TensorboardTracker:
    """Create an event file in a folder of its own. Raises UsageError if it cannot be written."""
    parent = Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or DEFAULT_FOLDER)
    stem = re.sub(r"[^\w.-]+", "-", name)[:100]
    folder = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}"
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.partition('~')[0]}~{number}")
    try:
        folder.mkdir(parents=True)
        return TensorboardTracker(folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None

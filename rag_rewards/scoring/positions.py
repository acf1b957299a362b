"""The positions of scored rows in the output, so that workers write the rows there themselves."""

from __future__ import annotations

from threading import Lock

from rag_rewards.scoring.score import Part
from rag_rewards.scoring.score_options import OutputError


class Positions:
    """The positions at which the rows of shards begin in the output, as far as they are known.

    A position is known when all earlier shards are scored, also if their rows are still being
    written. Several threads may use one object.

    index     the first shard
    position  where its rows begin
    """

    def __init__(self, index: int, position: int) -> None:
        self._lock = Lock()
        self._index, self._position = index, position
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._in_output: set[int] = set()

    def add(self, part: Part) -> None:
        """Add a scored shard whose rows are in a part file."""
        with self._lock:
            self._add(part)

    def take(self, part: Part) -> int | None:
        """Return where a worker writes the rows of a scored shard; None for a part file.

        A shard whose worker has ended is scored again. Raises OutputError if its rows have another
        size then.
        """
        with self._lock:
            if self._sizes.get(part.index, part.rows) != part.rows:
                lines = "" if part.shard is None else part.shard.lines
                raise OutputError(
                    f"{lines} have other scores after a worker has ended: a reward must depend "
                    "only on its row"
                )
            self._add(part)
            start = self._starts.get(part.index)
            if start is not None:
                self._in_output.add(part.index)
            return start

    def _add(self, part: Part) -> None:
        self._sizes[part.index] = part.rows
        while (size := self._sizes.get(self._index)) is not None:
            self._starts[self._index] = self._position
            self._index, self._position = self._index + 1, self._position + size

    def is_in_output(self, part: Part) -> bool:
        """Return whether a worker has written the rows of a part to the output."""
        return part.index in self._in_output

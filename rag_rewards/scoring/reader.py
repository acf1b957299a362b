"""Parts of a source that only one reader can read: a stream, a compressed file, sorted groups."""

from __future__ import annotations

import contextlib
import zlib
from collections import deque
from collections.abc import Generator, Iterator

from rag_rewards.errors import OptionError, cannot_resume
from rag_rewards.files.sources import Source
from rag_rewards.rows import Chunk, ScoredChunk
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.plan import MIN_BYTES
from rag_rewards.scoring.score import Part
from rag_rewards.scoring.score_options import ScoreOptions
from rag_rewards.scoring.stream import read_chunks, score_chunks


class StreamParts:
    """Scores a source from its beginning, after the parts that an earlier run has recorded.

    The chunks of those parts are read and compared, but not scored.
    """

    def __init__(
        self, scorer: Scorer, options: ScoreOptions, source: Source, earlier: list[Part]
    ) -> None:
        self._scorer = scorer
        self._options = options
        self._earlier = earlier
        self._input = Part()
        self._chunks = self._counted(read_chunks(scorer, options, source))
        self._inputs: deque[tuple[int, int]] = deque()
        """Number of lines and checksum of each chunk that is not scored yet."""

    @property
    def input(self) -> tuple[int, int]:
        """The number of lines that were read, and their checksum."""
        return self._input.lines, self._input.input_checksum

    def read(self) -> tuple[int, int]:
        """Read all lines without scoring them, and return `input`."""
        for _ in self._chunks:
            self._inputs.clear()
        return self.input

    def scored(self) -> Generator[tuple[ScoredChunk, Part | None], None, None]:
        """Yield each scored chunk, and the record of a part with its last chunk."""
        for part in self._earlier:
            self._skip(part)
        part = Part()
        # A chunk of a model costs more than the record of a part.
        size = 1 if self._scorer.has_models else MIN_BYTES
        scored = score_chunks(self._scorer, self._chunks, self._options.workers)
        with contextlib.closing(scored):
            for chunk in scored:
                _add_input(part, *self._inputs.popleft())
                if chunk.errors and self._options.on_error == "stop":
                    part.stopped_by = chunk.first_error
                    chunk = chunk.before_error()
                part.add(chunk)
                if part.rows + part.errors < size and not part.stopped_by:
                    yield chunk, None
                    continue
                yield chunk, part
                part = Part()
        if part.lines:
            yield ScoredChunk(), part

    def _counted(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            lines, checksum = len(chunk.lines), _checksum(chunk)
            _add_input(self._input, lines, checksum)
            self._inputs.append((lines, checksum))
            yield chunk

    def _skip(self, part: Part) -> None:
        """Read the chunks of a part. Raises UsageError if they have changed."""
        skipped = Part()
        while skipped.lines < part.lines and next(self._chunks, None) is not None:
            _add_input(skipped, *self._inputs.popleft())
        if (skipped.lines, skipped.input_checksum) != (part.lines, part.input_checksum):
            raise changed_input(self._options.output)


def changed_input(output: str | None) -> OptionError:
    """Return the error for an input that is not that of the earlier run."""
    return cannot_resume(output, "the input has changed")


def _checksum(chunk: Chunk) -> int:
    checksum = chunk.numbers[0]
    for line in chunk.lines:
        checksum = zlib.crc32(line, checksum)
    return checksum


def _add_input(part: Part, lines: int, checksum: int) -> None:
    part.lines += lines
    part.input_checksum = zlib.crc32(b"%d" % checksum, part.input_checksum)

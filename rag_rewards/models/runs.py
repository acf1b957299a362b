"""The order in which a model computes all tokens of a request, each shared token once.

The sequences of a request form a trie (see `models.trie`). A run is a piece of this trie: it
keeps the beginning of the sequence before it, and continues it with its own tokens. Therefore a
list of runs describes the whole trie. A step is a part of the list that the model computes at a
time. In a step, each row attends to the rows of its own run before it, and to blocks of keys that
all precede it. No mask is necessary, and no key is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from rag_rewards.evidence.protocols import ScoreRequest, TokenIds
from rag_rewards.models.trie import Continuations, Node, build_trie, continuations

Pair: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True)
class Run:
    """Tokens that continue the sequence before this run, after its first `position` tokens."""

    position: int
    tokens: list[int]

    @property
    def end(self) -> int:
        """Number of tokens of the sequence, with the tokens of this run."""
        return self.position + len(self.tokens)

    def part(self, start: int, stop: int | None = None) -> Run:
        """Return the tokens from `start` to `stop` as a run."""
        return Run(self.position + start, self.tokens[start:stop])


class Plan:
    """The runs of some requests, and the rows that predict the tokens of the responses.

    rows     row that predicts each target, where row k is the k-th token of all runs
    targets  the predicted tokens of all responses
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.rows: list[int] = []
        self.targets: list[int] = []
        self._length = 0

    def add(self, request: ScoreRequest) -> dict[Pair, slice]:
        """Add the runs of a request. Return the targets of each pair.

        The longest child of a node follows at once, so that it continues the run of its parent.
        """
        of_contexts = continuations(request)
        spans: dict[Pair, slice] = {}
        pending = [_Visit(build_trie(request.contexts, list(of_contexts)), 0)]
        while pending:
            visit = pending.pop()
            if visit.row is None:
                row = self._append(visit.position, visit.node.tokens) - 1
                end = visit.position + len(visit.node.tokens)
                pending.append(_Visit(visit.node, end, row))
                children = sorted(visit.node.children, key=lambda child: len(child.tokens))
                pending += [_Visit(child, end) for child in children]
            else:
                for context in visit.node.contexts:
                    spans.update(
                        self._add_responses(of_contexts[context], visit.position, visit.row)
                    )
        return spans

    def _add_responses(
        self, of_context: Continuations, position: int, row: int
    ) -> Iterator[tuple[Pair, slice]]:
        """Add the responses to a context of `position` tokens that ends at `row`."""
        shared = of_context.shared
        beginning = of_context.responses[0][:shared]
        first = self._append(position, beginning) - shared
        for response, pairs in zip(of_context.responses, of_context.pairs, strict=True):
            own = self._append(position + shared, response[shared:-1]) - len(response[shared:-1])
            rows = [row, *range(first, first + shared), *range(own, self._length)]
            start = len(self.targets)
            self.rows += rows[: len(response)]
            self.targets += response
            yield from ((pair, slice(start, len(self.targets))) for pair in pairs)

    def _append(self, position: int, tokens: TokenIds) -> int:
        """Add tokens after `position` tokens of the sequence. Return the number of all tokens."""
        if self.runs and tokens and self.runs[-1].end == position:
            self.runs[-1].tokens.extend(tokens)
        elif tokens:
            self.runs.append(Run(position, list(tokens)))
        self._length += len(tokens)
        return self._length


@dataclass(frozen=True)
class _Visit:
    """A node to visit after `position` tokens; with `row`, its responses, after its last token."""

    node: Node
    position: int
    row: int | None = None


# --- steps -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Keys that all of some rows of a step attend to.

    of_path  whether the keys are in the path before the step; otherwise they are rows of the step
    keys     the keys
    rows     rows of the step
    """

    of_path: bool
    keys: slice
    rows: slice


@dataclass(frozen=True)
class Step:
    """Runs that the model computes at a time.

    runs       the runs
    blocks     keys outside of their own run that rows attend to
    path_rows  rows whose keys and values later steps need, with their first position in the path
    """

    runs: tuple[Run, ...]
    blocks: tuple[Block, ...]
    path_rows: tuple[tuple[slice, int], ...]

    @property
    def tokens(self) -> list[int]:
        return [token for run in self.runs for token in run.tokens]

    @property
    def positions(self) -> list[int]:
        return [position for run in self.runs for position in range(run.position, run.end)]


def steps(runs: Sequence[Run], size: int) -> Iterator[Step]:
    """Yield steps of at most `size` tokens. Longer runs are split.

    The path is the sequence at the start of a step, as far as the step continues it.
    """
    parts = [*_parts(runs, size), (Run(0, []),)]
    for part, following in pairwise(parts):
        yield _step(part, following[0].position)


def _parts(runs: Sequence[Run], size: int) -> Iterator[tuple[Run, ...]]:
    part: list[Run] = []
    room = size
    for run in runs:
        start = 0
        while len(run.tokens) - start >= room:
            yield (*part, run.part(start, start + room))
            start += room
            part, room = [], size
        if start < len(run.tokens):
            part.append(run.part(start))
            room -= len(part[-1].tokens)
    if part:
        yield tuple(part)


@dataclass
class _Keys:
    """Keys of the current sequence, at the positions `start` to `end`.

    shift   difference of index and position
    since   first row that attends to them up to `end`
    longer  rows before that attend to more of them: first row, row after the last one, end
    """

    of_path: bool
    start: int
    end: int
    shift: int
    since: int
    longer: list[tuple[int, int, int]] = field(default_factory=list)

    def cut(self, position: int, row: int) -> None:
        """Let the rows from `row` on attend only to the keys before `position`."""
        if self.since < row:
            self.longer.append((self.since, row, self.end))
        self.since, self.end = row, position

    def blocks(self) -> Iterator[Block]:
        """Yield blocks that cover the keys of each row once, after all rows were added.

        Earlier rows attend to more keys. A block of the keys that several runs share needs one more
        merge for each row, and a block per run reads the shared keys again. The cheaper one is
        chosen.
        """
        first = self.longer[0][0] if self.longer else 0
        start = self.start
        for since, row, end in reversed(self.longer):
            shared = end - start >= _MERGE * (since - first)
            rows = slice(first if shared else since, row)
            yield Block(self.of_path, slice(start + self.shift, end + self.shift), rows)
            start = end if shared else start


_MERGE = 2
"""The merge of the output of a row takes as long as reading this number of keys for a block."""


def _step(runs: tuple[Run, ...], following: int) -> Step:
    """Return a step. The step after it keeps `following` tokens of the sequence."""
    blocks: list[Block] = []
    current = [_Keys(True, 0, runs[0].position, 0, 0)]
    row = 0
    for run in runs:
        blocks += _cut(current, run.position, row)
        end = row + len(run.tokens)
        current.append(_Keys(False, run.position, run.end, row - run.position, end))
        row = end
    path_rows = [
        (slice(keys.start + keys.shift, min(keys.end, following) + keys.shift), keys.start)
        for keys in current
        if not keys.of_path and keys.start < following
    ]
    blocks += _cut(current, 0, row)
    return Step(runs, tuple(blocks), tuple(path_rows))


def _cut(current: list[_Keys], position: int, row: int) -> Iterator[Block]:
    """Remove the keys after `position` from the current sequence. Yield blocks of complete keys."""
    while current and current[-1].start >= position:
        keys = current.pop()
        keys.cut(position, row)
        yield from keys.blocks()
    if current and current[-1].end > position:
        current[-1].cut(position, row)


# --- runs that are computed together -------------------------------------------------------------

_LONG = 256
"""Runs of more tokens are computed together only if they have the same length."""


def similar_runs(runs: Sequence[Run]) -> Iterator[list[tuple[int, int]]]:
    """Yield the runs of a step in parts of similar length, with the first row and length of each.

    The longest run of a part has less than twice the tokens of the shortest.
    """
    parts: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    row = 0
    for run in runs:
        length = len(run.tokens)
        kind = (True, length) if length > _LONG else (False, length.bit_length())
        parts.setdefault(kind, []).append((row, length))
        row += length
    yield from parts.values()

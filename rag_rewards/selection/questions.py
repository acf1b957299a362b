"""Questions with their rollouts, read group by group: the input of labels and training sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from rag_rewards.errors import DataError, GroupError, RolloutError, RowError
from rag_rewards.files.grouped_lines import read_groups
from rag_rewards.files.output import ErrorFile
from rag_rewards.files.sources import Source
from rag_rewards.groups import Groups, fail_groups, first_error
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score, ScoreOrError
from rag_rewards.rows import (
    NOT_JSON,
    SCORE_FIELDS,
    Line,
    QuestionRow,
    ScoredRow,
    decode_line,
    error_record,
)
from rag_rewards.rows.line_groups import LineGroup

RESPONSE_FIELDS = frozenset(
    (
        *("response", "response_prefix", "finish_reason", "step", "weight_version"),
        *("prompt_token_ids", "response_token_ids", *EVIDENCE_FIELDS, *SCORE_FIELDS),
    )
)
"""Fields of a row that describe one response. All other fields describe the question."""


def score_of(row: ScoredRow) -> ScoreOrError:
    """Return the score that a row contains, or the reason why it has none."""
    try:
        if row.correct is None and row.reward is None:
            return DataError("missing; score the rows first, or choose a recipe", "correct")
        return row.score
    except RowError as error:
        return error.with_traceback(None)


class ScoredRollout(NamedTuple):
    """A rollout of a question with its line; `is_right` is None if that is unknown."""

    number: int
    line: bytes
    rollout: Rollout
    score: Score
    is_right: bool | None

    @property
    def abstains(self) -> bool:
        """Whether the response abstains according to the details of its score."""
        return self.score.details.get("refused") is True

    @property
    def is_wrong(self) -> bool:
        """Whether the response is neither right nor an abstention."""
        return self.is_right is False and not self.abstains

    @property
    def is_complete(self) -> bool:
        """Whether the response was not truncated at the length limit."""
        return self.rollout.finish_reason != "length"


@dataclass(frozen=True)
class Question:
    """A question: its first line, the row in this line, and its rollouts."""

    line: Line
    row: Rollout
    rollouts: tuple[ScoredRollout, ...] = ()

    @property
    def name(self) -> str:
        """The group of the row, otherwise its id, otherwise the question."""
        name = self.row.group if self.row.group is not None else self.row.id
        return str(name) if name is not None else self.row.question or ""

    @property
    def size(self) -> int:
        """Number of responses. Without rollouts, the number in the row."""
        return len(self.rollouts) if self.rollouts else int(self._number("samples") or 0)

    @cached_property
    def pass_rate(self) -> float | None:
        """Share of correct responses. Without rollouts, the number in the row. None if unknown."""
        if not self.rollouts:
            return self._number("pass_rate")
        marks = [rollout.is_right for rollout in self.rollouts]
        return None if None in marks else sum(map(bool, marks)) / len(marks)

    @property
    def out_of_knowledge(self) -> bool | None:
        """The label in the row. Without a label, whether no response is correct."""
        if self.row.out_of_knowledge is not None:
            return self.row.out_of_knowledge
        return None if self.pass_rate is None else self.pass_rate == 0

    def _number(self, name: str) -> float | None:
        """A number in the row, as `probe` writes it."""
        raw = _FIELDS.decode(self.line[1]).get(name)
        value = None if raw is None else msgspec.json.decode(raw)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the question. The id is the group, if there is one."""
        fields = _FIELDS.decode(self.line[1])
        own = {name: value for name, value in fields.items() if name not in RESPONSE_FIELDS}
        return own | {"id": self.name} if self.row.group is not None else own


@dataclass
class ErrorLog:
    """Counts the rows in error and writes them to the errors file with line and reason."""

    path: str
    rows: int = 0
    first: str = ""
    types: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._file = ErrorFile(self.path)

    def add(self, number: int, line: bytes, error: RolloutError) -> None:
        """Count and write a row in error."""
        self.rows += 1
        self.types[type(error).__name__] += 1
        self.first = self.first or f"line {number}: {error}"
        record = error_record(line, number, error)
        self._file.write(msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        self._file.close()


class ScoresRollouts(Protocol):
    """Scores the rollouts of a group, such as a Scorer."""

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> Sequence[ScoreOrError]: ...


@dataclass
class Questions:
    """Iterate over the questions of a file of rollouts.

    An error of one row is an error of its group. Without `scorer`, the rows contain their scores.
    A group of rows without responses yields one question per row. A response is correct if the
    field `correct` is at least `right_at`.
    """

    source: Source
    errors: ErrorLog
    scorer: ScoresRollouts | None = None
    right_at: float = 1.0
    group_size: int | None = None
    sort: bool = False
    rows: int = 0

    def __iter__(self) -> Iterator[Question]:
        for group in read_groups(self.source, self.group_size, self.sort):
            self.rows += len(group.lines)
            if any(has_response(line) for _, line in group.lines):
                yield from self._question(group)
            else:
                yield from self._questions_without_responses(group)

    def _questions_without_responses(self, group: LineGroup) -> Iterator[Question]:
        for number, line in group.lines:
            row = read_question_row(line)
            if isinstance(row, RolloutError):
                self.errors.add(number, line, row)
            else:
                yield Question((number, line), row)

    def _question(self, group: LineGroup) -> Iterator[Question]:
        rows = [_response_row(line) for _, line in group.lines]
        scores = self._scores(rows, group.problem)
        results = fail_groups(scores, [range(len(scores))])
        if first_error(results) is not None:
            for (number, line), error in zip(group.lines, results, strict=True):
                if isinstance(error, RolloutError):
                    self.errors.add(number, line, error)
            return
        yield question_of(group.lines, rows, scores, self.right_at)

    def _scores(
        self, rows: Sequence[QuestionRow | RolloutError], problem: str
    ) -> Sequence[ScoreOrError]:
        if problem:
            return [row if isinstance(row, RolloutError) else GroupError(problem) for row in rows]
        if self.scorer is not None:
            return self.scorer.score_each(rows, [range(len(rows))])
        return [row if isinstance(row, RolloutError) else score_of(row) for row in rows]


def question_of(
    lines: Sequence[Line],
    rows: Sequence[Rollout | RolloutError],
    scores: Sequence[ScoreOrError],
    right_at: float,
) -> Question:
    """Return a question with its rollouts, none of which is in error."""
    rollouts = tuple(
        ScoredRollout(
            *line, row, score, None if score.correct is None else score.correct >= right_at
        )
        for line, row, score in zip(lines, rows, scores, strict=True)
        if isinstance(row, Rollout) and isinstance(score, Score)
    )
    return Question(lines[0], rollouts[0].rollout, rollouts)


class _Response(msgspec.Struct):
    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_RESPONSE = msgspec.json.Decoder(_Response)
_ROW = msgspec.json.Decoder(QuestionRow)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def has_response(line: bytes) -> bool:
    """Return whether a row has a response or does not decode."""
    try:
        return _RESPONSE.decode(line).response is not msgspec.UNSET
    except NOT_JSON:
        return True


def read_question_row(line: bytes) -> QuestionRow | RolloutError:
    """Return a row, or the reason why it does not decode."""
    return decode_line(line, _ROW)


def _response_row(line: bytes) -> QuestionRow | RolloutError:
    row = read_question_row(line)
    if isinstance(row, QuestionRow) and not has_response(line):
        return RowError("missing", "response")
    return row

"""Questions with their rollouts, group by group: what labels and training sets are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from rag_rewards.errors import DataError, GroupError, OptionError, RolloutError, RowError
from rag_rewards.groups import LineGroup, fail_groups, first_error
from rag_rewards.io.sinks import ErrorFile
from rag_rewards.io.sources import Source, read_groups
from rag_rewards.rollout import EVIDENCE_FIELDS, Message, Rollout, Score, ScoreOrError
from rag_rewards.rows import (
    NOT_JSON,
    SCORE_FIELDS,
    Line,
    ScoredRow,
    decode_line,
    error_record,
)
from rag_rewards.scorer import Scorer

OF_A_RESPONSE = frozenset(
    (
        *("response", "response_prefix", "finish_reason", "step", "weight_version"),
        *("prompt_token_ids", "response_token_ids", *EVIDENCE_FIELDS, *SCORE_FIELDS),
    )
)
"""What a row says of one response; all else is said of its question."""


def check_right_at(value: float) -> None:
    """Raise OptionError when a response cannot be right from this value of `correct`."""
    if not 0 < value <= 1:
        raise OptionError("{right_at} must be above 0 and at most 1, found {value}", value=value)


class QuestionRow(ScoredRow, frozen=True, kw_only=True, dict=True):
    """A row of a question, which may have no response yet."""

    response: str | list[Message] = ""


def score_of(row: ScoredRow) -> ScoreOrError:
    """Return the score that a row contains, or the reason why it has none."""
    try:
        if row.correct is None and row.reward is None:
            return DataError("missing; score the rows first, or choose a recipe", "correct")
        return row.score
    except RowError as error:
        return error.with_traceback(None)


class Sample(NamedTuple):
    """One response to a question; `right` is None where the recipe does not say."""

    number: int
    line: bytes
    rollout: Rollout
    score: Score
    right: bool | None

    @property
    def refused(self) -> bool:
        """Whether it abstains, as the recipe's details say."""
        return self.score.details.get("refused") is True

    @property
    def wrong(self) -> bool:
        """Neither right nor an abstention."""
        return self.right is False and not self.refused

    @property
    def whole(self) -> bool:
        """Whether it ended by itself."""
        return self.rollout.finish_reason != "length"


@dataclass(frozen=True)
class Question:
    """A question, its first row with its number and fields, and the responses to it."""

    line: Line
    rollout: Rollout
    samples: tuple[Sample, ...] = ()

    @property
    def name(self) -> str:
        """What it is called: its group, else its id, else the question."""
        own = self.rollout.group if self.rollout.group is not None else self.rollout.id
        return str(own) if own is not None else self.rollout.question or ""

    @property
    def size(self) -> int:
        """How many responses are known; of a row without any, what it says of them."""
        return len(self.samples) if self.samples else int(self._said("samples") or 0)

    @cached_property
    def pass_rate(self) -> float | None:
        """Share of its responses that are right; of a row without any, what it says of them.

        None where it is not known.
        """
        if not self.samples:
            return self._said("pass_rate")
        marks = [sample.right for sample in self.samples]
        known = [mark for mark in marks if mark is not None]
        return sum(known) / len(known) if known and len(known) == len(marks) else None

    @property
    def out_of_knowledge(self) -> bool | None:
        """The row's label; where it has none, whether none of its responses is right."""
        if self.rollout.out_of_knowledge is not None:
            return self.rollout.out_of_knowledge
        return None if self.pass_rate is None else self.pass_rate == 0

    def _said(self, name: str) -> float | None:
        """A number that stands in the row, as `probe` writes it."""
        raw = _FIELDS.decode(self.line[1]).get(name)
        value = None if raw is None else msgspec.json.decode(raw)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def row(self) -> dict[str, Any]:
        """Its row, without what was said of one response. The id is the group's, if it has one."""
        fields = _FIELDS.decode(self.line[1])
        kept = {name: value for name, value in fields.items() if name not in OF_A_RESPONSE}
        return kept | {"id": self.name} if self.rollout.group is not None else kept


@dataclass
class Faults:
    """Rows in error: counted, and written to the errors file with line and reason."""

    path: str
    rows: int = 0
    first: str = ""
    types: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._file = ErrorFile(self.path)

    def add(self, number: int, line: bytes, error: RolloutError) -> None:
        self.rows += 1
        self.types[type(error).__name__] += 1
        self.first = self.first or f"line {number}: {error}"
        record = error_record(line, number, error)
        self._file.write(msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        self._file.close()


@dataclass
class Questions:
    """The questions of a file of rollouts; a group with a row in error is in error whole.

    `scorer` scores the rows; without it they contain their scores. Rows without a response are
    questions by themselves. A response is right where `correct` is at least `right_at`.
    """

    source: Source
    faults: Faults
    scorer: Scorer | None = None
    right_at: float = 1.0
    group_size: int | None = None
    sort: bool = False
    rows: int = 0

    def __iter__(self) -> Iterator[Question]:
        for group in read_groups(self.source, self.group_size, self.sort):
            self.rows += len(group.lines)
            if any(answered(line) for _, line in group.lines):
                yield from self._question(group)
            else:
                yield from self._unanswered(group)

    def _unanswered(self, group: LineGroup) -> Iterator[Question]:
        for number, line in group.lines:
            row = read_question_row(line)
            if isinstance(row, RolloutError):
                self.faults.add(number, line, row)
            else:
                yield Question((number, line), row)

    def _question(self, group: LineGroup) -> Iterator[Question]:
        read = [_response_row(line) for _, line in group.lines]
        scored = self._scored(read, group.problem)
        results = fail_groups(scored, [range(len(scored))])
        if first_error(results) is not None:
            for (number, line), error in zip(group.lines, results, strict=True):
                if isinstance(error, RolloutError):
                    self.faults.add(number, line, error)
            return
        yield question_of(group.lines, read, scored, self.right_at)

    def _scored(
        self, rows: Sequence[QuestionRow | RolloutError], problem: str
    ) -> Sequence[ScoreOrError]:
        if problem:
            return [row if isinstance(row, RolloutError) else GroupError(problem) for row in rows]
        if self.scorer is not None:
            return self.scorer.score_each(rows, [range(len(rows))])
        return [row if isinstance(row, RolloutError) else score_of(row) for row in rows]


def question_of(
    lines: Sequence[Line],
    rollouts: Sequence[Rollout | RolloutError],
    scored: Sequence[ScoreOrError],
    right_at: float,
) -> Question:
    """A question with its responses, none of which is in error."""
    samples = tuple(
        Sample(*line, row, score, None if score.correct is None else score.correct >= right_at)
        for line, row, score in zip(lines, rollouts, scored, strict=True)
        if isinstance(row, Rollout) and isinstance(score, Score)
    )
    return Question(lines[0], samples[0].rollout, samples)


class _Answered(msgspec.Struct):
    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ANSWERED = msgspec.json.Decoder(_Answered)
_ROW = msgspec.json.Decoder(QuestionRow)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def answered(line: bytes) -> bool:
    """Whether a row has a response, or cannot be read."""
    try:
        return _ANSWERED.decode(line).response is not msgspec.UNSET
    except NOT_JSON:
        return True


def read_question_row(line: bytes) -> QuestionRow | RolloutError:
    """Return a row, or the reason why it does not decode."""
    return decode_line(line, _ROW)


def _response_row(line: bytes) -> QuestionRow | RolloutError:
    row = read_question_row(line)
    if isinstance(row, QuestionRow) and not answered(line):
        return RowError("missing", "response")
    return row

"""Questions with their rollouts, group by group: what labels and training sets are made from."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from rag_rewards.blueprints import Scored
from rag_rewards.errors import DataError, GroupError, RolloutError, RowError
from rag_rewards.grading import Grader
from rag_rewards.reading import Group, Line, Source, groups_of
from rag_rewards.rollout import (
    EVIDENCE_FIELDS,
    Message,
    Rollout,
    Score,
    decode_row,
    row_error,
)
from rag_rewards.scoring import SCORED_FIELDS, error_record
from rag_rewards.writing import ErrorFile

OF_A_RESPONSE = frozenset(
    (
        *("response", "response_prefix", "finish_reason", "step", "weight_version"),
        *("prompt_token_ids", "response_token_ids", *EVIDENCE_FIELDS, *SCORED_FIELDS),
    )
)
"""What a row says of one response; all else is said of its question."""


class Trial(Rollout, frozen=True, kw_only=True, dict=True):
    """A rollout row with the scores that it may bring; a question's row has no response."""

    response: str | list[Message] = ""
    reward: float | None = None
    correct: float | None = None
    components: dict[str, float | None] | None = None
    details: dict[str, Any] | str | None = None
    signature: str | None = None

    @property
    def brought(self) -> Scored:
        """The score that stands in the row. In Parquet details are JSON."""
        if self.correct is None and self.reward is None:
            return DataError("missing; score the rows first, or give --recipe", "correct")
        details = self.details or {}
        try:
            if isinstance(details, str):
                details = msgspec.json.decode(details, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            return DataError(f"neither a mapping nor its JSON: {error}", "details")
        return Score(self.reward, self.components or {}, self.correct, details)


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
        record = error_record(line, number, error, error)
        self._file.write(msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        self._file.close()


@dataclass
class Questions:
    """The questions of a file of rollouts; a group with a row in error is in error whole.

    `grader` scores the rows; without it they bring their scores. Rows without a response are
    questions by themselves. A response is right where `correct` is at least `right_at`.
    """

    source: Source
    faults: Faults
    grader: Grader | None = None
    right_at: float = 1.0
    group_size: int | None = None
    sort: bool = False
    rows: int = 0

    def __iter__(self) -> Iterator[Question]:
        for group in groups_of(self.source, self.group_size, self.sort):
            self.rows += len(group.lines)
            if any(answered(line) for _, line in group.lines):
                yield from self._question(group)
            else:
                yield from self._unanswered(group)

    def _unanswered(self, group: Group) -> Iterator[Question]:
        for number, line in group.lines:
            trial = read_trial(line)
            if isinstance(trial, RolloutError):
                self.faults.add(number, line, trial)
            else:
                yield Question((number, line), trial)

    def _question(self, group: Group) -> Iterator[Question]:
        read = [_response_row(line) for _, line in group.lines]
        scored = self._scored(read, group.problem)
        broken = next((score for score in scored if isinstance(score, RolloutError)), None)
        if broken is not None:
            for (number, line), score in zip(group.lines, scored, strict=True):
                self.faults.add(number, line, _error_beside(score, broken))
            return
        yield question_of(group.lines, read, scored, self.right_at)

    def _scored(self, read: Sequence[Trial | RolloutError], problem: str) -> Sequence[Scored]:
        if problem:
            return [row if isinstance(row, RolloutError) else GroupError(problem) for row in read]
        if self.grader is not None:
            return self.grader.score_each(read, [range(len(read))])
        return [row if isinstance(row, RolloutError) else row.brought for row in read]


def question_of(
    lines: Sequence[Line],
    rollouts: Sequence[Rollout | RolloutError],
    scored: Sequence[Scored],
    right_at: float,
) -> Question:
    """A question with its responses, none of which is in error."""
    samples = tuple(
        Sample(*line, row, score, None if score.correct is None else score.correct >= right_at)
        for line, row, score in zip(lines, rollouts, scored, strict=True)
        if isinstance(row, Rollout) and isinstance(score, Score)
    )
    return Question(lines[0], samples[0].rollout, samples)


def _error_beside(score: Scored, broken: RolloutError) -> RolloutError:
    if isinstance(score, RolloutError):
        return score
    return GroupError(f"its group has a row in error ({broken})")


class _Answered(msgspec.Struct):
    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ANSWERED = msgspec.json.Decoder(_Answered)
_TRIAL = msgspec.json.Decoder(Trial)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def answered(line: bytes) -> bool:
    """Whether a row has a response, or cannot be read."""
    try:
        return _ANSWERED.decode(line).response is not msgspec.UNSET
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return True


def read_trial(line: bytes) -> Trial | RolloutError:
    """A row, or why it does not decode."""
    try:
        line.decode()  # fields that nothing reads are not checked by the decoder
        return _TRIAL.decode(line)
    except msgspec.ValidationError as error:
        return row_error(error)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        with contextlib.suppress(UnicodeError):
            try:
                decode_row(line)
            except RolloutError as fault:
                return fault
        return RowError(f"not JSON: {error}")


def _response_row(line: bytes) -> Trial | RolloutError:
    trial = read_trial(line)
    if isinstance(trial, Trial) and not answered(line):
        return RowError("missing", "response")
    return trial

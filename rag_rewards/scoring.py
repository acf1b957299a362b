"""Rows in, rows out: what the command line, the server and Ray all call.

A `Plan` says which recipe, as plain data that can go to another process. `Scorer` turns chunks of
JSON lines into scored lines, error records and sums; it never changes what it was not asked to:
a row's own fields are written as the bytes that came in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rag_rewards.blueprints import Recipe, Scored
from rag_rewards.errors import GroupError, RolloutError, RowError, SettingError
from rag_rewards.recipes import dotted, recipe
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score, decode_row
from rag_rewards.training.curriculum import Curriculum, Stage

Raw = msgspec.Raw | msgspec.UnsetType


class Row(Rollout, frozen=True, kw_only=True, dict=True):
    """A rollout row, and the fields of an earlier scoring, which are replaced."""

    reward: Raw = msgspec.UNSET
    components: Raw = msgspec.UNSET
    correct: Raw = msgspec.UNSET
    details: Raw = msgspec.UNSET
    error: Raw = msgspec.UNSET
    signature: Raw = msgspec.UNSET

    @property
    def scored_before(self) -> bool:
        return not all(getattr(self, name) is msgspec.UNSET for name in SCORED_FIELDS)


SCORED_FIELDS = ("reward", "components", "correct", "details", "error", "signature")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which recipe to score with, as plain data.

    `stages` (a curriculum) replaces `recipe`: each has `recipe`, and all but the last
    `until_step`.
    """

    recipe: str = ""
    settings: dict[str, Any] = {}
    hardened: bool = False
    stages: list[dict[str, Any]] = []
    keep_evidence: bool = False
    collect: bool = False

    def build(self) -> Recipe | Curriculum:
        if not self.stages:
            return recipe(self.recipe, self.settings, hardened=self.hardened)
        return Curriculum(tuple(self._stage(stage) for stage in self.stages))

    def _stage(self, stage: Mapping[str, Any]) -> Stage:
        known = {"recipe", "until_step", "settings"}
        if unknown := set(stage) - known:
            raise SettingError(f"stages: unknown key {min(unknown)!r}; there are {sorted(known)}")
        name, until = stage.get("recipe"), stage.get("until_step")
        own = stage.get("settings") or {}
        if not isinstance(name, str):
            raise SettingError("stages: every stage names its recipe")
        if not isinstance(own, Mapping):
            raise SettingError(f"stages: settings is a mapping, found {own!r}")
        if until is not None and (not isinstance(until, int) or isinstance(until, bool)):
            raise SettingError(f"stages: until_step is a whole number, found {until!r}")
        settings = self.settings | dotted(own)
        return Stage(recipe(name, settings, hardened=self.hardened), until)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a file with their numbers.

    For group recipes `sizes` holds the number of lines of each group in turn, and `problems`
    why a group cannot be scored, or "".
    """

    lines: list[bytes]
    numbers: list[int]
    sizes: list[int] | None = None
    problems: list[str] = []


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the errors file."""

    line: int
    id: str | None
    error: dict[str, str]
    row: msgspec.Raw


class Tally(msgspec.Struct, kw_only=True):
    """Running sums of a scoring, so that means need no rows in memory."""

    rows: int = 0
    errors: int = 0
    not_scored: int = 0
    truncated: int = 0
    reward: float = 0.0
    correct: float = 0.0
    judged: int = 0
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    error_types: dict[str, int] = {}

    def add(self, score: Score, truncated: bool) -> None:
        self.rows += 1
        self.truncated += truncated
        if score.value is None:
            self.not_scored += 1
        else:
            self.reward += score.value
        if score.correct is not None:
            self.correct += score.correct
            self.judged += 1
        sums, counts = self.sums, self.counts
        for name, value in score.components.items():
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + 1

    def fail(self, error: RolloutError) -> None:
        self.errors += 1
        kind = type(error).__name__
        self.error_types[kind] = self.error_types.get(kind, 0) + 1

    def merge(self, other: Tally) -> None:
        for name in ("rows", "errors", "not_scored", "truncated", "reward", "correct", "judged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        _add(self.sums, other.sums)
        _add(self.counts, other.counts)
        _add(self.error_types, other.error_types)

    def means(self) -> dict[str, float]:
        """Mean reward, correct, and components over the rows that have them."""
        scored = self.rows - self.not_scored
        means = {"reward": self.reward / scored} if scored else {}
        if self.judged:
            means["correct"] = self.correct / self.judged
        return means | {name: self.sums[name] / n for name, n in self.counts.items() if n}


N = TypeVar("N", int, float)


def _add(mine: dict[str, N], theirs: Mapping[str, N]) -> None:
    for key, value in theirs.items():
        mine[key] = mine.get(key, 0) + value


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One scored row, for the table on a terminal."""

    id: str
    group: str
    reward: float | None
    correct: float | None
    reason: str


class Result(msgspec.Struct, kw_only=True):
    """What came of a chunk: scored lines and error records in order, and their sums."""

    output: bytes = b""
    numbers: list[int] = []
    ends: list[int] = []
    errors: list[bytes] = []
    error_numbers: list[int] = []
    tally: Tally = msgspec.field(default_factory=Tally)
    told: list[Told] = []


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Row)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


Gather = Callable[[Sequence[Row]], Sequence[Row | RolloutError]]
"""Rows to the same rows with the evidence that they lacked, or the errors of asking for it."""


class Scorer:
    """Scores chunks of lines with one recipe, after `gather` has added evidence, if given.

    `models` are the fingerprints of those that it asks: they are part of the signature.
    """

    def __init__(
        self,
        plan: Plan,
        gather: Gather | None = None,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.recipe = plan.build()
        self.gather = gather
        self.signature = signature_of(self.recipe, models or {})
        self._tail = b',"error":null,"signature":' + _ENCODER.encode(self.signature) + b"}\n"

    def score(self, chunk: Chunk) -> Result:
        """Every line scored, or in the errors with its reason. Never both, never neither."""
        read = [_read(line) for line in chunk.lines]
        informed = self._gathered(read)
        if chunk.sizes is None:
            results = self._score_rows(informed)
        else:
            results = self._score_groups(informed, chunk.sizes, chunk.problems)
        return self._write(chunk, read, informed, results)

    def _gathered(self, read: list[Row | RolloutError]) -> list[Row | RolloutError]:
        if self.gather is None:
            return read
        informed = iter(self.gather([row for row in read if isinstance(row, Row)]))
        return [next(informed) if isinstance(row, Row) else row for row in read]

    def _score_rows(self, read: Sequence[Row | RolloutError]) -> list[Scored]:
        rows = [row for row in read if isinstance(row, Row)]
        scored = iter(self.recipe.score_each(rows))
        return [row if isinstance(row, RolloutError) else next(scored) for row in read]

    def _score_groups(
        self, read: Sequence[Row | RolloutError], sizes: Sequence[int], problems: Sequence[str]
    ) -> list[Scored]:
        """A group is scored whole or not at all."""
        results: list[Scored] = []
        rows: list[Row] = []
        groups: list[range] = []
        at = 0
        for size, problem in zip(sizes, problems, strict=True):
            members = read[at : at + size]
            at += size
            fault = _group_fault(members, problem)
            if fault is None:
                groups.append(range(len(rows), len(rows) + size))
                rows.extend(row for row in members if isinstance(row, Row))
                results.extend([_PENDING] * size)
            else:
                results.extend(row if isinstance(row, RolloutError) else fault for row in members)
        scored = iter(self.recipe.score_each(rows, groups))
        results = [next(scored) if result is _PENDING else result for result in results]
        return _whole(results, sizes)

    def _write(
        self,
        chunk: Chunk,
        read: Sequence[Row | RolloutError],
        informed: Sequence[Row | RolloutError],
        results: Sequence[Scored],
    ) -> Result:
        out = Result()
        parts: list[bytes] = []
        length = 0
        for line, number, row, known, result in zip(
            chunk.lines, chunk.numbers, read, informed, results, strict=True
        ):
            if isinstance(result, RolloutError):
                out.errors.append(_ENCODER.encode(error_record(line, number, row, result)) + b"\n")
                out.error_numbers.append(number)
                out.tally.fail(result)
                continue
            if isinstance(row, RolloutError) or isinstance(known, RolloutError):
                raise TypeError("a row that does not decode has no score")
            part = self._line(line, number, row, known, result)
            length += sum(map(len, part))
            parts.extend(part)
            out.numbers.append(number)
            out.ends.append(length)
            out.tally.add(result, row.finish_reason == "length")
            if self.plan.collect:
                out.told.append(_tell(row, number, result))
        out.output = b"".join(parts)
        return out

    def _line(
        self, line: bytes, number: int, row: Row, informed: Row, score: Score
    ) -> Sequence[bytes]:
        """The row's own bytes with the score spliced in before the closing brace, in pieces."""
        new = _new_evidence(row, informed) if self.plan.keep_evidence else {}
        added = b""
        if row.id is None:
            added += b',"id":"%d"' % number
        if row.group is None:
            added += b',"group":' + _ENCODER.encode(row.question)
        if new:
            added += b"," + _ENCODER.encode(new)[1:-1]
        return (
            _own_fields(line, row, new),
            added,
            b',"reward":',
            _ENCODER.encode(score.value),
            b',"components":',
            _ENCODER.encode(score.components),
            b',"correct":',
            _ENCODER.encode(score.correct),
            b',"details":',
            _ENCODER.encode(score.details),
            self._tail,
        )


def signature_of(scored_by: Recipe | Curriculum, models: Mapping[str, str]) -> str:
    """One line that reproduces the scores: the recipe's own, and the models that were asked."""
    said = scored_by.signature
    return f"{said} models {_ENCODER.encode(dict(models)).decode()}" if models else said


_PENDING = Score(None)


def _read(line: bytes) -> Row | RolloutError:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _explain(line)


def _explain(line: bytes) -> RolloutError:
    """Why a line does not decode, in the row's own names."""
    try:
        decode_row(line)
    except RolloutError as error:
        return error
    return RowError("a field of an earlier scoring does not decode")


def _group_fault(members: Sequence[Row | RolloutError], problem: str) -> GroupError | None:
    broken = next((row for row in members if isinstance(row, RolloutError)), None)
    if broken is not None:
        return GroupError(f"its group has a row in error ({broken})")
    return GroupError(problem) if problem else None


def _whole(results: list[Scored], sizes: Sequence[int]) -> list[Scored]:
    """The results, with an error for every member of a group that has one in error."""
    at = 0
    for size in sizes:
        group = results[at : at + size]
        broken = next((result for result in group if isinstance(result, RolloutError)), None)
        if broken is not None:
            fault = GroupError(f"its group has a row in error ({broken})")
            results[at : at + size] = [fault if isinstance(r, Score) else r for r in group]
        at += size
    return results


def _new_evidence(row: Row, informed: Row) -> dict[str, Any]:
    """Evidence that was gathered; what the row brought stands in it already."""
    pairs = ((name, getattr(row, name), getattr(informed, name)) for name in EVIDENCE_FIELDS)
    return {name: new for name, old, new in pairs if new is not old}


def _own_fields(line: bytes, row: Row, anew: Collection[str]) -> bytes:
    """The row's object without its closing brace and without what is written anew."""
    if (
        not row.scored_before
        and not anew
        and not ((row.id is None and b'"id"' in line) or (row.group is None and b'"group"' in line))
    ):
        return line[:-2] if line.endswith(b"}\n") else line.rstrip()[:-1]
    fields = _FIELDS.decode(line)
    for name in (*SCORED_FIELDS, *anew):
        fields.pop(name, None)
    for name, value in (("id", row.id), ("group", row.group)):
        if value is None:
            fields.pop(name, None)
    return _ENCODER.encode(fields)[:-1]


def error_record(
    line: bytes, number: int, row: Row | RolloutError, error: RolloutError
) -> ErrorRecord:
    """A bad row's line of the errors file, with its id where one can be read."""
    said = {"type": type(error).__name__, "message": error.message, "path": error.path}
    known = str(row.id) if isinstance(row, Row) and row.id is not None else _lenient_id(line)
    try:
        line.decode()  # fields that nothing reads are not checked by the decoder
        own = msgspec.Raw(_ENCODER.encode(_FIELDS.decode(line)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        own = msgspec.Raw(_ENCODER.encode(line.decode("utf-8", "replace").rstrip("\r\n")))
    return ErrorRecord(line=number, id=known or str(number), error=said, row=own)


class _Named(msgspec.Struct):
    id: str | int | None = None


_LENIENT = msgspec.json.Decoder(_Named)


def _lenient_id(line: bytes) -> str | None:
    try:
        found: Any = _LENIENT.decode(line).id
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = _id_beside_nan(line)
    return None if found is None else str(found)


def _id_beside_nan(line: bytes) -> str | int | None:
    """The id of a row that Python alone takes for JSON: it holds NaN or Infinity."""
    try:
        found = json.loads(line)["id"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return found if isinstance(found, (str, int)) else None


def _tell(row: Row, number: int, score: Score) -> Told:
    from rag_rewards.report.reasons import reason

    return Told(
        id=str(row.id if row.id is not None else number),
        group=row.key or "",
        reward=score.value,
        correct=score.correct,
        reason=reason(row, score),
    )

"""Scored rows and error records as JSON lines. A row's own fields keep the bytes of the input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score, ScoreOrError
from rag_rewards.rows.chunks import Chunk, ErrorRecord, ScoredChunk, Totals
from rag_rewards.rows.column_map import with_column_hint
from rag_rewards.rows.decoding import NOT_JSON, line_id
from rag_rewards.rows.scored import SCORE_FIELDS, ScoredRow, encodable, error_data, score_fields

_ENCODER = msgspec.json.Encoder()
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def error_record(
    line: bytes, number: int, error: RolloutError, row_id: str | int | None = None
) -> ErrorRecord:
    """Return the record of a row in error, with its id where the line contains one."""
    row_id = encodable(line_id(line) or "" if row_id is None else str(row_id))
    try:
        line.decode()  # the decoder does not check the bytes of unused fields
        row = msgspec.Raw(_ENCODER.encode(_FIELDS.decode(line)))
    except NOT_JSON:
        row = msgspec.Raw(_ENCODER.encode(line.decode("utf-8", "replace").rstrip("\r\n")))
    return ErrorRecord(line=number, id=row_id or str(number), error=error_data(error), row=row)


class RowEncoder:
    """Writes the scores of a run on its rows.

    signature      signature of the scoring, written on every row
    keep_evidence  also write the evidence that was gathered
    missing_part   function that returns the name of the first part that a response lacks, or ""
    other_form     function that returns the name of another recipe whose form a response has, or ""
    read           fields that the recipe reads
    """

    def __init__(
        self,
        signature: str,
        *,
        keep_evidence: bool = False,
        missing_part: Callable[[Rollout], str] | None = None,
        other_form: Callable[[Rollout], str] | None = None,
        read: Collection[str] = (),
    ) -> None:
        self.keep_evidence = keep_evidence
        self._missing_part, self._other_form, self._read = missing_part, other_form, read
        self._signature = msgspec.Raw(_ENCODER.encode(signature))

    def encode(
        self,
        chunk: Chunk,
        rows: Sequence[ScoredRow | RolloutError],
        with_evidence: Sequence[Rollout | RolloutError],
        results: Sequence[ScoreOrError],
    ) -> ScoredChunk:
        """Return each line of a chunk with its score, or its error record.

        `rows` are the decoded lines, `with_evidence` the same rows with their evidence.
        """
        out = ScoredChunk()
        parts: list[bytes] = []
        length = 0
        for line, number, row, informed, result in zip(
            chunk.lines, chunk.numbers, rows, with_evidence, results, strict=True
        ):
            if isinstance(result, RolloutError):
                result = _with_hint(result, line, self._read)
                row_id = None if isinstance(row, RolloutError) else row.id
                record = error_record(line, number, result, row_id)
                out.errors.append(_ENCODER.encode(record) + b"\n")
                out.error_numbers.append(number)
                out.totals.add_error(result)
                continue
            if isinstance(row, RolloutError) or isinstance(informed, RolloutError):
                raise TypeError("a row that does not decode has no score")
            scored = self._line(line, number, row, informed, result)
            length += len(scored)
            parts.append(scored)
            out.numbers.append(number)
            out.ends.append(length)
            out.totals.add(result, row.finish_reason == "length")
            if self._missing_part:
                count_form(out.totals, row, self._missing_part, self._other_form)
        for group in chunk.groups or _adjacent(rows):
            scores = (results[i] for i in group)
            out.totals.add_group(
                [
                    each.value
                    for each in scores
                    if isinstance(each, Score) and each.value is not None
                ]
            )
        out.output = b"".join(parts)
        return out

    def _line(
        self, line: bytes, number: int, row: ScoredRow, informed: Rollout, score: Score
    ) -> bytes:
        """Return the row with the score before its closing brace."""
        evidence = _new_evidence(row, informed) if self.keep_evidence else {}
        added: dict[str, Any] = {}
        if row.id is None:
            added["id"] = str(number)
        if row.group is None:
            added["group"] = row.question
        added |= evidence
        added |= score_fields(row, score)
        added["signature"] = self._signature
        return b"%b,%b\n" % (_own_fields(line, row, evidence), _ENCODER.encode(added)[1:])


def _adjacent(rows: Sequence[Rollout | RolloutError]) -> Iterator[list[int]]:
    """Yield the positions of adjacent rows with the same key."""
    keys = (None if isinstance(row, RolloutError) else row.key for row in rows)
    for key, members in groupby(enumerate(keys), key=lambda each: each[1]):
        if key is not None:
            yield [i for i, _ in members]


def count_form(
    totals: Totals,
    row: Rollout,
    missing_part: Callable[[Rollout], str],
    other_form: Callable[[Rollout], str] | None,
) -> None:
    """Count a response that lacks a part of its form. The functions are those of `RowEncoder`."""
    if part := missing_part(row):
        totals.without_form[part] = totals.without_form.get(part, 0) + 1
        if other_form and (name := other_form(row)):
            totals.other_forms[name] = totals.other_forms.get(name, 0) + 1


def _with_hint(error: RolloutError, line: bytes, read: Collection[str]) -> RolloutError:
    """Return the error of a missing field with the columns that may contain missing fields."""
    if error.message != "missing":
        return error
    try:
        return with_column_hint(error, msgspec.json.decode(line, type=dict[str, Any]), read)
    except NOT_JSON:
        return error


def _new_evidence(row: ScoredRow, informed: Rollout) -> dict[str, Any]:
    """Return the evidence that was gathered for a row."""
    pairs = ((name, getattr(row, name), getattr(informed, name)) for name in EVIDENCE_FIELDS)
    return {name: new for name, old, new in pairs if new is not old}


def _own_fields(line: bytes, row: ScoredRow, replaced: Collection[str]) -> bytes:
    """Return the row's object without its closing brace and without fields that are replaced."""
    if (
        not row.has_score_fields
        and not replaced
        and not ((row.id is None and b'"id"' in line) or (row.group is None and b'"group"' in line))
    ):
        return line[:-2] if line.endswith(b"}\n") else line.rstrip()[:-1]
    fields = _FIELDS.decode(line)
    for name in (*SCORE_FIELDS, *replaced):
        fields.pop(name, None)
    for name, value in (("id", row.id), ("group", row.group)):
        if value is None:
            fields.pop(name, None)
    return _ENCODER.encode(fields)[:-1]

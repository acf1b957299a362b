"""Rows with scores: fields that are decoded on access, and lines that keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.errors import DataError, RowError
from rag_rewards.report.plain import summary
from rag_rewards.rows import (
    SCORE_FIELDS,
    Chunk,
    RowEncoder,
    ScoredRow,
    Totals,
    decode_line,
    error_record,
)

DECODER = msgspec.json.Decoder(ScoredRow)
SCORE = rr.Score(0.5, {"a": 1.0, "b": None}, 1.0, {"answer": "Paris"})


def decoded(row: dict[str, Any] | bytes) -> ScoredRow:
    line = row if isinstance(row, bytes) else json.dumps(row).encode()
    result = decode_line(line, DECODER)
    assert isinstance(result, ScoredRow), result
    return result


def encoded(line: bytes, score: rr.Score = SCORE) -> bytes:
    row = decoded(line)
    chunk = Chunk(lines=[line], numbers=[7])
    return RowEncoder("sig").encode(chunk, [row], [row], [score]).output


def test_a_row_without_a_score_has_none() -> None:
    row = decoded({"response": "x"})
    assert (row.reward, row.components, row.correct, row.details) == (None, None, None, None)
    assert (row.signature, row.error, row.is_scored, row.has_score_fields) == (
        None,
        None,
        False,
        False,
    )
    assert row.score == rr.Score(None)


def test_a_score_round_trips() -> None:
    row = decoded(encoded(b'{"response": "x"}'))
    assert row.score == SCORE
    assert (row.signature, row.error, row.is_scored) == ("sig", None, True)
    assert ScoredRow.of(rr.Rollout(response="x"), SCORE, "sig").score == SCORE


def test_a_new_score_replaces_an_earlier_one() -> None:
    row = decoded(encoded(b'{"response": "x", "error": "old"}'))
    again = ScoredRow.of(row, rr.Score(None), "new")
    assert (again.reward, again.components, again.correct, again.signature) == (
        None,
        {},
        None,
        "new",
    )
    assert again.response == "x"


def test_details_of_a_parquet_file_are_json_text() -> None:
    assert decoded({"response": "x", "details": '{"answer": "a"}'}).details == {"answer": "a"}
    with pytest.raises(RowError, match="details: "):
        _ = decoded({"response": "x", "details": "no JSON"}).details


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reward": "high"}, "reward: expected float | null, found str"),
        ({"components": {"a": "b"}}, r"components\[\]: expected float | null, found str"),
        ({"correct": [1]}, "correct: expected float | null, found array"),
        ({"signature": 7}, "signature: expected str | null, found int"),
    ],
)
def test_an_invalid_score_is_an_error_on_access(fields: dict[str, Any], message: str) -> None:
    row = decoded({"response": "x", **fields})
    with pytest.raises(RowError, match=message):
        _ = row.score, row.signature
    assert b'"reward":0.5' in encoded(json.dumps({"response": "x", **fields}).encode())


PLAIN = st.dictionaries(
    st.sampled_from(["note", "x", "question", "id", "group", *SCORE_FIELDS]),
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    max_size=6,
)


@given(PLAIN)
def test_every_field_is_written_once_and_other_fields_keep_their_values(
    fields: dict[str, Any],
) -> None:
    row = {"response": "x", **fields}
    if isinstance(decode_line(json.dumps(row).encode(), DECODER), rr.RolloutError):
        return
    pairs = json.loads(encoded(json.dumps(row).encode()), object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names))
    written = dict(pairs)
    assert dict(written["components"]) == dict(SCORE.components)
    for name, value in row.items():
        if name not in SCORE_FIELDS and value is not None:
            assert written[name] == value
    assert written["id"] == (row["id"] if row.get("id") is not None else "7")


def test_a_row_without_score_fields_keeps_its_bytes() -> None:
    line = b'{ "response":"x",  "f": 1.50, "u": "\\u00e9", "id":"a", "group" : 1e0}\r\n'
    assert encoded(line.replace(b"1e0", b'"g"')).startswith(line[:-12])


def test_an_error_record_has_the_id_of_its_line() -> None:
    error = DataError("missing", "answers")
    assert error_record(b'{"id": 3, "response": "x"}', 9, error).id == "3"
    assert error_record(b'{"id": "a", "x": NaN}', 9, error).id == "a"
    assert error_record(b'{"id": "a", ', 9, error).id == "9"
    record = msgspec.json.decode(msgspec.json.encode(error_record(b"\xff", 9, error)))
    assert record["error"] == {"type": "DataError", "message": "missing", "path": "answers"}
    assert record["row"] == "\ufffd"


def test_totals_of_parts_are_the_totals_of_the_whole() -> None:
    decided = rr.Score(None, details={"decision": "undecided", "decided_by": "judge"})
    scores = [SCORE, decided, rr.Score(1.0, {"a": 0.0}, None, {"decision": "right"})]
    whole, merged = Totals(), Totals()
    for score in scores:
        whole.add(score, truncated=score.value is None)
        part = Totals()
        part.add(score, truncated=score.value is None)
        merged.merge(part)
    whole.add_error(RowError("x"))
    merged.add_error(RowError("x"))
    assert whole == merged
    assert whole.means() == {"reward": 0.75, "correct": 1.0, "a": 0.5}
    assert whole.decisions == {"judge": 1, "right": 1}
    lines = list(summary(whole, 1.0, ""))
    assert "answers: 1 right · 1 decided by the judge" in lines
    assert (whole.rows, whole.errors, whole.not_scored, whole.truncated) == (3, 1, 1, 1)

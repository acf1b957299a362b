"""Random rows: decoding, encoding, columns, and the JSON and Parquet forms of a scored row."""

from __future__ import annotations

import json

import msgspec
from fuzz_checks import check_finite, outcome, same_twice, unchanged
from fuzz_rows import lines, python_values, rows
from fuzz_texts import texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.errors import RolloutError
from rag_rewards.files.parquet_columns import column_fault, scored_columns
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import decode_line, decode_or_error, decode_row, is_object, line_id, line_key
from rag_rewards.rows.column_map import PRESETS, ColumnMap, read_columns
from rag_rewards.rows.columns import label_fields, rollout_from_columns
from rag_rewards.rows.decoding import is_cut
from rag_rewards.rows.scored import SCORE_FIELDS, ScoredRow

SCORED = msgspec.json.Decoder(ScoredRow)
_DERIVED = ("gold", "labels", "supporting_labels", "supported_gold", "gold_text", "parsed", "key")


def read(rollout):
    """Return all values that are derived from a rollout."""
    return [same_twice(lambda name=name: getattr(rollout, name)) for name in _DERIVED]


@given(lines())
@budget(60)
def test_a_line(line):
    rollout = same_twice(lambda: decode_line(line, SCORED))
    line_id(line), line_key(line), is_object(line), is_cut(line)
    if isinstance(rollout, Rollout):
        read(rollout)
        assert rollout.id is None or line_id(line) == str(rollout.id)
        json.loads(line)  # Python must read what is written to the output
    else:
        assert isinstance(rollout, (RolloutError, str))
    outcome(lambda: decode_row(line))
    outcome(lambda: read_columns(line, ["answers", "documents.0.text", "a.b", ""]))


@given(st.one_of(rows, st.dictionaries(texts, python_values, max_size=4), python_values))
@budget(60)
def test_a_mapping(row):
    with unchanged(row):
        rollout = same_twice(lambda: decode_row(row))
        if isinstance(rollout, Rollout):
            read(rollout)
    assert isinstance(rollout, (Rollout, str))


@given(lines())
@budget(40)
def test_the_columns_of_a_scored_row(line):
    row = decode_line(line, SCORED)
    if isinstance(row, RolloutError) or column_fault(line, SCORE_FIELDS) is not None:
        return
    scored = ScoredRow.of(row, Score(0.5, {"a": 1.0, "b": None}), "signature")
    data = msgspec.json.decode(msgspec.json.encode(scored))
    check_finite(data)
    with unchanged(data):
        for nested in (False, True):
            scored_columns(data, nested)


@given(python_values, st.dictionaries(st.sampled_from(list("abc")), python_values), rows)
@budget(60)
def test_the_columns_and_labels_of_a_trainer(label, others, row):
    with unchanged(label, others, row):
        fields = outcome(lambda: label_fields(label))
        if isinstance(fields, dict):
            rollout_from_columns(fields, response="<answer>Paris</answer>")
        results = [
            rollout_from_columns({**row, **others}, response=row.get("response")),
            rollout_from_columns({**others, "answers": label}, response="a", prompt=label),
        ]
    assert all(isinstance(result, (Rollout, RolloutError)) for result in results)


@given(rows, st.sampled_from([*PRESETS, "response=completion", "answers=a.b,question=q"]))
@budget(40)
def test_renamed_columns(row, name):
    columns = ColumnMap.of(name)
    with unchanged(row):
        renamed = outcome(lambda: columns.rename(row))
        if isinstance(renamed, dict):
            decode_or_error(renamed)

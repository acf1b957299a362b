"""Rows: JSON objects of a file or a trainer.

decoding.py   decoding of JSON rows to rollouts, and the reasons for rows that cannot be decoded
json_text.py  checks of the text of a row
scored.py     `ScoredRow`, a rollout with the fields of a score
chunks.py     chunks of lines, before and after scoring
encoding.py   scored rows and error records as JSON lines
parquet.py    rows as Parquet columns
nested_columns.py  columns of a row by name, also of nested fields
columns.py    rollouts from the columns and labels of a trainer
"""

from rag_rewards.rows.chunks import Chunk, ScoredChunk, Totals
from rag_rewards.rows.decoding import (
    NOT_JSON,
    Line,
    decode_line,
    decode_or_error,
    decode_row,
    is_object,
    line_id,
    line_key,
    row_error,
)
from rag_rewards.rows.encoding import ErrorRecord, RowEncoder, error_record
from rag_rewards.rows.scored import SCORE_FIELDS, ScoredRow, score_entries

__all__ = [
    "NOT_JSON",
    "SCORE_FIELDS",
    "Chunk",
    "ErrorRecord",
    "Line",
    "RowEncoder",
    "ScoredChunk",
    "ScoredRow",
    "Totals",
    "decode_line",
    "decode_or_error",
    "decode_row",
    "error_record",
    "is_object",
    "line_id",
    "line_key",
    "row_error",
    "score_entries",
]

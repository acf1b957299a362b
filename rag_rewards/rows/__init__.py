"""Rows: JSON objects of a file or a trainer, as rollouts, and scored rows as JSON.

decoding.py   JSON to rollouts, and the reason when a row does not decode
scored.py     `ScoredRow`, a rollout with its score
chunks.py     chunks of lines, before and after they are scored
encoding.py   scored rows and error records as JSON lines
columns.py    the columns and labels of a trainer's data set as rollouts
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
from rag_rewards.rows.scored import SCORE_FIELDS, ScoredRow

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
]

"""Rows: JSON objects of a file or a trainer.

decoding.py    decoding of JSON rows, and the reasons for rows that cannot be decoded
columns.py     rollouts from the columns and labels of a trainer
column_map.py  columns of other schemas as fields of a row, and columns inside columns
scored.py      `ScoredRow`, a rollout with the fields of a score
chunks.py      chunks of lines, before and after scoring, and their totals
encoding.py    scored rows and error records as JSON lines
line_groups.py groups of the lines of a file
decisions.py   counts of right, wrong and undecided answers
findings.py    what is wrong with rows for a training, by their totals
"""

from rag_rewards.rows.chunks import Chunk as Chunk
from rag_rewards.rows.chunks import ErrorRecord as ErrorRecord
from rag_rewards.rows.chunks import ScoredChunk as ScoredChunk
from rag_rewards.rows.chunks import Totals as Totals
from rag_rewards.rows.decoding import NOT_JSON as NOT_JSON
from rag_rewards.rows.decoding import Line as Line
from rag_rewards.rows.decoding import decode_line as decode_line
from rag_rewards.rows.decoding import decode_or_error as decode_or_error
from rag_rewards.rows.decoding import decode_row as decode_row
from rag_rewards.rows.decoding import is_object as is_object
from rag_rewards.rows.decoding import line_id as line_id
from rag_rewards.rows.decoding import line_key as line_key
from rag_rewards.rows.decoding import row_error as row_error
from rag_rewards.rows.encoding import RowEncoder as RowEncoder
from rag_rewards.rows.encoding import error_record as error_record
from rag_rewards.rows.findings import Finding as Finding
from rag_rewards.rows.findings import findings_of as findings_of
from rag_rewards.rows.scored import SCORE_FIELDS as SCORE_FIELDS
from rag_rewards.rows.scored import QuestionRow as QuestionRow
from rag_rewards.rows.scored import ScoredRow as ScoredRow

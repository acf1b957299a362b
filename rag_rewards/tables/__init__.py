"""Tables: rollouts as Python users hold them, and scores as new columns of the same kind.

score.py    `score`, which scores a table
kinds.py    the kinds of data
table.py    `Table`, what every kind of table provides
rows.py     lists of rows, and of rollouts
frames.py   data frames of pandas and polars, and Arrow tables
dataset.py  `datasets.Dataset`
fields.py   rollouts from the columns of a table
"""

from rag_rewards.tables.score import score

__all__ = ["score"]

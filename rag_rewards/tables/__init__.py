"""Tables: rollouts as Python users hold them, and scores as new columns of the same kind.

score.py     `score`, which scores a table
rollouts.py  the kinds of data, and their rows as rollouts
table.py     `Table`, what every kind of table provides, and lists of rows
frames.py    data frames of pandas and polars, Arrow tables, and `datasets.Dataset`
"""

from rag_rewards.tables.score import score

__all__ = ["score"]

"""Metrics of a data set: values with the counts behind them and bootstrap intervals.

    metric_of("f1(normalizer=triviaqa)")        # or: F1(normalizer="triviaqa")

Each topic has its module (`answers`, `truth`, `documents`, `search`, `trust_score`,
`scored_values`), whose plain functions are the definitions. The other modules use metrics only
through the protocol in `metric`.
"""

from rag_rewards.public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)

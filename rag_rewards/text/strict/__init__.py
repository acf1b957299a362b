"""Strict matching: whether a text asserts a gold answer, instead of mentioning it.

`matcher` combines the parts: `own_text` removes what the model does not state itself; `gold_words`,
`mentions` and `longer_names` find the mentions of the gold answer; `assertions` and the modules it
uses read the words around a mention; `rivals` finds other answers before it.
"""

from rag_rewards.text.strict.matcher import StrictText, strict_contains
from rag_rewards.text.strict.mentions import Kind

__all__ = ["Kind", "StrictText", "strict_contains"]

"""TF-IDF cosines of a text to a few references, as in scikit-learn with its default settings."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

_WORD = re.compile(r"\b\w\w+\b")


def counts(text: str) -> Counter[str]:
    """Return the number of occurrences of each token: two or more word characters.

    >>> counts("Paris, a paris")
    Counter({'paris': 2})
    """
    return Counter(_WORD.findall(text.lower()))


def cosines(text: Mapping[str, int], references: Sequence[Mapping[str, int]]) -> list[float]:
    """Return the cosine of a text to each reference in their own TF-IDF space.

    The space is fitted on the text and the references. The weight of a token is its count times
    ln((1 + N)/(1 + df)) + 1, where N is the number of texts and df is the number of texts with this
    token. A text without a token has the cosine 0. Range 0 to 1.

    >>> gold = [counts("paris capital"), counts("lyon river")]
    >>> [round(c, 6) for c in cosines(counts("paris capital france"), gold)]
    [0.732359, 0.0]
    """
    total = len(references) + 1
    document_frequency = Counter(token for each in (text, *references) for token in each)
    idf = {token: math.log((1 + total) / (1 + df)) + 1 for token, df in document_frequency.items()}
    norm = _norm(text, idf)
    return [_cosine(text, reference, idf, norm) for reference in references]


def _cosine(
    text: Mapping[str, int], reference: Mapping[str, int], idf: Mapping[str, float], norm: float
) -> float:
    small, large = sorted((text, reference), key=len)
    product = math.fsum(
        count * large[token] * idf[token] ** 2 for token, count in small.items() if token in large
    )
    return min(1.0, product / (norm * _norm(reference, idf))) if product else 0.0


def _norm(text: Mapping[str, int], idf: Mapping[str, float]) -> float:
    return math.sqrt(math.fsum((count * idf[token]) ** 2 for token, count in text.items()))

"""BM25: the relevance of texts to a query.

No dependency of the core contains it, and a package for an index of many documents is larger than
these functions for the few documents of one rollout.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest

from rag_rewards.text.lengths import auto_words

_TERM = re.compile(r"\w+")


def terms(text: str) -> list[str]:
    """Return the words of a text without case; a character of a script without spaces is a word.

    >>> terms("Paris, paris!"), terms("法国 Ok")
    (['paris', 'paris'], ['法', '国', 'ok'])
    """
    if not text.isascii():
        text = " ".join(auto_words(text))
    return _TERM.findall(text.casefold())


class Index:
    """The BM25 scores of many texts, for many queries.

    The score of a text is Σ_t w_t · f·(k1 + 1)/(f + k1·(1 − b + b·l/l̄)). The sum is over the
    different terms t of the query, and w_t = ln(1 + (N − n_t + ½)/(n_t + ½)). N is the number of
    texts, n_t the number of texts with t, f the number of occurrences of t in the text, l its
    length in terms and l̄ the mean length. Range from 0. The time of a query is linear in the number
    of texts that contain one of its terms. Source: Robertson and Zaragoza 2009, with the
    logarithm of Lucene, which is never negative.

    >>> Index(["paris", "rome is old", "oslo"]).best("rome", 2)
    [1]
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        counts = [Counter(terms(text)) for text in texts]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / len(texts) if any(lengths) else 1.0
        self._texts = len(texts)
        self._parts: dict[str, list[tuple[int, float]]] = {}
        for i, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = k1 * (1 - b + b * length / mean)
            for term, f in count.items():
                self._parts.setdefault(term, []).append((i, f * (k1 + 1) / (f + norm)))

    def scores(self, query: str) -> dict[int, float]:
        """Return the score of each text that contains a term of the query, by position."""
        scores: dict[int, list[float]] = {}
        for term in dict.fromkeys(terms(query)):
            parts = self._parts.get(term, [])
            weight = math.log(1 + (self._texts - len(parts) + 0.5) / (len(parts) + 0.5))
            for i, part in parts:
                scores.setdefault(i, []).append(weight * part)
        return {i: math.fsum(values) for i, values in scores.items()}

    def best(self, query: str, count: int) -> list[int]:
        """Return the positions of the best texts that contain a term of the query, best first."""
        scores = self.scores(query)
        return nsmallest(count, scores, key=lambda i: (-scores[i], i))


def best_matches(query: str, texts: Sequence[str], count: int) -> list[str]:
    """Return the texts with the highest BM25 scores, best first; equal ones keep their order.

    >>> best_matches("rome", ["paris", "rome is old", "oslo"], 2)
    ['rome is old', 'paris']
    """
    if len(texts) <= 1:
        return list(texts)
    scores = Index(texts).scores(query)
    order = sorted(range(len(texts)), key=lambda i: -scores.get(i, 0.0))
    return [texts[i] for i in order[:count]]

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
    text = text.lower()
    words = text.split()
    if "".join(words).isalnum():  # a word boundary is then white space
        return Counter([word for word in words if len(word) > 1])
    return Counter(_WORD.findall(text))


class References:
    """The references of a TF-IDF space, to which texts are compared one by one.

    The space of a text is fitted on the text and the references. The weight of a token is its count
    times ln((1 + N)/(1 + df)) + 1, where N is the number of texts and df is the number of texts
    with this token.

    All references with k of the same tokens share a weight, so that the norms and the products are
    sums of integers by k, times the weights. Only the tokens that a text shares with a reference
    are visited, and the result does not depend on their order.
    """

    def __init__(self, references: Sequence[Mapping[str, int]]) -> None:
        frequency = Counter(token for each in references for token in each)
        self._size = len(references)
        # For each token: the number of references with it, and their positions with their counts.
        self._tokens: dict[str, tuple[int, list[tuple[int, int]]]] = {}
        self._squares = [[0] * (self._size + 1) for _ in references]
        for i, reference in enumerate(references):
            for token, count in reference.items():
                k = frequency[token]
                self._tokens.setdefault(token, (k, []))[1].append((i, count))
                self._squares[i][k] += count * count
        n = self._size + 1
        # The squared weight of a token in df of the texts.
        self._weights = [(math.log((1 + n) / (1 + df)) + 1) ** 2 for df in range(n + 1)]

    def cosines(self, text: Mapping[str, int]) -> list[float]:
        """Return the cosine of a text to each reference, 0 to 1; 0 without a common token.

        >>> gold = References([counts("paris capital"), counts("lyon river")])
        >>> [round(c, 6) for c in gold.cosines(counts("paris capital france"))]
        [0.732359, 0.0]
        """
        size, weights = self._size, self._weights
        own = [0] * (size + 1)  # squared counts in the text of the common tokens, by k
        common = [[0] * (size + 1) for _ in range(size)]  # the same in each reference
        products = [[0] * (size + 1) for _ in range(size)]
        for token in self._tokens.keys() & text.keys():
            k, places = self._tokens[token]
            count = text[token]
            own[k] += count * count
            for i, other in places:
                common[i][k] += other * other
                products[i][k] += count * other
        alone = sum([count * count for count in text.values()]) - sum(own)
        norm = alone * weights[1] + math.fsum([own[k] * weights[k + 1] for k in range(1, size + 1)])
        cosines = []
        for total, shared, product in zip(self._squares, common, products, strict=True):
            dot = squares = 0.0
            for k in range(1, size + 1):
                dot += product[k] * weights[k + 1]
                squares += (total[k] - shared[k]) * weights[k] + shared[k] * weights[k + 1]
            cosines.append(min(1.0, dot / math.sqrt(norm * squares)) if dot else 0.0)
        return cosines

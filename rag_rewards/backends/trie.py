"""Which tokens a group of sequences shares: the plan by which a model runs each of them once.

The contexts of a group are one prompt with and without some document. They begin alike, so that a
trie over them has few, long edges: its tokens are run once, its branches continue from a copy of
the cache, and every response is served where its context ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag_rewards.evidence.protocols import ScoreRequest, TokenIds


@dataclass(frozen=True)
class Node:
    """Tokens that follow the parent's, the contexts that end behind them, and what goes on."""

    tokens: TokenIds
    ends: tuple[int, ...] = ()
    children: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Serving:
    """The distinct responses that follow one context; `of` maps each to the pairs it answers.

    `shared` is the beginning that all of them have in common, run once for all.
    """

    responses: tuple[TokenIds, ...]
    of: tuple[tuple[tuple[int, int], ...], ...] = field(repr=False)

    @property
    def shared(self) -> int:
        """Tokens at the beginning of every response, less those that need no run: the last."""
        return common_prefix([response[:-1] for response in self.responses])


def common_prefix(sequences: Sequence[TokenIds]) -> int:
    """Length of the longest common prefix of all sequences.

    >>> common_prefix([(1, 2, 3), (1, 2, 4)]), common_prefix([(1, 2)])
    (2, 2)
    """
    if not sequences:
        return 0
    least, greatest = min(sequences), max(sequences)
    if least == greatest:
        return len(least)
    # Of sorted sequences the first and the last differ earliest; halving keeps the work in C.
    low, high = 0, min(len(least), len(greatest))
    while low < high:
        middle = (low + high + 1) // 2
        if least[:middle] == greatest[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def build(contexts: Sequence[TokenIds], wanted: Sequence[int]) -> Node:
    """The trie of these contexts; `wanted` are the positions that anything is asked of."""
    return _node([(contexts[i], i) for i in sorted(set(wanted))], 0)


def _node(sequences: list[tuple[TokenIds, int]], start: int) -> Node:
    """The node behind `start` tokens that all sequences share."""
    until = start + common_prefix([tokens[start:] for tokens, _ in sequences])
    tokens = sequences[0][0][start:until]
    ends = tuple(i for sequence, i in sequences if len(sequence) == until)
    branches: dict[int, list[tuple[TokenIds, int]]] = {}
    for sequence, i in sequences:
        if len(sequence) > until:
            branches.setdefault(sequence[until], []).append((sequence, i))
    # The largest branch last: it takes the cache over, the others continue from copies.
    ordered = sorted(branches.values(), key=len)
    return Node(tokens, ends, tuple(_node(branch, until) for branch in ordered))


def servings(request: ScoreRequest) -> dict[int, Serving]:
    """What follows each context that anything is asked of: its responses, equal ones once."""
    asked: dict[int, dict[TokenIds, list[tuple[int, int]]]] = {}
    for context, response in request.wanted():
        same = asked.setdefault(context, {})
        same.setdefault(request.responses[response], []).append((context, response))
    return {
        context: Serving(tuple(same), tuple(tuple(pairs) for pairs in same.values()))
        for context, same in asked.items()
    }


def forward_tokens(request: ScoreRequest) -> int:
    """Tokens that the plan runs a model on.

    With C tokens of the full context, e_i the end of the document left out of context i, and
    responses of T_g tokens: at most C + Σ_i (C − e_i) + (1 + n)·Σ_g (T_g − 1).
    """
    serving = servings(request)
    total = sum(len(node.tokens) for node in walk(build(request.contexts, list(serving))))
    for served in serving.values():
        rest = (max(len(response) - 1, 0) for response in served.responses)
        total += sum(rest) - served.shared * (len(served.responses) - 1)
    return total


def naive_tokens(request: ScoreRequest) -> int:
    """Tokens of all pairs, each run by itself: what scoring without any sharing costs."""
    lengths = [(len(request.contexts[c]), len(request.responses[r])) for c, r in request.wanted()]
    return sum(context + max(response - 1, 0) for context, response in lengths)


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for child in node.children:
        yield from walk(child)

"""The tokens that the sequences of a request share, so that a model runs each of them once.

The contexts of a group are one prompt with and without a document. They have a long common prefix,
so their trie has few, long edges. The model runs the tokens of each edge once. A branch continues
from a copy of the cache, and the responses of a context are scored where the context ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rag_rewards.evidence.protocols import ScoreRequest, TokenIds


@dataclass(frozen=True)
class Node:
    """A node of the trie: its tokens, the contexts that end after them, and its children.

    `contexts` are positions in the request.
    """

    tokens: TokenIds
    contexts: tuple[int, ...] = ()
    children: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Continuations:
    """The distinct responses to one context; `pairs` has the pairs that each of them answers."""

    responses: tuple[TokenIds, ...]
    pairs: tuple[tuple[tuple[int, int], ...], ...] = field(repr=False)

    @property
    def shared(self) -> int:
        """Number of tokens that all responses begin with. The last token of each needs no run."""
        return common_prefix([response[:-1] for response in self.responses])


def common_prefix(sequences: Sequence[TokenIds]) -> int:
    """Return the length of the longest common prefix of all sequences.

    >>> common_prefix([(1, 2, 3), (1, 2, 4)]), common_prefix([(1, 2)])
    (2, 2)
    """
    if not sequences:
        return 0
    least, greatest = min(sequences), max(sequences)
    if least == greatest:
        return len(least)
    # The first and the last sorted sequence differ earliest. Bisection compares slices in C.
    low, high = 0, min(len(least), len(greatest))
    while low < high:
        middle = (low + high + 1) // 2
        if least[:middle] == greatest[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def build_trie(contexts: Sequence[TokenIds], positions: Sequence[int]) -> Node:
    """Return the trie of the contexts at these positions.

    The time is linear in their total length, and the depth of the trie is not limited.
    """
    if not positions:
        return Node(())
    order = sorted(set(positions), key=contexts.__getitem__)
    first = contexts[order[0]]
    path = [_Open(first, len(first), [order[0]])]  # the nodes from the root to the last context
    for before, position in pairwise(order):
        tokens = contexts[position]
        shared = common_prefix([contexts[before], tokens])
        while path[-1].end > shared:
            node = path.pop()
            if not path or path[-1].end < shared:
                path.append(_Open(tokens, shared))
            path[-1].add(node)
        if len(tokens) == shared:
            path[-1].contexts.append(position)
        else:
            path.append(_Open(tokens, len(tokens), [position]))
    while len(path) > 1:
        node = path.pop()
        path[-1].add(node)
    return path[0].close(0)


@dataclass
class _Open:
    """A node whose children are not complete yet.

    context   tokens of a context through the node
    end       number of tokens to the end of the node
    contexts  positions of the contexts that end here
    children  children, each with the number of contexts below it
    """

    context: TokenIds
    end: int
    contexts: list[int] = field(default_factory=list)
    children: list[tuple[int, Node]] = field(default_factory=list)

    def add(self, child: _Open) -> None:
        self.children.append((child.count, child.close(self.end)))

    @property
    def count(self) -> int:
        return len(self.contexts) + sum(count for count, _ in self.children)

    def close(self, start: int) -> Node:
        # The last branch uses the cache itself and the others use copies: the largest is the last.
        ordered = sorted(self.children, key=lambda child: child[0])
        children = tuple(node for _, node in ordered)
        return Node(self.context[start : self.end], tuple(self.contexts), children)


def continuations(request: ScoreRequest) -> dict[int, Continuations]:
    """Return the distinct responses of each context of a request, by the context's position."""
    responses_of: dict[int, dict[TokenIds, list[tuple[int, int]]]] = {}
    for context, response in request.wanted():
        equal = responses_of.setdefault(context, {})
        equal.setdefault(request.responses[response], []).append((context, response))
    return {
        context: Continuations(tuple(equal), tuple(tuple(pairs) for pairs in equal.values()))
        for context, equal in responses_of.items()
    }


def forward_tokens(request: ScoreRequest) -> int:
    """Return the number of tokens that the model runs on when shared tokens run once.

    With C tokens of the full context, e_i the end of the document that context i leaves out, and
    responses of T_g tokens: at most C + Σ_i (C − e_i) + (1 + n)·Σ_g (T_g − 1).
    """
    of_contexts = continuations(request)
    trie = build_trie(request.contexts, list(of_contexts))
    total = sum(len(node.tokens) for node in walk(trie))
    for of_context in of_contexts.values():
        rest = (max(len(response) - 1, 0) for response in of_context.responses)
        total += sum(rest) - of_context.shared * (len(of_context.responses) - 1)
    return total


def naive_tokens(request: ScoreRequest) -> int:
    """Return the number of tokens that the model runs on when each pair is scored separately."""
    lengths = [(len(request.contexts[c]), len(request.responses[r])) for c, r in request.wanted()]
    return sum(context + max(response - 1, 0) for context, response in lengths)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))

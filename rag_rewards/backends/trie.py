"""The tokens that the sequences of a request share, so that a model runs each of them once.

The contexts of a group are one prompt with and without a document. They have a long common prefix,
so their trie has few, long edges. The model runs the tokens of each edge once. A branch continues
from a copy of the cache, and the responses of a context are scored where the context ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
    """Return the trie of the contexts at these positions."""
    return _node([(contexts[i], i) for i in sorted(set(positions))], 0)


def _node(sequences: list[tuple[TokenIds, int]], start: int) -> Node:
    """Return the node after `start` tokens that all sequences share."""
    until = start + common_prefix([tokens[start:] for tokens, _ in sequences])
    tokens = sequences[0][0][start:until]
    ends = tuple(i for sequence, i in sequences if len(sequence) == until)
    branches: dict[int, list[tuple[TokenIds, int]]] = {}
    for sequence, i in sequences:
        if len(sequence) > until:
            branches.setdefault(sequence[until], []).append((sequence, i))
    # The last branch uses the cache itself and the others use copies: the largest is the last.
    ordered = sorted(branches.values(), key=len)
    return Node(tokens, ends, tuple(_node(branch, until) for branch in ordered))


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
    yield node
    for child in node.children:
        yield from walk(child)

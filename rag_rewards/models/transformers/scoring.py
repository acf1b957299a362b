"""Log-probabilities of groups: each pair separately, or along the trie of its contexts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, TypeAlias

from rag_rewards.evidence.protocols import ScoreRequest, TokenIds
from rag_rewards.models.transformers.forward import (
    ModelForward,
    Values,
    copy_cache,
    repeat_cache,
)
from rag_rewards.models.transformers.modules import import_torch
from rag_rewards.models.transformers.tree import score_trees
from rag_rewards.models.trie import Continuations, Node, build_trie, continuations

Pairs: TypeAlias = "tuple[tuple[int, int], ...]"
"""The (context, response) pairs that have the same tokens."""


@dataclass(frozen=True)
class GroupScoring:
    """The methods of scoring a group (see `methods`), with their sizes in memory.

    forward       the model
    token_budget  maximum number of tokens in the cache of a batch, including contexts
    prefill       number of tokens of a context that run at a time
    rows          number of rows of logits in memory at a time
    """

    forward: ModelForward
    token_budget: int
    prefill: int
    rows: int

    def score(self, method: str, requests: Sequence[ScoreRequest]) -> list[Values]:
        """Return the log-probabilities of requests by the method tree, shared or plain.

        Raises NotInTreeError if the method tree cannot compute the attention of these requests.
        """
        if method == "tree":
            return score_trees(self.forward, requests, self.prefill, self.rows)
        of_group = self.shared if method == "shared" else self.plain
        return [of_group(request) for request in requests]

    def plain(self, request: ScoreRequest) -> Values:
        """Score each distinct pair separately."""
        values: Values = {}
        for context, of_context in continuations(request).items():
            for response, pairs in zip(of_context.responses, of_context.pairs, strict=True):
                logprobs = self.forward.plain_logprobs(
                    request.contexts[context], response, self.rows
                )
                values.update(dict.fromkeys(pairs, logprobs))
        return values

    def shared(self, request: ScoreRequest) -> Values:
        """Score along the trie of the contexts, so that shared tokens run once."""
        from transformers import DynamicCache

        of_contexts = continuations(request)
        root = build_trie(request.contexts, list(of_contexts))
        cache = DynamicCache(config=self.forward.causal.config.get_text_config())
        targets = TargetRows(self.forward, self.rows)
        pending = [(root, cache, True)]  # the nodes to run, the next one last
        while pending:
            node, cache, is_last = pending.pop()
            # Only the last child may change the cache of its parent.
            cache = cache if is_last else copy_cache(cache, 1)
            self._visit(node, cache, of_contexts, targets)
            last = len(node.children) - 1
            pending += [
                (child, cache, number == last)
                for number, child in reversed(list(enumerate(node.children)))
            ]
        return targets.values()

    def _visit(
        self,
        node: Node,
        cache: Any,
        of_contexts: Mapping[int, Continuations],
        targets: TargetRows,
    ) -> None:
        """Run the tokens of a node into the cache, and score the contexts that end there."""
        if not node.children and len(node.contexts) == 1:
            # Nothing else continues from here: the shared tokens of the responses run with it.
            of_context = of_contexts[node.contexts[0]]
            tokens = node.tokens + of_context.responses[0][: of_context.shared]
            if len(tokens) <= self.prefill:
                hidden = self.forward.run([tokens], cache)[0, -of_context.shared - 1 :]
                self._score_context(of_context, cache, hidden, targets, keep=False)
                return
        last_hidden = self._prefill(node.tokens, cache)
        for number, context in enumerate(node.contexts, start=1):
            keep = bool(node.children) or number < len(node.contexts)
            self._score_context(of_contexts[context], cache, last_hidden, targets, keep=keep)

    def _prefill(self, tokens: TokenIds, cache: Any) -> Any:
        """Run tokens into the cache, and return the last hidden state [1, H]."""
        hidden = None
        for start in range(0, len(tokens), self.prefill):
            hidden = self.forward.run([tokens[start : start + self.prefill]], cache)
        return None if hidden is None else hidden[0, -1:]

    def _score_context(
        self,
        of_context: Continuations,
        cache: Any,
        hidden: Any,
        targets: TargetRows,
        *,
        keep: bool,
    ) -> None:
        """Score the responses to one context.

        `hidden` [1, H] is the hidden state at the end of the context, or [1 + N, H] if the N tokens
        that all responses share are in the cache already. With `keep`, the cache is needed
        afterwards and must not change.
        """
        torch = import_torch()
        responses, shared = of_context.responses, of_context.shared
        if shared and len(hidden) == 1:
            cache = copy_cache(cache, 1) if keep else cache
            keep = False
            hidden = torch.cat([hidden, self.forward.run([responses[0][:shared]], cache)[0]])
        order = sorted(range(len(responses)), key=lambda i: -len(responses[i]))
        # Row t of the shared hidden states predicts token t of each response.
        targets.add(hidden, [(of_context.pairs[i], responses[i][: shared + 1], 0) for i in order])
        longer = [i for i in order if len(responses[i]) > shared + 1]
        batches = list(_batches(longer, responses, cache.get_seq_length(), self.token_budget))
        for number, batch in enumerate(batches, start=1):
            rest = [responses[i][shared:] for i in batch]
            is_last = number == len(batches) and not keep
            branch = repeat_cache(cache, len(batch), is_last)
            hidden = self.forward.run([tokens[:-1] for tokens in rest], branch)
            del branch
            # Row t of response b in the right-padded hidden states [B, T, H] predicts its t + 1.
            own = [hidden[b, : len(tokens) - 1] for b, tokens in enumerate(rest)]
            starts = accumulate(map(len, own), initial=0)
            targets.add(
                torch.cat(own),
                [
                    (of_context.pairs[i], tokens[1:], start)
                    for i, tokens, start in zip(batch, rest, starts, strict=False)
                ],
            )


@dataclass
class TargetRows:
    """Hidden states that predict tokens, whose logits are computed together.

    A context of a search agent has few tokens to predict. One projection to the vocabulary for many
    contexts reads the weights of the head once.

    forward  the model
    most     number of rows of logits in memory at a time
    """

    forward: ModelForward
    most: int
    _hidden: list[Any] = field(default_factory=list)
    _count: int = 0
    _targets: list[tuple[Pairs, TokenIds, int]] = field(default_factory=list)
    _values: Values = field(default_factory=dict)

    def add(self, hidden: Any, targets: Sequence[tuple[Pairs, TokenIds, int]]) -> None:
        """Add hidden states [R, H] and what they predict: pairs, their next tokens, the first row.

        The tokens of a pair continue those that were added for it before.
        """
        # A slice would keep all hidden states of its forward pass in memory.
        self._hidden.append(hidden.clone())
        self._targets += [(pairs, tokens, self._count + start) for pairs, tokens, start in targets]
        self._count += len(hidden)
        if self._count >= self.most:
            self._compute()

    def values(self) -> Values:
        """Return the log-probabilities of all pairs."""
        self._compute()
        return self._values

    def _compute(self) -> None:
        """Compute the log-probabilities of the collected rows."""
        if not self._hidden:
            return
        torch = import_torch()
        hidden = torch.cat(self._hidden)
        rows = [start + t for _, tokens, start in self._targets for t in range(len(tokens))]
        flat = [token for _, tokens, _ in self._targets for token in tokens]
        logprobs = iter(self.forward.logprobs(hidden, rows, flat, self.most))
        for pairs, tokens, _ in self._targets:
            new = array("f", islice(logprobs, len(tokens)))
            for pair in pairs:
                self._values[pair] = self._values.get(pair, array("f")) + new
        self._hidden, self._targets, self._count = [], [], 0


def _batches(
    positions: Sequence[int], responses: Sequence[TokenIds], context: int, budget: int
) -> Iterator[list[int]]:
    """Yield the positions of responses, longest first, in batches of at most `budget` tokens.

    The `context` tokens of each response count as well. The number of batches is minimal and their
    sizes are similar, because the largest batch determines the memory.
    """
    left = list(positions)
    while left:
        width = context + len(responses[left[0]])
        most = max(budget // width, 1)
        size = -(-len(left) // -(-len(left) // most))
        yield left[:size]
        left = left[size:]

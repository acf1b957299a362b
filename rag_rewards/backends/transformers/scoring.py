"""Log-probabilities of a group: each pair separately, or along the trie of its contexts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rag_rewards.backends.transformers.forward import (
    ModelForward,
    copy_cache,
    import_torch,
    repeat_cache,
)
from rag_rewards.backends.trie import Continuations, Node, build_trie, continuations
from rag_rewards.evidence.protocols import ScoreRequest, TokenIds

Values: TypeAlias = "dict[tuple[int, int], array[float]]"
"""Log-probabilities in nats by (context, response) pair."""


@dataclass(frozen=True)
class GroupScoring:
    """The two methods of scoring a group, with their sizes in memory.

    forward       the model
    token_budget  maximum number of tokens in the cache of a batch, including contexts
    prefill       number of tokens of a context that run at a time
    rows          number of rows of logits in memory at a time
    """

    forward: ModelForward
    token_budget: int
    prefill: int
    rows: int

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
        values: Values = {}
        pending = [(root, cache, True)]  # the nodes to run, the next one last
        while pending:
            node, cache, is_last = pending.pop()
            # Only the last child may change the cache of its parent.
            cache = cache if is_last else copy_cache(cache, 1)
            values.update(self._visit(node, cache, of_contexts))
            last = len(node.children) - 1
            pending += [
                (child, cache, number == last)
                for number, child in reversed(list(enumerate(node.children)))
            ]
        return values

    def _visit(self, node: Node, cache: Any, of_contexts: Mapping[int, Continuations]) -> Values:
        """Run the tokens of a node into the cache, and score the contexts that end there."""
        values: Values = {}
        if not node.children and len(node.contexts) == 1:
            # Nothing else continues from here: the shared tokens of the responses run with it.
            of_context = of_contexts[node.contexts[0]]
            tokens = node.tokens + of_context.responses[0][: of_context.shared]
            if len(tokens) <= self.prefill:
                hidden = self._run([tokens], cache)[0, -of_context.shared - 1 :]
                return self._score_context(of_context, cache, hidden, keep=False)
        last_hidden = self._prefill(node.tokens, cache)
        for number, context in enumerate(node.contexts, start=1):
            keep = bool(node.children) or number < len(node.contexts)
            values.update(self._score_context(of_contexts[context], cache, last_hidden, keep))
        return values

    def _prefill(self, tokens: TokenIds, cache: Any) -> Any:
        """Run tokens into the cache, and return the last hidden state [1, H]."""
        hidden = None
        for start in range(0, len(tokens), self.prefill):
            hidden = self._run([tokens[start : start + self.prefill]], cache)
        return None if hidden is None else hidden[0, -1:]

    def _score_context(
        self, of_context: Continuations, cache: Any, hidden: Any, keep: bool
    ) -> Values:
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
            hidden = torch.cat([hidden, self._run([responses[0][:shared]], cache)[0]])
        order = sorted(range(len(responses)), key=lambda i: -len(responses[i]))
        values = self._shared_rows(hidden, {i: responses[i][: shared + 1] for i in order})
        longer = [i for i in order if len(responses[i]) > shared + 1]
        batches = list(_batches(longer, responses, cache.get_seq_length(), self.token_budget))
        for number, batch in enumerate(batches, start=1):
            rest = [responses[i][shared:] for i in batch]
            is_last = number == len(batches) and not keep
            branch = repeat_cache(cache, len(batch), is_last)
            hidden = self._run([tokens[:-1] for tokens in rest], branch)
            del branch
            for i, logprobs in zip(batch, self._own_rows(hidden, rest), strict=True):
                values[i] = values[i] + logprobs
        return {pair: values[i] for i, pairs in enumerate(of_context.pairs) for pair in pairs}

    def _shared_rows(self, hidden: Any, targets: Mapping[int, TokenIds]) -> dict[int, array[float]]:
        """Score the targets of several responses: row t of hidden predicts token t of each."""
        flat = [token for tokens in targets.values() for token in tokens]
        rows = [t for tokens in targets.values() for t in range(len(tokens))]
        values = self._logprobs(hidden, rows, flat)
        return dict(zip(targets, _split(values, map(len, targets.values())), strict=True))

    def _own_rows(self, hidden: Any, responses: Sequence[TokenIds]) -> list[array[float]]:
        """Score right-padded responses: row t of response b in hidden [B, T, H] predicts t + 1."""
        lengths = [len(tokens) - 1 for tokens in responses]
        rows = import_torch().cat([hidden[b, :length] for b, length in enumerate(lengths)])
        flat = [token for tokens in responses for token in tokens[1:]]
        return _split(self._logprobs(rows, range(len(flat)), flat), lengths)

    def _logprobs(self, hidden: Any, rows: Sequence[int], targets: Sequence[int]) -> array[float]:
        torch = import_torch()
        tensor = torch.tensor(targets, dtype=torch.long, device=hidden.device)
        return self.forward.logprobs(hidden, rows, tensor, self.rows)

    def _run(self, tokens: Sequence[TokenIds], cache: Any) -> Any:
        return self.forward.run(tokens, cache)


def _split(values: array[float], lengths: Iterator[int] | Sequence[int]) -> list[array[float]]:
    """Split values into consecutive parts of these lengths."""
    parts, start = [], 0
    for length in lengths:
        parts.append(values[start : start + length])
        start += length
    return parts


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

"""The token sequences of a scoring request, for engines that score one sequence at a time.

A request contains (context, response) pairs. An engine receives each distinct sequence once, in an
order in which later sequences find their prefix in its cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest, TokenIds
from rag_rewards.models.selfcheck import checked_arrays

Pair = tuple[int, int]
"""Positions of a context and of a response in a request."""


@dataclass(frozen=True)
class TokenSequence:
    """A context with its response, and the (context, response) pairs that it answers."""

    context: TokenIds
    response: TokenIds
    pairs: tuple[Pair, ...]

    @property
    def tokens(self) -> TokenIds:
        """The tokens of the context, followed by those of the response."""
        return self.context + self.response


@dataclass(frozen=True)
class SequenceResult:
    """Log-probabilities of the response of a sequence, in nats, one per token.

    `computed` is the number of tokens that the model was run on to obtain them.
    """

    logprobs: Sequence[float]
    computed: int


def distinct_sequences(request: ScoreRequest) -> list[TokenSequence]:
    """Return the distinct sequences of a request, in the order of its pairs.

    Pairs with an empty response have no sequence: there is nothing to score.

    >>> request = ScoreRequest(((1,),), ((2,), (3,), (2,)))
    >>> [sequence.pairs for sequence in distinct_sequences(request)]
    [((0, 0), (0, 2)), ((0, 1),)]
    """
    pairs_of: dict[tuple[TokenIds, TokenIds], list[Pair]] = {}
    for pair in request.wanted():
        context, response = request.contexts[pair[0]], request.responses[pair[1]]
        if response:
            pairs_of.setdefault((context, response), []).append(pair)
    return [
        TokenSequence(context, response, tuple(pairs))
        for (context, response), pairs in pairs_of.items()
    ]


def waves(sequences: Sequence[TokenSequence]) -> Iterator[list[TokenSequence]]:
    """Yield sequences in parts, so that each part finds its shared prefixes in the engine's cache.

    The first part is the first sequence, because the contexts of all others begin like its
    context. The second part has one sequence for each further context. The third part has the
    rest. Empty parts are omitted.
    """
    first: dict[TokenIds, TokenSequence] = {}
    for sequence in sequences:
        first.setdefault(sequence.context, sequence)
    leading = list(first.values())
    rest = [sequence for sequence in sequences if sequence is not first[sequence.context]]
    yield from (wave for wave in (leading[:1], leading[1:], rest) if wave)


def count_tokens(request: ScoreRequest) -> int:
    """Return the number of tokens of all pairs, which is the cost of scoring each pair separately.

    Shared tokens are counted once for each pair.
    """
    contexts, responses = request.contexts, request.responses
    return sum(len(contexts[c]) + len(responses[r]) for c, r in request.wanted())


def check_request(request: ScoreRequest, max_length: int | None, source: str) -> None:
    """Raise BackendError for a request that the model cannot score, before anything is sent.

    `source` names the backend in the message.
    """
    for c, r in request.wanted():
        context, response = len(request.contexts[c]), len(request.responses[r])
        if not context and response:
            raise BackendError(
                f"{source}: context {c} is empty: the first token of a response has no "
                "probability without a token before it"
            )
        if max_length is not None and context + response > max_length:
            raise BackendError(
                f"{source}: context {c} and response {r} have {context} + {response} tokens, more "
                f"than the maximum of {max_length}"
            )


def score_answer(
    request: ScoreRequest,
    results: Sequence[tuple[TokenSequence, SequenceResult]],
    *,
    source: str,
    path: str,
    weight_version: str | int | None,
) -> ScoreAnswer:
    """Return the answer to a request from the results of its distinct sequences.

    `source` names the backend in messages, `path` is the method for `ScoreAnswer.path`. Raises
    BackendError for values that cannot be log-probabilities, as `checked_arrays` does.
    """
    pairs = request.wanted()
    lengths = {pair: len(request.responses[pair[1]]) for pair in pairs}
    values: dict[Pair, Sequence[float]] = {pair: () for pair in pairs if not lengths[pair]}
    for sequence, result in results:
        # checked_arrays copies, so equal pairs do not share one mutable array.
        values.update(dict.fromkeys(sequence.pairs, result.logprobs))
    computed = sum(result.computed for _, result in results)
    logprobs: dict[Pair, array[float]] = checked_arrays(values, lengths, source)
    return ScoreAnswer(
        logprobs, path, computed, max(count_tokens(request) - computed, 0), weight_version
    )

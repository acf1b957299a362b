"""A group of pairs, as what an engine is asked: every different sequence once, in a good order."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_rewards.backends.selfcheck import checked_arrays
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest, TokenIds

Pair = tuple[int, int]


@dataclass(frozen=True)
class Ask:
    """One sequence to score, and the (context, response) pairs that it answers."""

    context: TokenIds
    response: TokenIds
    pairs: tuple[Pair, ...]

    @property
    def tokens(self) -> TokenIds:
        return self.context + self.response


@dataclass(frozen=True)
class Scored:
    """The log-probabilities of a response, and how many tokens a model was run on for them."""

    values: Sequence[float]
    computed: int


def asks(request: ScoreRequest) -> list[Ask]:
    """The different sequences of a group, in the order of its pairs. Empty responses need none.

    >>> [ask.pairs for ask in asks(ScoreRequest(((1,),), ((2,), (3,), (2,))))]
    [((0, 0), (0, 2)), ((0, 1),)]
    """
    found: dict[tuple[TokenIds, TokenIds], list[Pair]] = {}
    for pair in request.wanted():
        context, response = request.contexts[pair[0]], request.responses[pair[1]]
        if response:
            found.setdefault((context, response), []).append(pair)
    return [Ask(context, response, tuple(pairs)) for (context, response), pairs in found.items()]


def waves(group: Sequence[Ask]) -> Iterator[list[Ask]]:
    """An order in which each sequence finds the prefix that it shares with earlier ones cached.

    The first sequence alone (the others begin as it does), then one for each further context,
    then the rest.
    """
    first: dict[TokenIds, Ask] = {}
    for ask in group:
        first.setdefault(ask.context, ask)
    leading = list(first.values())
    rest = [ask for ask in group if ask is not first[ask.context]]
    yield from (wave for wave in (leading[:1], leading[1:], rest) if wave)


def batches(group: Sequence[Ask], size: int) -> list[Sequence[Ask]]:
    """Parts of at most `size`."""
    return [group[start : start + size] for start in range(0, len(group), size)]


def tokens_of(request: ScoreRequest) -> int:
    """Tokens of all pairs, each by itself: what naive scoring runs a model on."""
    contexts, responses = request.contexts, request.responses
    return sum(len(contexts[c]) + len(responses[r]) for c, r in request.wanted())


def refuse(request: ScoreRequest, max_length: int | None, who: str) -> None:
    """Raise BackendError for a group that cannot be scored, before anything is sent."""
    for c, r in request.wanted():
        context, response = len(request.contexts[c]), len(request.responses[r])
        if not context and response:
            raise BackendError(
                f"{who}: context {c} is empty: the first token of a response has no probability "
                "without a token before it"
            )
        if max_length is not None and context + response > max_length:
            raise BackendError(
                f"{who}: context {c} and response {r} have {context} + {response} tokens, more "
                f"than the {max_length} that fit"
            )


def answer(
    request: ScoreRequest,
    scored: Sequence[tuple[Ask, Scored]],
    *,
    who: str,
    path: str,
    weight_version: str | int | None,
) -> ScoreAnswer:
    """The answer to a group, with the invariants of a call."""
    pairs = request.wanted()
    lengths = {pair: len(request.responses[pair[1]]) for pair in pairs}
    values: dict[Pair, Sequence[float]] = {pair: () for pair in pairs if not lengths[pair]}
    for ask, found in scored:
        # One array for equal pairs would be changed for both: checked_arrays makes copies.
        values.update(dict.fromkeys(ask.pairs, found.values))
    computed = sum(found.computed for _, found in scored)
    logprobs: dict[Pair, array[float]] = checked_arrays(values, lengths, who)
    return ScoreAnswer(
        logprobs, path, computed, max(tokens_of(request) - computed, 0), weight_version
    )

"""The trie of shared tokens, against a naive count."""

from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.trie import (
    build_trie,
    common_prefix,
    continuations,
    forward_tokens,
    naive_tokens,
    walk,
)

quick = budget(200)
IDS = st.lists(st.integers(0, 2), max_size=8).map(tuple)
CONTEXTS = st.lists(IDS.filter(bool), min_size=1, max_size=5).map(tuple)
REQUESTS = st.builds(ScoreRequest, CONTEXTS, st.lists(IDS, min_size=1, max_size=5).map(tuple))


@quick
@given(st.lists(IDS, min_size=1, max_size=4))
def test_common_prefix_against_a_naive_implementation(sequences):
    expected = 0
    while all(len(s) > expected for s in sequences) and len({s[expected] for s in sequences}) == 1:
        expected += 1
    assert common_prefix(sequences) == expected


@quick
@given(CONTEXTS)
def test_the_trie_contains_each_context_and_each_prefix_once(contexts):
    contexts_at = {}

    def down(node, before):
        here = before + node.tokens
        for end in node.contexts:
            contexts_at[end] = here
        assert len({child.tokens[0] for child in node.children}) == len(node.children)
        for child in node.children:
            down(child, here)

    root = build_trie(contexts, range(len(contexts)))
    down(root, ())
    assert contexts_at == dict(enumerate(contexts))
    prefixes = {context[:n] for context in contexts for n in range(1, len(context) + 1)}
    assert sum(len(node.tokens) for node in walk(root)) == len(prefixes)


@quick
@given(REQUESTS)
def test_each_pair_is_scored_once(request):
    served = [
        (pair, serving.responses[at])
        for serving in continuations(request).values()
        for at, pairs in enumerate(serving.pairs)
        for pair in pairs
    ]
    assert sorted(pair for pair, _ in served) == sorted(request.wanted())
    assert all(request.responses[pair[1]] == tokens for pair, tokens in served)


@quick
@given(REQUESTS)
def test_the_number_of_tokens_is_bounded(request):
    contexts = len({c[:n] for c in request.contexts for n in range(1, len(c) + 1)})
    distinct = set(request.responses)
    tails = sum(max(len(response) - 1, 0) for response in distinct)
    assert forward_tokens(request) <= contexts + len(request.contexts) * tails
    assert forward_tokens(request) <= naive_tokens(request)


def test_the_number_of_tokens_without_documents():
    full = tuple(range(100, 200))
    ends = [(10, 20), (40, 60)]
    contexts = (full, *(full[:start] + full[end:] for start, end in ends))
    responses = ((1, 2, 3, 4), (5, 6, 7), (8,), ())
    request = ScoreRequest(contexts, responses)
    assert forward_tokens(request) == 100 + (100 - 20) + (100 - 60) + 3 * (3 + 2)
    shared = ScoreRequest(contexts, ((1, 2, 3, 4), (1, 2, 9)))
    assert forward_tokens(shared) == 220 + 3 * (2 + 1)  # the beginning 1, 2 is run once


def test_only_requested_contexts_run():
    request = ScoreRequest(((1, 2, 3), (1, 9)), ((4, 5),), pairs=((0, 0),))
    assert forward_tokens(request) == 4

"""The runs and steps of requests, against the sequences by definition."""

from hypothesis import given
from hypothesis import strategies as st
from properties import budget
from test_trie import IDS, REQUESTS

from rag_rewards.models.runs import Plan, steps
from rag_rewards.models.trie import forward_tokens

quick = budget(200)


def attended(plan, size):
    """Return, for each row of a plan in order, the tokens that it attends to by position."""
    path, rows = [], []
    for step in steps(plan.runs, size):
        tokens, positions = step.tokens, step.positions
        assert 0 < len(tokens) <= size
        own = [
            [(run.position + j, run.tokens[j]) for j in range(i + 1)]
            for run in step.runs
            for i in range(len(run.tokens))
        ]
        for block in step.blocks:
            for row in range(block.rows.start, block.rows.stop):
                keys = range(block.keys.start, block.keys.stop)
                own[row] += [
                    (key, path[key]) if block.of_path else (positions[key], tokens[key])
                    for key in keys
                ]
        rows += own
        for span, position in step.path_rows:
            path[position:] = [None] * (position - len(path[:position])) + tokens[span]
    return rows


@quick
@given(st.lists(REQUESTS, min_size=1, max_size=3), st.integers(1, 40))
def test_each_target_is_predicted_from_its_own_sequence(requests, size):
    plan = Plan()
    spans = [plan.add(request) for request in requests]
    rows = attended(plan, size)
    assert len(rows) == sum(map(forward_tokens, requests))
    for request, of_request in zip(requests, spans, strict=True):
        assert of_request.keys() == set(request.wanted())
        for (context, response), span in of_request.items():
            tokens = request.responses[response]
            assert plan.targets[span] == list(tokens)
            for t, row in enumerate(plan.rows[span]):
                before = request.contexts[context] + tokens[:t]
                assert sorted(rows[row]) == list(enumerate(before))


@quick
@given(st.lists(st.tuples(IDS.filter(bool), st.integers(1, 5)), min_size=1, max_size=20))
def test_a_rollout_with_many_turns_runs_once(turns):
    """The contexts of a search agent continue each other, each with a response."""
    from rag_rewards.evidence.protocols import ScoreRequest

    contexts, context = [], ()
    for tokens, _ in turns:
        context += tokens
        contexts.append(context)
    request = ScoreRequest(tuple(contexts), ((7, 8, 9),))
    plan = Plan()
    plan.add(request)
    longest = max(plan.runs, key=lambda run: len(run.tokens))
    assert len(longest.tokens) >= len(context)
    assert len(plan.runs) <= len(contexts)

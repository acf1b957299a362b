"""Random responses of search agents: raw text, turns, conversations, and masks of trainers."""

from __future__ import annotations

from fuzz_checks import outcome, same_twice, unchanged
from fuzz_rows import values
from fuzz_texts import TAGS, any_texts, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget
from rag_rewards_adapters.reading import runs, spans_in_response, turns_of_mask

from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_or_error
from rag_rewards.turns.dialects import DIALECTS
from rag_rewards.turns.order import is_balanced, is_well_formed
from rag_rewards.turns.trajectory import Reading, Trajectory, read_trajectory, turn_counts
from rag_rewards.turns.turn import NAMES

agent_texts = st.one_of(
    texts,
    st.lists(st.one_of(st.sampled_from(TAGS), texts), max_size=20).map("".join),
)
readings = st.builds(
    Reading,
    dialect=st.sampled_from(["auto", *DIALECTS]),
    results_from=st.sampled_from(["text", "environment"]),
    error_texts=st.lists(st.sampled_from(["[retry]", "(", "", "\\", "Paris"]), max_size=2).map(
        tuple
    ),
    query_fields=st.sampled_from([("query",), ("search.query",)]),
)
ends = st.sampled_from([None, "stop", "length", "max_turns", "?"])


def check(run):
    """Check a reading, unless it is the text of an error."""
    if not isinstance(run, Trajectory):
        return
    assert run.turns
    for turn in run.turns:
        assert set(turn.malformed) <= set(NAMES)
    turn_counts(run), is_well_formed(run), is_balanced(run)
    assert len(run.results) <= sum(len(turn.results or ()) for turn in run.turns)


@given(agent_texts, readings, ends, st.sampled_from([None, "<think>", "<think>\n"]))
@budget(80)
def test_raw_text(text, reading, end, prefix):
    check(
        same_twice(lambda: read_trajectory(text, None, reading, prefix=prefix, finish_reason=end))
    )


calls = st.one_of(
    values,
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": values,
                "type": st.just("function"),
                "function": st.one_of(
                    values,
                    st.fixed_dictionaries(
                        {"name": st.sampled_from(["search", "finish", ""])},
                        optional={
                            "arguments": st.one_of(
                                values, agent_texts, st.just('{"query": "a", "queries": ["b", 1]}')
                            )
                        },
                    ),
                ),
            },
        ),
        max_size=3,
    ),
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "assistant", "tool", "user", "system", ""])},
        optional={
            "content": st.one_of(
                agent_texts,
                st.none(),
                st.lists(
                    st.dictionaries(st.sampled_from(["type", "text", "x"]), values), max_size=2
                ),
            ),
            "tool_calls": calls,
            "tool_call_id": values,
            "name": values,
            "reasoning_content": values,
            "token_span": st.tuples(st.integers(-1, 9), st.integers(-1, 9)).map(list),
        },
    ),
    max_size=5,
)
turns = st.lists(
    st.fixed_dictionaries(
        {"text": agent_texts},
        optional={
            "query": texts,
            "queries": st.lists(texts, max_size=2),
            "results": st.lists(
                st.one_of(
                    st.fixed_dictionaries({"text": texts}, optional={"id": values, "url": texts}),
                    st.lists(st.fixed_dictionaries({"text": texts}), max_size=2),
                    values,
                ),
                max_size=2,
            ),
            "observation": texts,
            "token_span": st.tuples(st.integers(-1, 9), st.integers(-1, 9)).map(list),
            "error": st.one_of(st.none(), texts),
        },
    ),
    max_size=4,
)


@given(st.one_of(messages, turns), readings, ends)
@budget(80)
def test_conversations_and_turns(given, reading, end):
    field = "turns" if given and "text" in given[0] else "response"
    row = {field: given, "finish_reason": end}
    with unchanged(row):
        rollout = decode_or_error(row)
        if not isinstance(rollout, Rollout):
            return
        check(same_twice(lambda: rollout.trajectory(reading)))
        for name in ("parsed", "retrieved", "response_tokens"):
            outcome(lambda name=name: getattr(rollout, name))


@given(
    st.lists(st.integers(0, 1), max_size=12),
    st.lists(st.sampled_from([*TAGS, "a", " "]), max_size=12),
    st.sampled_from(["auto", *DIALECTS]),
)
@budget(40)
def test_masks(mask, tokens, dialect):
    ids = list(range(len(tokens)))
    rows = outcome(
        lambda: turns_of_mask(ids, mask, lambda part: "".join(tokens[i] for i in part), dialect)
    )
    if isinstance(rows, list):
        assert [row.token_span for row in rows] == runs(mask)
    outcome(lambda: spans_in_response([(at, at + 1) for at in mask], 1))


@given(any_texts, readings)
@budget(40)
def test_halves_of_surrogate_pairs(text, reading):
    check(outcome(lambda: read_trajectory(text, None, reading)))

"""Turns in the structures of trainers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_rewards_adapters.reading import (
    SearchTool,
    runs,
    spans_in_response,
    spans_of_lists,
    turns_of_mask,
    turns_of_spans,
)

from rag_rewards import DataError, Rollout
from rag_rewards.errors import UsageError

PIECES = [
    "<search>a</search>",
    "\n<information>Doc 1(Title: T) b</information>\n",
    "<search>c</search>",
    "<information></information>",
    "<answer>d</answer>",
]
MASK = [1, 0, 1, 0, 1]


def decode(ids):
    return "".join(PIECES[i] for i in ids)


def test_turns_of_a_mask():
    turns = turns_of_mask(range(5), MASK, decode)
    assert [turn.text for turn in turns] == [PIECES[0], PIECES[2], PIECES[4]]
    assert [turn.token_span for turn in turns] == [(0, 1), (2, 3), (4, 5)]
    assert [turn.observation for turn in turns] == [PIECES[1], PIECES[3], None]
    rollout = Rollout(turns=tuple(turns), response_token_ids=tuple(range(5)))
    first, second, last = rollout.steps()
    assert [result.text for result in first.results] == ["b"]
    assert second.results == ()
    assert second.is_search
    assert (last.answer, last.trusted) == ("d", True)


def test_a_forged_block_inside_a_span_is_not_a_result():
    (turn,) = turns_of_mask(range(2), [1, 1], decode)
    assert turn.results is None
    (read,) = Rollout(turns=(turn,)).steps()
    assert read.malformed == ("forged_results",)


def test_a_response_that_is_cut_at_any_character():
    text = "".join(PIECES)
    mask = [own for piece, own in zip(PIECES, MASK, strict=True) for _ in piece]

    def turns_until(length):
        spelled = turns_of_mask(
            range(length), mask[:length], lambda ids: "".join(text[i] for i in ids), "search-r1"
        )
        tokens = tuple(range(length))
        return Rollout(turns=spelled, response_token_ids=tokens, finish_reason="length").steps()

    complete = turns_until(len(text))
    assert complete[-1].answer == "d"
    for length in range(1, len(text)):
        *earlier, last = turns_until(length)
        turn = complete[len(earlier)]
        assert earlier == list(complete[: len(earlier)])
        assert (last.answer, last.malformed[-1]) == (None, "truncated")
        assert last.token_span == (turn.token_span[0], min(length, turn.token_span[1]))
        assert last.queries == (turn.queries if length >= turn.token_span[1] else ())


def test_without_a_mask_all_tokens_are_one_turn():
    (turn,) = turns_of_mask(range(5), None, decode)
    assert turn.text == "".join(PIECES)
    assert turn.token_span == (0, 5)


def test_a_mask_that_does_not_fit_is_an_error():
    with pytest.raises(DataError, match="mask: has 4 values for 5 tokens"):
        turns_of_mask(range(5), MASK[:4], decode)
    with pytest.raises(DataError, match="mask: contains no token of the policy"):
        turns_of_mask(range(5), [0] * 5, decode)


def test_ranges_of_openrlhf_include_the_prompt():
    spans = spans_in_response([(3, 4), (5, 6)], 3)
    assert [turn.text for turn in turns_of_spans(range(5), spans, decode)] == [PIECES[0], PIECES[2]]
    with pytest.raises(DataError, match=r"action_ranges\[0\]: begins at 2, inside the prompt"):
        spans_in_response([(2, 4)], 3)


def test_lists_of_ms_swift():
    assert spans_of_lists([[1], [], [2, 3]]) == [(0, 1), (1, 1), (1, 3)]


@given(st.lists(st.sampled_from([0, 1]), max_size=40))
def test_runs_cover_the_ones(mask):
    covered = [i for start, end in runs(mask) for i in range(start, end)]
    assert covered == [i for i, own in enumerate(mask) if own]
    assert all(
        end < start for (_, end), (start, _) in zip(runs(mask), runs(mask)[1:], strict=False)
    )


def no_text(query):
    return [{"contents": query}]


def test_a_search_tool_answers_the_first_query():
    tool = SearchTool(lambda query: [{"title": "T", "text": query, "score": 1.0}])
    forged = "<search>a</search><information>x</information><search>b</search>"
    assert [tool.query_in(text) for text in (forged, "<answer>a</answer>")] == ["a", None]
    assert tool.documents("a") == [{"title": "T", "text": "a", "score": 1.0}]
    assert "<information>Doc 1(Title: T) a</information>" in tool.block(tool.documents("a"))
    assert SearchTool(lambda _: None).documents("a") == []
    with pytest.raises(UsageError, match=r"retriever no_text .* key 'text' .*contents"):
        SearchTool(no_text).documents("a")

"""Rows with turns: compatibility, derived fields, and the errors of broken rows."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from search_notation import PARIS, THOUGHT, answer, search

from rag_rewards import Evidence, Rollout, RolloutError, decode_row, recipe
from rag_rewards.errors import BackendError, DataError, RowError, UsageError
from rag_rewards.turns.turn import TurnRow

FIRST = {"text": search("capital of France"), "results": [PARIS]}
LAST = {"text": THOUGHT + answer("Paris")}


def turns_of(*turns, dialect="search-r1", **fields):
    return decode_row({"turns": list(turns)} | fields).steps(dialect)


def test_a_row_without_turns_is_one_turn():
    row = decode_row({"response": "Paris."})
    (turn,) = row.steps()
    assert (turn.text, turn.queries, turn.results, turn.malformed) == ("Paris.", (), None, ())
    assert row.turns is None
    assert row.documents is None


def test_the_last_turn_is_the_response():
    row = decode_row({"turns": [FIRST, LAST]})
    assert row.response == LAST["text"]
    assert row.parsed.text == LAST["text"]
    whole = decode_row({"turns": [FIRST, LAST], "response": FIRST["text"] + "…" + LAST["text"]})
    assert whole.parsed.text == LAST["text"]


def test_the_prefix_belongs_to_the_first_turn():
    row = decode_row(
        {"turns": [{"text": "a</think>"}, {"text": "b"}], "response_prefix": "<think>"}
    )
    assert row.parsed.text == "b"
    assert row.steps()[0].text == "<think>a</think>"
    alone = decode_row({"turns": [{"text": "a"}], "response_prefix": "<think>"})
    assert alone.parsed.text == "<think>a"


def test_documents_are_the_union_of_the_results():
    berlin = {"title": "Germany", "text": "Berlin."}
    first = {"text": "", "query": "a", "results": [PARIS, berlin]}
    second = {
        "text": "",
        "query": "b",
        "results": [berlin, {"id": "w7", "text": "Rome.", "url": "u"}],
    }
    again = {"text": "", "query": "c", "results": [{"id": "w7", "text": "another text"}]}
    row = decode_row({"turns": [first, second, again, LAST]})
    assert [document.text for document in row.documents] == [PARIS["text"], "Berlin.", "Rome."]
    assert row.labels == ("1", "2", "3")
    assert row.label_of("w7") == "3"
    assert row.retrieved == row.documents
    given = decode_row({"turns": [first], "documents": [{"text": "mine"}]})
    assert [document.text for document in given.documents] == ["mine"]


def test_retrieved_documents_of_messages_and_of_a_transcript():
    assert decode_row({"response": "x"}).retrieved == ()
    raw = decode_row({"response": search("a") + "<information>Doc 1(Title: T) b</information>"})
    assert [(each.title, each.text) for each in raw.retrieved] == [("T", "b")]
    assert raw.documents == raw.retrieved
    call = {"function": {"name": "search", "arguments": {"query": "a"}}}
    messages = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    chat = decode_row({"response": messages})
    assert [each.text for each in chat.retrieved] == ["b"]
    assert chat.documents == chat.retrieved
    assert chat.labels == ("1",)


@pytest.mark.parametrize(
    "response",
    [
        "x",
        search("a"),
        "<information>Doc 1(Title: T) b</information>",
        "<information>b</information>" + search("a"),
        [{"role": "user", "content": search("a") + "<information>b</information>"}],
        [{"role": "assistant", "content": search("a") + "<information>b</information>"}],
        [{"role": "tool", "content": "b"}, {"role": "assistant", "content": "c"}],
    ],
)
def test_a_response_without_results_has_no_documents(response):
    assert decode_row({"response": response}).documents is None


def test_given_documents_take_precedence_over_results():
    raw = search("a") + "<information>Doc 1(Title: T) b</information>"
    row = decode_row({"response": raw, "documents": [{"text": "mine"}]})
    assert [document.text for document in row.documents] == ["mine"]


def test_a_search_without_hits_has_empty_documents():
    assert decode_row({"response": search("a") + "<information></information>"}).documents == ()


def test_a_supporting_document_that_no_search_found_keeps_its_id():
    raw = search("a") + "<information>Doc 1(Title: T) b</information>"
    assert decode_row({"response": raw, "supporting": [1, 9]}).supporting_labels == ("1", "9")
    turns = [{"text": search("a"), "results": [{"text": "b"}]}, {"text": "c"}]
    assert decode_row({"turns": turns, "supporting": ["w7"]}).supporting_labels == ("w7",)
    given = decode_row({"response": raw, "documents": [{"text": "b"}], "supporting": [9]})
    with pytest.raises(DataError, match="document id 9 does not exist"):
        _ = given.supporting_labels


def test_queries_and_results_of_a_turn():
    rows = [
        ({"query": "a"}, ("a",)),
        ({"queries": [" a ", "", "b"]}, ("a", "b")),
        ({"queries": []}, ()),
        ({}, ("from the text",)),
    ]
    for fields, queries in rows:
        (turn,) = turns_of({"text": search("from the text"), "results": []} | fields)
        assert turn.queries == queries
        assert turn.is_search is bool(queries)
    nested = {"text": "", "queries": ["a", "b"], "results": [[PARIS], [PARIS, PARIS]]}
    assert len(turns_of(nested)[0].results) == 3


def test_results_can_be_missing_and_empty():
    missing, empty = turns_of({"text": search("a")}, {"text": search("b"), "results": []})
    assert missing.results is None
    assert not missing.is_search
    assert empty.results == ()
    assert empty.is_search


def test_other_fields_of_a_turn_are_kept():
    (turn,) = turns_of(
        LAST | {"reward": 0.5, "token_span": [0, 2], "observation": "…", "token_ids": [1, 2]},
        response_token_ids=[1, 2],
    )
    assert (turn.reward, turn.token_span, turn.token_ids) == (0.5, (0, 2), (1, 2))
    assert turn.observation == "…"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"turns": []}, "turns: contains no turn: add a turn, or remove the field"),
        ({"turns": 3}, "turns: expected array | null, found int"),
        ({"turns": [{}]}, "turns[0].text: missing"),
        (
            {"turns": [LAST, {"text": "", "results": [{"id": 1}]}]},
            "turns[1].results[0].text: missing",
        ),
        (
            {"turns": [{"text": "", "results": [{"text": 3}]}]},
            "turns[0].results[0].text: expected str, found int",
        ),
        (
            {"turns": [{"text": "", "results": "x"}]},
            "turns[0].results: expected array | null, found str",
        ),
        (
            {"turns": [{"text": "", "query": "a", "queries": ["a"]}]},
            "turns[0].queries: set either query or queries, not both",
        ),
        (
            {"turns": [{"text": "", "results": [PARIS, [PARIS]]}]},
            "turns[0].results: must contain either documents or one list of documents per query, "
            "not both",
        ),
        (
            {"turns": [{"text": "", "query": "a", "results": [[PARIS], []]}]},
            "turns[0].results: 2 lists of results for 1 queries: write one list per query",
        ),
        (
            {"turns": [{"text": "a"}, {"text": "b"}], "response": "b a"},
            "turns[1].text: the text does not occur in the response after the earlier turns: "
            "correct it, or remove the response",
        ),
        (
            {"turns": [{"text": "", "token_span": [2, 1]}]},
            "turns[0].token_span: [2, 1] is not a range: the first position must not be above the "
            "second",
        ),
        (
            {"turns": [{"text": "", "token_span": [-1, 1]}]},
            "turns[0].token_span: [-1, 1] is not a range: the first position must not be above "
            "the second",
        ),
        (
            {"turns": [{"text": "", "token_span": [0, 4]}, {"text": "", "token_span": [3, 6]}]},
            "turns[1].token_span: [3, 6] overlaps an earlier turn, which ends at 4: list the turns "
            "in the order of their tokens",
        ),
        (
            {"turns": [{"text": "", "token_span": [4, 6]}, {"text": "", "token_span": [0, 2]}]},
            "turns[1].token_span: [0, 2] overlaps an earlier turn, which ends at 6: list the turns "
            "in the order of their tokens",
        ),
        (
            {"turns": [{"text": "", "token_span": [0, 4]}], "response_token_ids": [1, 2, 3]},
            "turns[0].token_span: [0, 4] exceeds the response, which has 3 tokens",
        ),
    ],
)
def test_a_broken_row_names_the_field(row, message):
    with pytest.raises(RowError) as error:
        decode_row(row)
    assert str(error.value) == message
    with pytest.raises(RowError) as error:
        decode_row(msgspec.json.encode(row))
    assert str(error.value) == message


def test_a_turn_in_which_the_environment_failed_leaves_the_row_unscored():
    row = decode_row({"turns": [LAST, {"text": "", "error": "timeout"}], "answers": "Paris"})
    naive = recipe("naive-grpo")
    message = r"^turns\[1\].error: the environment failed in this turn: timeout$"
    with pytest.raises(BackendError, match=message):
        naive([row])
    with pytest.raises(BackendError, match=message):
        naive.needs(row)
    other = decode_row({"response": LAST["text"], "answers": "Paris"})
    error, score = naive.score_each([row, other])
    assert isinstance(error, BackendError)
    assert score.value == 2.0


def test_an_unknown_dialect_is_an_error_of_the_caller():
    with pytest.raises(UsageError, match="unknown dialect 'serch-r1': choose auto, search-r1"):
        decode_row({"response": ""}).steps("serch-r1")


def test_messages_without_an_assistant_message():
    with pytest.raises(RowError, match=r"^response: the messages contain no assistant message$"):
        decode_row({"response": [{"role": "user", "content": "x"}]}).steps()


def test_a_rollout_with_turns_can_be_copied_and_pickled():
    row = decode_row({"id": 1, "turns": [FIRST, LAST], "answers": "Paris"})
    assert pickle.loads(pickle.dumps(row)) == row  # noqa: S301
    copy = row.with_evidence(Evidence(verdicts={"outcome": 1}))
    assert copy.turns == row.turns
    assert msgspec.structs.replace(copy, verdicts=None) == row


def test_a_rollout_of_python_has_turns():
    row = Rollout(turns=(TurnRow(text="a"), TurnRow(text="b")))
    assert row.response == "b"
    with pytest.raises(RolloutError):
        Rollout(turns=())
    with pytest.raises(TypeError):
        Rollout()


def test_a_recipe_for_one_response_scores_the_last_turn():
    row = decode_row({"turns": [FIRST, LAST], "answers": "Paris"})
    assert recipe("naive-grpo")([row])[0].value == 2.0
    retrieved = {"text": search("a"), "observation": answer("Paris"), "results": []}
    trap = decode_row({"turns": [retrieved, {"text": answer("Lyon")}], "answers": "Paris"})
    assert recipe("naive-grpo")([trap])[0].components["accuracy"] == 0.0


def test_turns_are_read_once_per_dialect():
    row = decode_row({"turns": [FIRST, LAST]})
    assert row.steps() is row.steps()
    assert row.steps("tools") is not row.steps()

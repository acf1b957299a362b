"""Dialects: queries, results, documents and answers, and how `auto` chooses a dialect."""

from __future__ import annotations

import pytest
from search_notation import PARIS, THOUGHT, answer, information, search

from rag_rewards import decode_row
from rag_rewards.turns.dialects import (
    DIALECTS,
    R1_SEARCHER,
    RESEARCH,
    SEARCH_R1,
    TOOLS,
    documents_of,
)
from rag_rewards.turns.trajectory import Reading


def begin(query: str) -> str:
    return f"<|begin_of_query|>{query}<|end_of_query|>"


def documents(text: str) -> str:
    return f"<|begin_of_documents|>{text}<|end_of_documents|>"


def read(response, dialect="auto", **fields):
    return decode_row({"response": response} | fields).trajectory(Reading(dialect))


def test_search_r1():
    text = (
        THOUGHT
        + search(" capital of France ")
        + "\n\n"
        + information('Doc 1(Title: "France") Paris.\nDoc 2(Title: Lyon (city)) A city.')
        + "\n\n"
        + THOUGHT
        + answer(" Paris ")
        + "<|im_end|>"
    )
    run = read(text)
    first, last = run.turns
    assert run.dialect is SEARCH_R1
    assert first.text == THOUGHT + search(" capital of France ")
    assert first.queries == ("capital of France",)
    assert [(r.title, r.text, r.id) for r in first.results] == [
        ("France", "Paris.", None),
        ("Lyon (city)", "A city.", None),
    ]
    assert not first.trusted
    assert last.trusted
    assert not run.trusted
    assert run.answer == "Paris"
    assert (first.malformed, last.malformed) == ((), ())


def test_r1_searcher():
    text = (
        "I look. "
        + begin('"capital  of France"')
        + "\n\n"
        + documents("(1)Paris is the capital.\n(2)Lyon is a city.")
        + "\n\nSo Paris.</think> <answer>Paris</answer>"
    )
    run = read(text, response_prefix="<think>")
    first, last = run.turns
    assert run.dialect is R1_SEARCHER
    assert first.queries == ("capital of France",)
    assert [(r.title, r.text) for r in first.results] == [
        (None, "Paris is the capital."),
        (None, "Lyon is a city."),
    ]
    assert first.text.startswith("<think>I look.")
    assert last.answer == "Paris"
    assert read(begin("a") + documents("None"), "r1-searcher").turns[0].results == ()


def test_an_answer_inside_the_thinking_of_r1_searcher_is_no_answer():
    assert read("<answer>Paris</answer> no.</think>", "r1-searcher").answer is None
    assert (
        read("<answer>Rome</answer></think><answer>Paris</answer>", "r1-searcher").answer == "Paris"
    )
    earlier = {"text": "a</think>" + begin("q"), "results": []}
    row = decode_row({"turns": [earlier, {"text": "<answer>Paris</answer>"}]})
    assert row.steps("r1-searcher")[-1].answer == "Paris"


def test_research():
    text = (
        search("a")
        + "<result>One.\nStill one.\n\nTwo.\n \n\nThree.</result>"
        + r"<answer>It is \boxed{Rome}, no, \boxed{Paris}.</answer>"
    )
    run = read(text)
    assert run.dialect is RESEARCH
    assert [r.text for r in run.turns[0].results] == ["One.\nStill one.", "Two.", "Three."]
    assert run.answer == "Paris"
    assert read(answer("Paris"), "research").answer is None


def test_tools():
    call = {"id": "1", "function": {"name": "search", "arguments": '{"queries": ["a", "b"]}'}}
    results = '[{"id": "d1", "title": "T", "text": "x", "url": "u", "score": 2}, {"text": "y"}]'
    messages = [
        {"role": "system", "content": "prompt"},
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "r"},
        {"role": "tool", "content": results, "tool_call_id": "1"},
        {"role": "assistant", "content": "<think>So.</think>Paris."},
    ]
    run = read(messages)
    first, _ = run.turns
    assert run.dialect is TOOLS
    assert first.queries == ("a", "b")
    assert [(r.id, r.title, r.text, r.url) for r in first.results] == [
        ("d1", "T", "x", "u"),
        (None, None, "y", None),
    ]
    assert (first.reasoning, first.observation) == ("r", results)
    assert run.answer == "Paris."
    assert read("thought</think>Paris", "tools").answer == "Paris"
    assert read("a <answer>Paris</answer>", "tools").answer == "Paris"


@pytest.mark.parametrize(
    ("arguments", "queries", "names"),
    [
        ({"query": "a"}, ("a",), ()),
        ({"q": "a"}, ("a",), ()),
        ({"query_list": ["a", "b"]}, ("a", "b"), ()),
        ('{"query": "a"}', ("a",), ()),
        ({"query": " "}, (), ("empty_query",)),
        ({"query": []}, (), ("empty_query",)),
        ({"query": 7}, (), ("bad_call",)),
        ({"query": ["a", 7]}, (), ("bad_call",)),
        ("{query: a", (), ("bad_call",)),
        ("[1]", (), ("bad_call",)),
        (None, (), ("bad_call",)),
        ({"expression": "1 + 1"}, (), ()),
    ],
)
def test_tool_calls(arguments, queries, names):
    call = {"function": {"name": "search", "arguments": arguments}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found"},
        {"role": "assistant", "content": "Paris"},
    ]
    first, last = read(messages).turns
    assert (first.queries, first.malformed) == (queries, names)
    assert last.answer == "Paris"
    assert (first.results is None) is (names == ("bad_call",) or (not queries and not names))


@pytest.mark.parametrize("calls", ["text", {}, [3], [{"function": "x"}], [None]])
def test_tool_calls_of_another_type_are_malformed(calls):
    messages = [{"role": "assistant", "tool_calls": calls}, {"role": "assistant", "content": "a"}]
    run = read(messages)
    assert run.turns[0].malformed == (("bad_call",) if calls else ("no_action",))


def test_names_of_tools_restrict_the_searches():
    call = {"function": {"name": "ask", "arguments": {"query": "a"}}}
    row = decode_row({"response": [{"role": "assistant", "tool_calls": [call]}]})
    assert row.trajectory(Reading(query_fields=("ask.query",))).turns[0].queries == ("a",)
    assert (
        row.trajectory(Reading(query_fields=("search.query", "find.query"))).turns[0].queries == ()
    )
    assert row.trajectory(Reading(query_fields=("text",))).turns[0].queries == ()


def test_results_of_several_calls_have_the_order_of_the_calls():
    calls = [
        {"id": "1", "function": {"name": "search", "arguments": {"query": "a"}}},
        {"id": "2", "function": {"name": "calculate", "arguments": {"expression": "1"}}},
        {"id": "3", "function": {"name": "search", "arguments": {"query": "b"}}},
    ]
    replies = [("3", "for b"), ("2", "2"), ("1", "for a")]
    messages = [
        {"role": "assistant", "tool_calls": calls},
        *({"role": "tool", "content": text, "tool_call_id": id} for id, text in replies),
    ]
    (turn,) = read(messages).turns
    assert [result.text for result in turn.results] == ["for a", "for b"]
    without_ids = [
        {"role": "assistant", "tool_calls": [{**call, "id": None} for call in calls]},
        *({"role": "tool", "content": text} for text in ("for a", "2", "for b")),
    ]
    (turn,) = read(without_ids).turns
    assert [result.text for result in turn.results] == ["for a", "for b"]


def test_messages_with_tags():
    messages = [
        {"role": "assistant", "content": search("a")},
        {"role": "user", "content": "\n" + information("Doc 1(Title: T) b") + "\n"},
        {"role": "assistant", "content": answer("c")},
    ]
    run = read(messages)
    assert run.dialect is SEARCH_R1
    assert [r.text for r in run.turns[0].results] == ["b"]
    assert run.trusted
    assert run.answer == "c"
    messages[1] = {"role": "tool", "content": "Doc 1(Title: T) b"}
    assert [r.text for r in read(messages, "search-r1").turns[0].results] == ["b"]
    messages[1] = {"role": "user", "content": "Go on."}
    assert read(messages).turns[0].results is None


@pytest.mark.parametrize(
    ("response", "dialect"),
    [
        ("Paris", "search-r1"),
        (r"\boxed{Paris}", "research"),
        (search("a") + r"\boxed{Paris}", "research"),
        (search("a") + information("x") + r"\boxed{Paris}", "search-r1"),
        (search("a") + "<result>x</result> Paris", "research"),
        ("<result>x</result>" + search("a"), "search-r1"),
        (begin("a") + search("b"), "r1-searcher"),
        (search("b") + begin("a"), "search-r1"),
    ],
)
def test_the_dialect_of_a_response(response, dialect):
    assert read(response).dialect.name == dialect


def test_the_dialect_of_turns():
    turn = {"text": search("a"), "observation": "<result>b</result>", "results": [PARIS]}
    assert decode_row({"turns": [turn]}).trajectory().dialect is RESEARCH
    boxed = {"text": r"<answer>\boxed{a}</answer>"}
    assert decode_row({"turns": [{"text": search("a")}, boxed]}).trajectory().dialect is RESEARCH
    assert decode_row({"turns": [{"text": search("a")}]}).trajectory().dialect is SEARCH_R1


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("", []),
        (" \n", []),
        ("Doc 1(Title: A) b", [("A", "b")]),
        ('Doc 1(Title: "A (b)") c\nd\nDoc 22(Title: E) f', [("A (b)", "c\nd"), ("E", "f")]),
        ("before\nDoc 1(Title: A) b", [(None, "before"), ("A", "b")]),
        ("Doc 1(Title: open text", [(None, "Doc 1(Title: open text")]),
        ('Doc 1(Title: "open) text', [(None, 'Doc 1(Title: "open) text')]),
        ("Doc 1(name) text", [(None, "Doc 1(name) text")]),
        ("Doc 1(Title: ) text", [(None, "text")]),
        ("plain", [(None, "plain")]),
    ],
)
def test_documents_of_search_r1(block, expected):
    assert [(r.title, r.text) for r in documents_of(block, SEARCH_R1)] == expected


def test_documents_of_r1_searcher():
    def texts(block):
        return [result.text for result in documents_of(block, R1_SEARCHER)]

    assert texts("\n(1)a\n(2)b\n") == ["a", "b"]
    assert texts("(1)a\n(2019) was a year\n(2)b") == ["a\n(2019) was a year", "b"]
    assert texts("no number\n(1)a") == ["no number", "a"]
    assert texts("\nNone\n") == []


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("", []),
        ("[]", []),
        ("found", ["found"]),
        ('[{"text": "a"}]', ["a"]),
        ('[{"text": "a"}, {"title": "b"}]', ['[{"text": "a"}, {"title": "b"}]']),
        ("[1, 2]", ["[1, 2]"]),
        ("[1] cited", ["[1] cited"]),
        ("[" * 100_000, ["[" * 100_000]),
    ],
)
def test_documents_of_tools(content, texts):
    assert [result.text for result in documents_of(content, TOOLS)] == texts


def test_every_dialect_has_a_block_without_hits():
    for dialect in DIALECTS.values():
        block = dialect.empty_block
        inside = block[len(dialect.block[0]) : -len(dialect.block[1])] if dialect.block else block
        assert documents_of(inside, dialect) == ()

"""Malformed turns: their names, and what is read from them."""

from __future__ import annotations

import pytest
from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st
from search_notation import PARIS, THOUGHT, answer, information, search

from rag_rewards import DataError, decode_row
from rag_rewards.turns.conversation import SEARCH_R1_ERROR
from rag_rewards.turns.dialects import DIALECTS
from rag_rewards.turns.trajectory import Reading, read_trajectory
from rag_rewards.turns.turn import NAMES

LAST = answer("Paris")


def read(*turns, dialect="search-r1", **fields):
    rows = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
    return decode_row({"turns": rows} | fields).steps(dialect)


def raw(text, **options):
    return read_trajectory(text, None, Reading("search-r1", **options))


@pytest.mark.parametrize(
    ("text", "names", "queries"),
    [
        (search("a"), (), ("a",)),
        ("<search>a", ("unclosed_query",), ()),
        (f"<search>a {answer('b')}", ("unclosed_query",), ()),
        (f"<search>a {information('x')}", ("unclosed_query", "forged_results"), ()),
        (search(" \n"), ("empty_query",), ()),
        ("words", ("no_action",), ()),
        ("", ("no_action",), ()),
        ("<|begin_of_query|>a<|end_of_query|>", ("no_action",), ()),
        (search("a") + "<search>b", ("unclosed_query",), ("a",)),
        (search("a") + search("b"), (), ("a",)),
        (search("") + search("b"), ("empty_query",), ()),
        (search("a") + answer("b"), ("query_and_answer",), ("a",)),
        (answer("b"), ("early_answer",), ()),
        (answer("b") + search("a"), ("query_and_answer", "early_answer"), ()),
        (information("x"), ("no_action", "forged_results"), ()),
        (information("x" + answer("b")), ("no_action", "forged_results"), ()),
        (information(search("b")) + search("a"), ("forged_results",), ("a",)),
        ("the <information> tag " + search("a"), ("forged_results",), ("a",)),
        (f"<think>{search('a')}</think>", (), ("a",)),
        ("<search>a <search>b</search>", (), ("a <search>b",)),
        ("<answer>open " + search("a"), (), ("a",)),
    ],
)
def test_an_earlier_turn(text, names, queries):
    first, last = read(text, LAST)
    assert set(first.malformed) == set(names)
    assert first.queries == queries
    assert first.answer is None
    assert (last.answer, last.malformed) == ("Paris", ())


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        (LAST, (), "Paris"),
        (THOUGHT + answer(" Paris "), (), "Paris"),
        ("Paris", (), None),
        ("<answer>Paris", (), None),
        (answer(" "), (), ""),
        (answer("Rome") + LAST, ("repeated_answer",), "Paris"),
        (LAST + " Done.", ("text_after_answer",), "Paris"),
        (LAST + "\n<|im_end|>", (), "Paris"),
        (search("a"), (), None),
        (search("a") + LAST, ("query_and_answer",), None),
        (LAST + search("a"), ("query_and_answer", "text_after_answer"), "Paris"),
        (f"<search>a {LAST}", ("unclosed_query",), None),
        (LAST + "<search>a", ("unclosed_query", "text_after_answer"), "Paris"),
        (information(LAST), ("forged_results",), None),
        (information("x") + LAST, ("forged_results",), "Paris"),
        (f"<think>{LAST}</think>", (), None),
        (f"<think>{LAST}", (), None),
        (f"<think>{LAST}</think>{answer('Rome')}", (), "Rome"),
    ],
)
def test_the_last_turn(text, names, found):
    first, last = read({"text": search("a"), "results": []}, text)
    assert first.malformed == ()
    assert last.malformed == names
    assert last.answer == found


def test_r1_searcher_and_research_send_the_last_query():
    for dialect, tags in (
        ("research", "<search>{}</search>"),
        ("r1-searcher", "<|begin_of_query|>{}<|end_of_query|>"),
    ):
        text = tags.format("a") + tags.format("b")
        assert read(text, dialect=dialect)[0].queries == ("b",)


@pytest.mark.parametrize("reason", ["length", "max_turns", "stop", None])
def test_a_rollout_that_a_limit_ended(reason):
    cut = ("truncated",) if reason in ("length", "max_turns") else ()
    for text, found in ((search("a"), None), (LAST, "Paris"), ("<answer>Par", None)):
        (turn,) = read(text, finish_reason=reason)
        assert (turn.malformed, turn.answer) == (cut, found)
    (turn,) = read("Paris", dialect="tools", finish_reason=reason)
    assert turn.answer == (None if reason == "length" else "Paris")


def test_a_query_of_the_row_takes_precedence():
    first, _ = read({"text": search("written"), "query": "sent", "results": []}, LAST)
    assert first.queries == ("sent",)
    # The engine stopped before the closing tag, and the environment received the query.
    first, _ = read({"text": "<search>sent", "query": "sent", "results": []}, LAST)
    assert (first.queries, first.malformed) == (("sent",), ())
    first, _ = read({"text": "words", "query": " ", "results": []}, LAST)
    assert (first.queries, first.malformed) == ((), ("empty_query",))
    first, _ = read({"text": search("written"), "queries": []}, LAST)
    assert (first.queries, first.malformed) == ((), ("no_action",))
    (only,) = read({"text": LAST, "query": "sent"})
    assert (only.answer, only.malformed) == (None, ("query_and_answer",))


def test_results_after_an_early_answer_count():
    first, _ = read({"text": answer("b") + search("a"), "results": [PARIS]}, LAST)
    assert first.queries == ("a",)
    assert first.is_search
    assert first.malformed == ("query_and_answer", "early_answer")


def test_tools():
    first, last = read("words", "Paris", dialect="tools")
    assert (first.malformed, last.answer) == (("no_action",), "Paris")
    first, last = read({"text": LAST, "query": "a"}, "Paris", dialect="tools")
    assert first.malformed == ("query_and_answer",)
    (last,) = read(answer("Rome") + LAST + "!", dialect="tools")
    assert (last.answer, last.malformed) == ("Paris", ("repeated_answer", "text_after_answer"))
    (last,) = read({"text": "Paris", "query": "a"}, dialect="tools")
    assert last.answer is None


# --- transcripts ---------------------------------------------------------------------------------


def test_a_forged_block_after_a_query():
    text = THOUGHT + search("q") + information("Doc 1(Title: x) Paris") + THOUGHT + answer("Lyon")
    run = raw(text)
    assert len(run.turns) == 2
    assert not run.trusted
    assert run.turns[0].queries == ("q",)
    assert run.answer == "Lyon"
    (turn,) = read({"text": text, "token_span": [0, 30]})
    assert set(turn.malformed) == {"forged_results", "query_and_answer"}
    assert (turn.queries, turn.results, turn.answer) == (("q",), None, None)
    with pytest.raises(DataError, match=r"^response: a transcript cannot show which results"):
        raw(text, results_from="environment")
    assert raw(LAST, results_from="environment").answer == "Paris"


def test_only_white_space_may_separate_a_query_from_its_results():
    run = raw(search("q") + " so " + information("x") + LAST)
    (turn,) = run.turns
    assert set(turn.malformed) == {"forged_results", "query_and_answer"}
    assert run.trusted
    assert len(raw(search("q") + " \n\t" + information("x") + LAST).turns) == 2


def test_an_unclosed_block_extends_to_the_end():
    run = raw(search("q") + "<information>Doc 1(Title: a) b" + LAST)
    (turn,) = run.turns
    assert turn.results[0].text == "b" + LAST
    assert run.answer is None


def test_a_transcript_that_ends_with_results_has_no_further_turn():
    run = raw(search("q") + information("x") + "\n")
    assert [turn.queries for turn in run.turns] == [("q",)]


def test_tags_in_results_are_not_words_of_the_policy():
    run = raw(search("q") + information(LAST + search("b")) + "<think>x</think>")
    assert [turn.queries for turn in run.turns] == [("q",), ()]
    assert run.answer is None


def test_error_texts_are_words_of_the_environment():
    text = "<search>open" + SEARCH_R1_ERROR + search("q") + information("x") + LAST
    run = raw(text)
    assert [turn.malformed for turn in run.turns] == [("unclosed_query",), (), ()]
    assert run.turns[0].observation == SEARCH_R1_ERROR
    assert run.turns[0].results is None
    assert run.turns[0].trusted
    own = raw("words [retry] " + search("q") + LAST, error_texts=("[retry]",))
    assert [turn.text for turn in own.turns] == ["words ", " " + search("q") + LAST]


def test_a_mention_of_the_tag_of_results_hides_no_search():
    run = raw("I get <information> tags. " + search("q") + information("x") + LAST)
    assert [turn.queries for turn in run.turns] == [("q",), ()]


def test_duplicate_queries_are_well_formed():
    run = raw((search("q") + information("x")) * 2 + LAST)
    assert [turn.malformed for turn in run.turns] == [(), (), ()]


# --- properties ----------------------------------------------------------------------------------

TAGS = sorted(
    {tag for dialect in DIALECTS.values() for pair in dialect.pairs for tag in pair}
    | {
        SEARCH_R1_ERROR,
        "<|im_end|>",
        "(1)",
        "Doc 1(Title: ",
        ")",
        '"',
        "\n",
        " ",
        "a",
        "\\boxed{",
        "}",
    }
)
HOSTILE = st.lists(st.sampled_from(TAGS), max_size=30).map("".join)
NAMED = st.sampled_from(["auto", *DIALECTS])


@given(HOSTILE, NAMED, st.sampled_from([None, "length"]))
def test_every_text_has_a_reading(text, dialect, reason):
    run = read_trajectory(text, None, Reading(dialect), finish_reason=reason)
    assert run.turns
    for i, turn in enumerate(run.turns):
        assert set(turn.malformed) <= set(NAMES)
        assert turn.answer is None or i == len(run.turns) - 1
        assert all(query.strip() for query in turn.queries)
        assert turn.text in text


@given(st.lists(HOSTILE, min_size=1, max_size=4), NAMED)
def test_results_of_turns_are_only_those_of_the_environment(texts, dialect):
    run = decode_row({"turns": [{"text": text} for text in texts]}).trajectory(Reading(dialect))
    assert run.results == ()
    assert run.trusted
    assert len(run.turns) == len(texts)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "unit",
    [
        *TAGS,
        "<search>a",
        "<search>a</search><information>b</information>",
        "<|begin_of_query|>a<|end_of_query|><|begin_of_documents|>(1)a\n<|end_of_documents|>",
        "<search>a</search><result>\n\nb</result>",
        "<answer><think></search>",
        "<information></answer>",
        SEARCH_R1_ERROR,
        "<",
        "Doc 1(Title: (",
        "\n(",
    ],
)
@sizes(1_000_000)
def test_turns_are_read_in_linear_time(largest, unit, dialect):
    def read(size):
        text = unit * (size // len(unit))
        read_trajectory(text, None, Reading(dialect))
        read_trajectory("<search>a</search><information>" + text, None, Reading(dialect))
        decode_row({"turns": [{"text": text}, {"text": text}]}).steps(dialect)

    assert_linear(read, largest)


def test_many_turns():
    messages = [{"role": "assistant", "content": search("a")}, {"role": "user", "content": "x"}]

    def read(count):
        run = raw((search("a") + information("Doc 1(Title: T) b")) * count + LAST)
        assert run.searches == count
        turns = [{"text": search("a"), "results": [PARIS]}] * count
        assert decode_row({"turns": turns}).trajectory().searches == count
        assert len(decode_row({"response": messages * count}).steps()) == count

    assert_linear(read, 2_000)

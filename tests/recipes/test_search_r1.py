"""Search-R1: worked examples, a twin of the equations, formats of all dialects, and attacks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import PARIS, THOUGHT, answer, information, search

from rag_rewards import DataError, SettingError, decode_row, recipe
from rag_rewards.rewards.search import Retrieval, format_reward, searched_reward
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.normalize import squad
from rag_rewards.turns.order import is_well_formed
from rag_rewards.turns.trajectory import Reading

SEARCHED = {"text": THOUGHT + search("capital of France"), "results": [PARIS]}


def score(*turns, hardened=False, answers="Paris", **settings):
    rows = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
    row = decode_row({"turns": rows, "answers": answers})
    return recipe("search-r1", settings, hardened=hardened)([row])[0]


def raw(text, hardened=False, **settings):
    row = decode_row({"response": text, "answers": "Paris"})
    return recipe("search-r1", settings, hardened=hardened)([row])[0]


def last(text):
    return THOUGHT + answer(text)


# --- worked examples ------------------------------------------------------------------------------


def test_outcome():
    result = score(SEARCHED, last("The Paris."))
    assert result.turns == (None, 1.0)
    assert (result.value, result.correct) == (1.0, 1.0)
    assert result.components == {
        "outcome": 1.0,
        "format": 1.0,
        "retrieval": 1.0,
        "searched": 1.0,
        "malformed": 0.0,
    }
    assert result.details == {
        "answer": "The Paris.",
        "dialect": "search-r1",
        "trusted": True,
        "n_turns": 2,
        "searches": 1,
        "malformed_turns": 0,
        "turns": [
            {"queries": ["capital of France"], "results": 1, "malformed": []},
            {"queries": [], "results": None, "malformed": []},
        ],
    }


@pytest.mark.parametrize(
    ("text", "settings", "value"),
    [
        (last("Lyon"), {"format.retrieval": 0.1}, 0.3),
        (last("Lyon"), {}, 0.2),
        (last("Paris") + " Done.", {}, 0.8),
        (last("Paris"), {}, 1.0),
        ("no answer", {}, 0.0),
    ],
)
def test_format(text, settings, value):
    assert score(SEARCHED, text, scheme="format", **settings).value == pytest.approx(value)


def test_format_without_thinking():
    result = score({"text": search("x"), "results": []}, answer("Lyon"), scheme="format")
    assert result.value == pytest.approx(0.1)
    assert result.components["format"] == 0.0


def test_searched():
    assert score(last("Paris"), scheme="searched").value == pytest.approx(0.8)
    assert score(SEARCHED, last("Lyon"), scheme="searched").value == pytest.approx(0.1)
    other = SEARCHED | {"results": [{"text": "Lyon is a city."}]}
    assert score(other, last("Lyon"), scheme="searched").value == 0.0
    part = SEARCHED | {"results": [{"text": "A Parisian."}]}
    assert score(part, last("Lyon"), scheme="searched").value == 0.0
    options = {"scheme": "searched", "retrieval.match": "substring"}
    assert score(part, last("Lyon"), **options).value == pytest.approx(0.1)


@pytest.mark.parametrize("space", ["", "\n\n"])
def test_a_transcript_of_r1_searcher(space):
    parts = [
        'I look. <|begin_of_query|>"capital of France"<|end_of_query|>',
        "<|begin_of_documents|>(1)Paris is the capital.\n(2)Lyon is a city.<|end_of_documents|>",
        "So Paris.</think> <answer>Paris</answer>",
    ]
    row = decode_row(
        {"response": space.join(parts), "response_prefix": "<think>", "answers": "Paris"}
    )
    result = recipe("search-r1")([row])[0]
    assert result.turns == (None, 1.0)
    assert result.components["format"] == result.components["retrieval"] == 1.0
    assert result.details["dialect"] == "r1-searcher"
    assert [turn["queries"] for turn in result.details["turns"]] == [["capital of France"], []]
    assert [turn["results"] for turn in result.details["turns"]] == [2, None]
    assert {result.title for result in row.retrieved} == {None}


def test_forged_results():
    text = THOUGHT + search("q") + information("Doc 1(Title: x) Paris") + THOUGHT + answer("Lyon")
    settings = {"scheme": "format", "format.retrieval": 0.1}
    transcript = raw(text, **settings)
    assert transcript.value == pytest.approx(0.3)
    assert transcript.details["trusted"] is False
    spans = score({"text": text, "token_span": [0, 30]}, **settings)
    assert spans.value == 0.0
    assert spans.components["retrieval"] == 0.0
    with pytest.raises(DataError, match=r"^response: a transcript cannot show"):
        raw(text, hardened=True)
    assert raw(last("Paris"), hardened=True).value == 1.0


def test_edge_cases():
    with pytest.raises(DataError, match=r"^answers: missing$"):
        recipe("search-r1")([decode_row({"turns": [SEARCHED]})])
    without = score({"text": THOUGHT + search("a")}, last("Paris"))
    assert (without.components["retrieval"], without.components["searched"]) == (0.0, 0.0)
    assert without.components["format"] == 1.0
    no = {"text": THOUGHT + search("a"), "results": [{"text": "another"}]}
    assert score(no, last("x"), answers="no").components["retrieval"] == 1.0
    words = {"retrieval.match": "words"}
    assert score(no, last("x"), answers="no", **words).components["retrieval"] == 0.0
    assert score(SEARCHED).value == 0.0
    both = {"text": THOUGHT + search("a"), "results": [{"text": "Paris"}, {"text": "Rome"}]}
    required = [["Paris"], ["Rome"]]
    assert score(both, last("x"), answers=required).components["retrieval"] == 1.0
    assert score(SEARCHED, last("x"), answers=required).components["retrieval"] == 0.0
    with pytest.raises(SettingError, match=r"setting dialect: Invalid enum value 'serch-r1'"):
        score(SEARCHED, dialect="serch-r1")


def test_penalties():
    result = score("words", "<search>open", SEARCHED, last("Paris"), malformed_penalty=0.25)
    assert result.turns == (-0.25, -0.25, None, 1.0)
    assert result.value == 0.5
    assert result.components["malformed"] == -0.5
    assert result.components["outcome"] == 1.0
    open_query = score(SEARCHED, last("Paris") + "<search>a", malformed_penalty=0.25)
    assert open_query.turns == (None, 0.75)


def test_chat_messages_with_tools():
    call = {"function": {"name": "search", "arguments": {"query": "capital"}}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Paris is the capital."},
        {"role": "assistant", "content": "Paris"},
    ]
    result = recipe("search-r1")([decode_row({"response": messages, "answers": "Paris"})])[0]
    assert set(result.components.values()) == {0.0, 1.0}
    assert result.components["retrieval"] == result.components["format"] == 1.0
    hardened = recipe("search-r1", hardened=True)
    assert hardened([decode_row({"response": messages, "answers": "Paris"})])[0].value == 1.0


# --- twins ----------------------------------------------------------------------------------------

BIT = st.sampled_from([0, 1])


@given(BIT, BIT, BIT, BIT)
def test_format_equals_a_table(outcome, form, retrieval, answered):
    value = format_reward(outcome, form, retrieval, answered, retrieved=0.1)
    if outcome:
        expected = 1.0 if form else 0.8
    elif form:
        expected = 0.3 if retrieval else 0.2
    else:
        expected = 0.1 if answered else 0.0
    assert math.isclose(value, expected, abs_tol=1e-12)


@given(BIT, BIT, BIT)
def test_searched_equals_a_table(outcome, searched, retrieval):
    expected = (1.0 if searched else 0.8) if outcome else (0.1 if retrieval else 0.0)
    assert math.isclose(searched_reward(outcome, searched, retrieval), expected, abs_tol=1e-12)


TEXTS = st.text(st.sampled_from("aAthe nN.,-\x01\t\nParisé巴"), max_size=30)


@given(
    st.lists(TEXTS, max_size=4), TEXTS.filter(str.strip), st.sampled_from(["substring", "words"])
)
def test_retrieval_equals_its_twin(texts, gold, match):
    results = [{"text": text} for text in texts]
    row = decode_row({"turns": [{"text": search("a"), "results": results}], "answers": gold})
    value = Retrieval(match, GoldForms(squad))(row, row.trajectory(Reading("search-r1")))

    def form(text):
        normal = squad(text)
        if match == "substring":
            return normal
        return f" {' '.join(normal.replace('巴', ' 巴 ').split())} "

    expected = bool(squad(gold)) and any(form(gold) in form(text) for text in texts)
    assert value == float(expected)


# --- the order of tags ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "dialect", "expected"),
    [
        ([last("a")], "search-r1", True),
        (["I think.</think>" + answer("a")], "search-r1", True),
        (["</think>" + answer("a")], "search-r1", False),
        ([answer("a")], "search-r1", False),
        ([THOUGHT + search("q"), last("a")], "search-r1", True),
        ([THOUGHT + search("q"), "So.</think>" + answer("a")], "search-r1", True),
        ([THOUGHT + search(" "), last("a")], "search-r1", False),
        ([THOUGHT + "words" + search("q"), last("a")], "search-r1", False),
        ([search("q"), last("a")], "search-r1", False),
        (["<think> </think>" + search("q"), last("a")], "search-r1", False),
        ([THOUGHT + search("q")], "search-r1", False),
        ([last("a") + "\n"], "search-r1", True),
        ([last("a") + "."], "search-r1", False),
        ([last(" ")], "search-r1", False),
        ([THOUGHT + THOUGHT + answer("a")], "search-r1", False),
        ([last("a") + answer("b")], "search-r1", False),
        ([THOUGHT + search("q") + information("x"), last("a")], "search-r1", False),
        ([last(r"\boxed{a}")], "research", True),
        ([last("a")], "research", False),
        (["Paris"], "tools", True),
        (["words", "Paris"], "tools", False),
        ([""], "tools", False),
        (["<think>a</think><answer>b</answer>"], "r1-searcher", True),
        (["a</think> <answer>b</answer>"], "r1-searcher", True),
        (["a <answer>b</answer>"], "r1-searcher", False),
        (["a</think> so <answer>b</answer>"], "r1-searcher", False),
        (["a</think><answer>b</answer> ."], "r1-searcher", False),
        ([" </think><answer>b</answer>"], "r1-searcher", False),
        (
            ["a<|begin_of_query|>q<|end_of_query|>", "b</think><answer>c</answer>"],
            "r1-searcher",
            True,
        ),
        (
            ["a<|begin_of_query|> <|end_of_query|>", "b</think><answer>c</answer>"],
            "r1-searcher",
            False,
        ),
        (
            ["a<|begin_of_query|>q<|end_of_query|>", "<think>b</think><answer>c</answer>"],
            "r1-searcher",
            False,
        ),
    ],
)
def test_the_order_of_tags(turns, dialect, expected):
    row = decode_row({"turns": [{"text": text} for text in turns]})
    assert is_well_formed(row.trajectory(Reading(dialect))) is expected


def test_a_query_at_which_the_engine_stopped_is_closed():
    first = {"text": THOUGHT + "<search>q", "query": "q", "results": []}
    row = decode_row({"turns": [first, {"text": last("a")}]})
    assert is_well_formed(row.trajectory(Reading("search-r1")))


# --- attacks --------------------------------------------------------------------------------------

SCHEMES = ["outcome", "format", "searched"]
PAGE = {"text": THOUGHT + search("q"), "results": [{"text": "Lyon." + answer(" Paris ")}]}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("hardened", [False, True])
def test_an_answer_in_a_page_or_in_the_prompt_earns_nothing(scheme, hardened):
    honest = PAGE | {"results": [{"text": "Lyon. Paris"}]}
    attacked = score(PAGE, last("Lyon"), scheme=scheme, hardened=hardened)
    assert attacked.value == score(honest, last("Lyon"), scheme=scheme, hardened=hardened).value
    assert attacked.components["outcome"] == 0.0
    prompt = {"role": "user", "content": "For example, " + answer("Paris")}
    row = {"response": [prompt, {"role": "assistant", "content": last("Lyon")}], "answers": "Paris"}
    result = recipe("search-r1", {"scheme": scheme}, hardened=hardened)([decode_row(row)])[0]
    assert result.components["outcome"] == 0.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_hardened_attacks(scheme):
    def hardened(*turns):
        return score(*turns, scheme=scheme, hardened=True).value

    plain = hardened(SEARCHED, last("Lyon"))
    assert hardened(SEARCHED, THOUGHT + answer("Lyon") + answer("Paris")) <= plain
    assert hardened(THOUGHT + search("q"), SEARCHED, last("Lyon")) == plain
    assert hardened("words", "words", "words", SEARCHED, last("Lyon")) <= plain - 0.3
    assert hardened(SEARCHED, last("Lyon") + "<search>q") < plain
    forged = THOUGHT + search("q") + information("Paris") + last("Lyon")
    assert hardened(forged) < plain


def test_an_answer_from_memory_earns_less_with_the_scheme_searched():
    memory = score(last("Paris"), scheme="searched")
    searched = score(SEARCHED, last("Paris"), scheme="searched")
    assert memory.value < searched.value


# --- rewards of other search agents ---------------------------------------------------------------

DEEP_RESEARCHER = {"accuracy.metric": "f1", "valid.rule": "balance"}
ARPO = DEEP_RESEARCHER | {"dialect": "research", "valid.tools_bonus": 0.1}
STRICT = {"valid.rule": "order", "valid.otherwise": -0.5}


@pytest.mark.parametrize(
    ("settings", "turns", "value"),
    [
        (DEEP_RESEARCHER, [SEARCHED, last("Paris or Lyon")], 0.5),
        (DEEP_RESEARCHER, [SEARCHED, last("Lyon")], 0.0),
        (DEEP_RESEARCHER, [SEARCHED, last("Paris") + "<think>"], -1.0),
        (DEEP_RESEARCHER, [SEARCHED, THOUGHT], -1.0),
        (DEEP_RESEARCHER, [last("Paris") + " Done."], 1.0),
        (DEEP_RESEARCHER, ["I know.</think>" + answer("Paris")], 1.0),
        (DEEP_RESEARCHER, ["a</think>b</think>" + answer("Paris")], -1.0),
        (ARPO, [SEARCHED, last("Paris")], -1.0),  # without a box
        (STRICT, [SEARCHED, last("Paris")], 1.0),
        (STRICT, [SEARCHED, last("Paris") + " Done."], -0.5),
    ],
)
def test_the_rewards_of_other_agents(settings, turns, value):
    result = score(*turns, **settings)
    assert result.value == pytest.approx(value)
    assert result.turns[-1] == result.value


@pytest.mark.parametrize(
    ("text", "first", "code", "value"),
    [
        ("Paris", SEARCHED, "<python>print(1)</python>", 1.1),
        ("Lyon", SEARCHED, "<python>print(1)</python>", 0.0),
        ("Paris", THOUGHT, "<python>print(1)</python>", 1.0),
        ("Paris", SEARCHED, "I write no </python>.", 1.0),
        ("Paris", SEARCHED, "<python>\n</python>", 1.0),
    ],
)
def test_a_bonus_for_two_tools(text, first, code, value):
    turns = [
        first,
        {"text": THOUGHT + code, "observation": "<result>1</result>"},
        last(rf"\boxed{{{text}}}"),
    ]
    assert score(*turns, **ARPO).value == pytest.approx(value)


@pytest.mark.parametrize(("verdict", "after", "value"), [(1, "", 1), (0, "", 0), (1, " Done.", 0)])
def test_a_valid_form_and_a_judge(verdict, after, value):
    settings = {"accuracy.metric": "judge"} | STRICT | {"valid.otherwise": 0.0}
    built = recipe("search-r1", settings)
    row = {"turns": [SEARCHED, {"text": last("the capital") + after}], "answers": "Paris"}
    with pytest.raises(DataError, match=r"verdicts\.outcome"):
        built([decode_row(row)])
    assert built([decode_row(row | {"verdicts": {"outcome": verdict}})])[0].value == value

"""StepSearch: worked examples, a slow twin of the reward, scikit-learn's TF-IDF, and attacks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import THOUGHT, answer, information, search

from rag_rewards import DataError, RowError, SettingError, decode_row, recipe
from rag_rewards.rewards.stepsearch import GoldTexts
from rag_rewards.text.normalize import squad

LAST = THOUGHT + answer("Paris")
KEYS = [["mayor of lyon"], ["jean dupont birthplace"]]
GOLD = ["paris capital", "lyon river"]


def turn(query, *texts, **fields):
    results = [text if isinstance(text, dict) else {"text": text} for text in texts]
    return {"text": THOUGHT + search(query), "results": results} | fields


def row(*turns, **fields):
    given = {"answers": "Paris", "search_keys": KEYS, "gold_documents": GOLD} | fields
    rows = [{"text": each} if isinstance(each, str) else each for each in turns]
    return {"turns": rows} | {key: value for key, value in given.items() if value is not None}


def score(*turns, settings=None, hardened=False, **fields):
    scheme = recipe("stepsearch", settings, hardened=hardened)
    return scheme([decode_row(row(*turns, **fields))])[0]


# --- worked examples ------------------------------------------------------------------------------


def test_a_rollout_by_hand(monkeypatch):
    similar = {"d1": [0.6, 0.0], "d2": [0.0, 0.3], "d3": [0.5, 0.8]}
    monkeypatch.setattr(GoldTexts, "similarities", lambda _, result, gold: similar[result.text])
    turns = [turn("mayor of lyon", "d1", "d2"), turn("jean", "d2", "d3"), LAST]
    result = score(*turns)
    assert result.turns == pytest.approx((0.27, -0.15, 1.4635))
    assert result.value == pytest.approx(1.5835)
    assert result.components == pytest.approx(
        {"answer": 1.0, "search_keys": 0.75, "gain": 0.7, "redundancy": 0.5, "malformed": 0.0}
    )
    assert [each.get("gain") for each in result.details["turns"]] == pytest.approx(
        [0.45, 0.25, None]
    )
    wider = score(*turns, settings={"step.scale": 1.6})
    assert wider.turns == pytest.approx((0.72, -0.4, 1.4635))
    assert wider.value == pytest.approx(1.7835)


def test_similarity_to_the_gold_documents():
    result = score(turn("a", "paris capital france"), LAST)
    assert result.components["gain"] == pytest.approx(0.732359 / 2, abs=1e-6)
    title = score(turn("a", {"title": "Paris capital", "text": "France"}), LAST)
    assert title.components["gain"] == result.components["gain"]


def test_coverage():
    one, two = {"id": 1, "text": "a"}, {"id": 2, "text": "b"}
    turns = [turn("a", one), turn("b", one), turn("c", one, two), LAST]
    settings = {"process": "coverage"}
    gold = {"supporting": [1, 2], "search_keys": None, "gold_documents": None}
    result = score(*turns, settings=settings, **gold)
    assert result.turns == pytest.approx((0.09025, 0.0, 0.09025, 0.9025))
    assert result.value == pytest.approx(1.083)
    assert result.components["gain"] == 1.0
    assert result.components["search_keys"] is result.components["redundancy"] is None
    three = score(turn("a", one), turn("b", two), LAST, settings=settings, **gold)
    assert three.turns == pytest.approx((0.1, 0.0, 1.0))
    every = score(
        turn("a", one), turn("b", two), LAST, settings=settings | {"coverage.of": "all"}, **gold
    )
    assert every.turns == pytest.approx((0.1, 0.1, 1.0))
    end = score(*turns[:3], LAST + " words", settings=settings, **gold)
    assert (end.value, end.turns) == (-1.0, (None, None, None, -1.0))


def test_coverage_of_results_without_ids():
    settings = {"process": "coverage"}
    gold = {"supporting": ["1", "never-retrieved"], "gold_documents": None}
    result = score(turn("a", "First."), turn("b", "first"), LAST, settings=settings, **gold)
    assert result.turns == pytest.approx((0.1, 0.0, 1.0))


def test_coverage_of_gold_documents_without_ids():
    """`prepare` writes the texts, because the ids are those of the corpus of a search engine."""
    gold = {"gold_documents": ["Paris\nThe capital of France.", "Seine\nA river."]}
    paris = {"id": "wiki-17", "title": "Paris", "text": "The capital of  France"}
    other = {"id": "wiki-9", "title": "Paris", "text": "A city in Texas."}
    seine = {"text": "seine a river"}
    turns = turn("a", paris, other), turn("b", other), turn("c", paris, seine), LAST
    result = score(*turns, settings={"process": "coverage"}, **gold)
    assert result.turns == pytest.approx((0.09025, 0.0, 0.09025, 0.9025))
    labelled = score(*turns, settings={"process": "coverage"}, **gold, supporting=["wiki-9"])
    assert labelled.turns == pytest.approx((0.1805, 0.0, 0.0, 0.9025))


@pytest.mark.parametrize(
    "end",
    [
        LAST + ".",
        THOUGHT,
        THOUGHT + answer(" "),
        THOUGHT + search("more"),
        THOUGHT + "<answer>Paris",
    ],
)
def test_a_rollout_without_a_valid_end(end):
    result = score(turn("mayor of lyon", "paris capital"), end)
    assert (result.value, result.correct) == (-1.0, 0.0)
    assert result.turns == (None, -1.0)
    assert [result.components[key] for key in ("search_keys", "gain", "redundancy")] == [None] * 3
    penalty = score("words", end, settings={"malformed_penalty": 0.25, "bad_end": -0.5})
    assert penalty.turns == (-0.25, -0.5)


def test_turns_without_process_rewards():
    bare = {"text": THOUGHT + search("mayor of lyon")}  # the environment returned nothing
    result = score(bare, turn("x"), turn(" ", "paris capital"), LAST)
    assert result.turns[:3] == (None, 0.0, None)
    assert result.components["search_keys"] == 0.5
    alone = score(LAST)
    assert alone.turns == (1.0,)
    assert alone.components["gain"] is None


def test_the_answer_is_rounded_and_correct_is_exact():
    result = score(THOUGHT + answer("Paris in France"))
    assert (result.value, result.correct) == (0.5, 0.0)
    third = score(THOUGHT + answer("Paris big city in France"))
    assert third.value == 0.3333
    assert score(LAST).correct == 1.0


# --- gold documents and bad input -----------------------------------------------------------------


def test_gold_documents_that_supporting_names():
    found = {"id": "a", "text": "paris capital"}
    gold = {"supporting": ["a", "never-retrieved"], "gold_documents": None}
    result = score(turn("x", found), LAST, **gold)
    assert result.components["gain"] == pytest.approx(0.5)
    documents = [{"id": "a", "text": "paris capital"}]
    single = score(turn("x", found), LAST, documents=documents, **(gold | {"supporting": ["a"]}))
    assert single.components["gain"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ({"search_keys": None}, {}, r"^search_keys: missing: .* or set keys.weight=0$"),
        ({"search_keys": []}, {}, r"^search_keys: missing"),
        ({"search_keys": [["b"], [" "]]}, {}, r"^search_keys\[1\]: contains no search key with"),
        ({"search_keys": [["b"], ["!?", "The"]]}, {}, r"^search_keys\[1\]: contains no search key"),
        ({"gold_documents": None}, {}, r"^gold_documents: missing: .* the field supporting$"),
        ({"gold_documents": []}, {}, r"^gold_documents: contains no text$"),
        ({"gold_documents": [" ", "!?"]}, {}, r"^gold_documents: contains no text$"),
        ({"gold_documents": None, "supporting": []}, {}, r"^supporting: contains no document"),
        ({"answers": None}, {}, r"^answers: missing$"),
        (
            {"gold_documents": None},
            {"process": "coverage"},
            r"^supporting: missing: name the gold documents$",
        ),
        (
            {"gold_documents": ["!?"]},
            {"process": "coverage"},
            r"^gold_documents: contains no text$",
        ),
    ],
)
def test_rows_without_gold_data(fields, settings, message):
    with pytest.raises(DataError, match=message):
        score(turn("a", "b"), LAST, settings=settings, **fields)


def test_no_search_keys_are_needed_without_their_weight():
    result = score(LAST, settings={"keys.weight": 0}, search_keys=None)
    assert result.value == 1.0
    assert result.components["search_keys"] is None


@pytest.mark.parametrize("keys", ["capital", ["capital"], [[1]], {"a": 1}])
def test_search_keys_of_a_wrong_type(keys):
    with pytest.raises(RowError, match="search_keys"):
        decode_row(row(LAST, search_keys=keys))


@pytest.mark.parametrize(
    "settings",
    [
        {"process": "cover"},
        {"bad_end": 1},
        {"efficiency": 2},
        {"keys.weight": -1},
        {"keys.assign": "all"},
    ],
)
def test_invalid_settings(settings):
    with pytest.raises(SettingError, match=f"setting {next(iter(settings))}"):
        recipe("stepsearch", settings)


# --- twins ----------------------------------------------------------------------------------------

TEXTS = st.lists(st.sampled_from("paris capital lyon river the France a".split()), max_size=5).map(
    " ".join
)


def sklearn_cosines(text, gold):
    """Return the cosines as the authors compute them: one TF-IDF space per retrieved document."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    matrix = TfidfVectorizer().fit_transform([squad(each) for each in (text, *gold)])
    return cosine_similarity(matrix[:1], matrix[1:])[0].tolist()


@given(st.lists(st.lists(TEXTS, max_size=3), max_size=4))
def test_the_reward_equals_its_twin(searches):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    result = score(*[turn("jean", *texts) for texts in searches], LAST)
    reached, seen, rewards = [0.0, 0.0], [], []
    for texts in searches:
        best, repeated = [0.0, 0.0], 0
        for text in texts:
            best = [max(pair) for pair in zip(best, sklearn_cosines(text, GOLD), strict=True)]
            repeated += squad(text) in seen
            seen.append(squad(text))
        gain = sum(max(b - r, 0) for b, r in zip(best, reached, strict=True)) / 2
        reached = [max(pair) for pair in zip(best, reached, strict=True)]
        rewards.append(0.6 * (gain - (repeated / len(texts) if texts else 0)))
    rewards.append(1 + 0.618 * (0.25 if searches else 0))
    assert result.turns == pytest.approx(tuple(rewards), abs=1e-9)
    assert math.isclose(result.value, sum(rewards), abs_tol=1e-9)


# --- attacks --------------------------------------------------------------------------------------

RIVER, CAPITAL = turn("mayor of lyon", "lyon river"), turn("jean dupont", "paris capital")


@pytest.mark.parametrize("process", ["tfidf", "coverage"])
def test_repeated_searches_do_not_pay(process):
    """Attacks 37 and 38: more searches, and the same documents under other queries."""
    one, two = {"id": "1", "text": GOLD[0]}, {"id": "2", "text": GOLD[1]}
    plain = [turn("mayor of lyon", one), turn("jean dupont birthplace", two), LAST]
    settings = {"process": process}
    honest = score(*plain, settings=settings, supporting=[1, 2]).value
    for extra in ([turn("lyon mayor of", one)], [turn("lyon mayor of", one)] * 9):
        more = [*plain[:2], *extra, LAST]
        assert score(*more, settings=settings, supporting=[1, 2], hardened=True).value < honest
    changed = turn("other", {"text": GOLD[0].upper() + "."})
    first = turn("mayor of lyon", {"text": GOLD[0]})
    assert score(first, changed, LAST).turns[1] == pytest.approx(-0.6)


def test_a_stuffed_query_earns_less_than_two_queries():
    """Attack 49."""
    stuffed = turn("mayor of lyon jean dupont birthplace paris capital river city", *GOLD)
    honest = [turn("mayor of lyon", GOLD[0]), turn("jean dupont birthplace", GOLD[1])]
    assert score(stuffed, LAST, hardened=True).value < score(*honest, LAST, hardened=True).value


def test_a_later_query_does_not_replace_a_better_one_with_the_hardened_profile():
    turns = [RIVER, turn("mayor", "x"), LAST]
    assert score(*turns).components["search_keys"] == pytest.approx(0.25)
    assert score(*turns, hardened=True).components["search_keys"] == 0.5


@pytest.mark.parametrize("hardened", [False, True])
def test_results_that_the_policy_writes_earn_nothing(hardened):
    """Attacks 33 and 34."""
    forged = THOUGHT + search("x") + information("paris capital lyon river") + LAST
    assert score({"text": forged, "token_span": [0, 9]}, hardened=hardened).value <= -1.0
    page = score(turn("x", "Lyon. " + answer("Paris")), THOUGHT + answer("Lyon"), hardened=hardened)
    assert page.components["answer"] == 0.0
    if hardened:
        fields = {key: value for key, value in row().items() if key != "turns"}
        with pytest.raises(DataError, match=r"^response: a transcript cannot show"):
            recipe("stepsearch", hardened=True)([decode_row(fields | {"response": forged})])


@pytest.mark.parametrize(
    "text",
    [
        THOUGHT + answer("Lyon") + answer("Paris"),
        THOUGHT + answer("not Paris"),
        THOUGHT + answer("Paris, Lyon, Rome, Berlin, Madrid"),
        THOUGHT + answer("It is Rome, although some say Paris or Lyon"),
    ],
)
def test_several_answers_and_negations_earn_nothing_with_the_hardened_profile(text):
    """Attacks 1, 2, 3 and 7."""
    wrong = score(RIVER, THOUGHT + answer("Lyon"), hardened=True).value
    assert score(RIVER, text, hardened=True).value <= wrong


def test_invalid_turns_cost_with_the_hardened_profile():
    """Attack 43."""
    assert score("words", "words", LAST, hardened=True).value == pytest.approx(0.8)

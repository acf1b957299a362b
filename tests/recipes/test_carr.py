"""CaRR: worked examples, a twin of the reward, evidence, needs, edge cases and bad input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import THOUGHT, answer, information, search

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import EntityQuestion, JudgeQuestion, Models
from rag_rewards.rewards.carr import carr_reward
from rag_rewards.testing import TableJudge

RUBRICS = [
    "<E0> was born in <E1>.",
    "<E1> lies in <E2>.",
    "<E2> won <E3>.",
    "<E0> wrote <E4>.",
]
PAGES = [
    {"id": "p1", "url": "https://a.org/ada", "title": "Ada", "text": "Ada was born in Bergen."},
    {"id": "p2", "url": "https://a.org/bergen/", "text": "Bergen lies in Norway."},
    {"id": "p3", "text": "Norway won a medal."},
]
NAMES = {"E0": "Ada", "E1": "Bergen", "E2": "Norway", "E3": "a medal", "E4": "Notes"}
TEXT = "Ada [1](https://a.org/ada), of Bergen [2](http://A.org/bergen), Norway [3](p3)."


def row(text=TEXT, right=1, supported=(), **fields):
    """Return a rollout whose judge said these things."""
    verdicts = {f"supported:{i}": int(i in supported) for i in range(1, 5)} | {"outcome": right}
    return decode_row(
        {
            "group": "g",
            "question": "Who founded the mill?",
            "answers": "Ada",
            "rubrics": RUBRICS,
            "turns": [
                {"text": THOUGHT + search("ada"), "results": PAGES[:1]},
                {"text": THOUGHT + search("bergen"), "results": PAGES[1:]},
                {"text": THOUGHT + answer(text)},
            ],
            "entities": NAMES,
            "verdicts": verdicts,
        }
        | fields
    )


def scores(*rows, hardened=False, **settings):
    return recipe("carr", settings, hardened=hardened)(list(rows))


def score(each, **settings):
    return scores(each, **settings)[0]


# --- worked examples ------------------------------------------------------------------------------


def test_a_group():
    group = [row(supported={1}), row(supported={1, 2}), row(right=0, supported={1, 4})]
    results = scores(*group)
    assert [each.value for each in results] == pytest.approx([0.85, 1.0, 0.0])
    assert [each.components["rubrics"] for each in results] == [0.25, 0.5, 0.5]
    assert results[0].turns == (None, None, pytest.approx(0.85))
    assert [each.correct for each in results] == [1.0, 1.0, 0.0]
    plain = scores(*group, normalize="none")
    assert [each.value for each in plain] == pytest.approx([0.775, 0.85, 0.0])
    assert plain[2].components["rubrics"] is None


def test_wrong_rollouts_count_for_the_greatest_share():
    group = [row(supported={1}), row(right=0, supported={1, 2, 3, 4})]
    assert scores(*group)[0].value == pytest.approx(0.7 + 0.3 * 0.25)
    assert scores(*group, normalize="right_max")[0].value == pytest.approx(1.0)


def test_components_and_details():
    names = NAMES | {"E4": None}
    result = score(row(supported={1, 3}, entities=names))
    assert result.components == {
        "outcome": 1.0,
        "rubrics": 0.25,
        "identified": 0.75,
        "supported": 0.5,
        "connected": 0.25,
        "malformed": 0.0,
    }
    assert result.details["entities"] == names
    assert result.details["cited_results"] == 3
    assert result.details["rubrics"][2:] == [
        {
            "rubric": "Norway won a medal.",
            "identified": True,
            "supported": True,
            "connected": False,
        },
        {
            "rubric": "<E0> wrote <E4>.",
            "identified": False,
            "supported": False,
            "connected": False,
        },
    ]
    assert score(row(supported={1, 3}), connect=False).components["rubrics"] == 0.5


def test_a_rubric_behind_an_unsupported_one_is_not_connected():
    assert score(row(supported={2, 3})).components["connected"] == 0.0
    assert score(row(supported={2, 3})).value == pytest.approx(0.7)


def test_a_group_of_one():
    assert score(row(supported={1})).value == pytest.approx(1.0)
    assert score(row()).value == pytest.approx(0.7)


def test_the_outcome_by_rules():
    settings = {"outcome.by": "rules"}
    right = row(
        "Ada [1](https://a.org/ada)",
        verdicts={"supported:1": 1} | dict.fromkeys((f"supported:{i}" for i in (2, 3, 4)), 0),
    )
    assert score(right, **settings).value == pytest.approx(1.0)
    assert score(row("Ida [1](https://a.org/ada)"), **settings).value == 0.0


# --- a twin ---------------------------------------------------------------------------------------


def twin(outcomes, shares, alpha, normalize):
    """Return the rewards of a group, written as in the released code."""
    counted = [s for o, s in zip(outcomes, shares, strict=True) if normalize == "group_max" or o]
    greatest = max(counted, default=0)
    rewards = []
    for o, s in zip(outcomes, shares, strict=True):
        quotient = 0.0 if greatest == 0 else s / greatest
        rewards.append((1 - alpha) * o + alpha * quotient if o == 1 else 0.0)
    return rewards


MEMBERS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=6)


@given(MEMBERS, st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from(["group_max", "right_max"]))
def test_rewards_of_groups(members, alpha, normalize):
    chain = [1, 2, 3, 4]  # each of the first n rubrics is connected with <E0>
    group = [row(right=o, supported=set(chain[:n])) for o, n in members]
    expected = twin([o for o, _ in members], [n / 4 for _, n in members], alpha, normalize)
    results = scores(*group, alpha=alpha, normalize=normalize)
    assert [each.value for each in results] == pytest.approx(expected)


def test_the_equation():
    assert carr_reward(1, 0.25, 0.4) == pytest.approx(0.7)
    assert carr_reward(0, 1.0) == 0


# --- citations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Ada", 0),
        ("Ada [1](https://a.org/ada) [2](https://a.org/ada#life)", 1),
        ("Ada [1](https://other.org/ada)", 0),
        ("Ada [1](p1) [2](p2) [[3]](p3)", 3),
        ('Ada [1](<https://a.org/ada> "Ada")', 1),
        ("Ada [1]", 0),
        ("Ada\n\n## References\n[1](https://a.org/ada)", 0),
        ("Ada, see the references [1](p1).", 1),
        ("Ada\n**References:**\n[1](p1)", 0),
    ],
)
def test_only_cited_results_of_the_rollout_count(text, cited):
    result = score(row(text, supported={1}))
    assert result.details["cited_results"] == cited
    assert result.components["supported"] == (0.25 if cited else 0.0)


def test_a_limited_number_of_citations_counts():
    pages = [{"id": f"p{i}", "text": f"Page {i}."} for i in range(30)]
    text = "Ada " + " ".join(f"[{i}](p{i})" for i in range(30))
    turns = [{"text": search("x"), "results": pages}, {"text": answer(text)}]
    assert score(row(turns=turns)).details["cited_results"] == 20


def test_chat_messages_and_transcripts():
    call = {"id": "c", "function": {"name": "search", "arguments": {"query": "ada"}}}
    pages = '[{"id": "p1", "url": "https://a.org/ada", "text": "Ada was born in Bergen."}]'
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": pages},
        {"role": "assistant", "content": "Ada [1](https://a.org/ada)"},
    ]
    chat = row(response=messages, turns=None, supported={1})
    assert score(chat, hardened=True).components["supported"] == 0.25
    transcript = search("a") + information("Doc 1(Title: Ada) text") + answer("Ada [1](x)")
    raw = row(response=transcript, turns=None, supported={1})
    assert score(raw).components["supported"] == 0.0
    with pytest.raises(DataError, match=r"^response: a transcript cannot show"):
        score(raw, hardened=True)


def test_documents_of_a_row_without_searches():
    plain = row(
        answer("Ada [1](1)"),
        turns=None,
        response=answer("Ada [1](1)"),
        documents=[{"text": "Ada was born in Bergen."}],
        supported={1},
    )
    assert score(plain).components["supported"] == 0.25


# --- needs ----------------------------------------------------------------------------------------


def judge_of(right=1, names=NAMES, supports=lambda claim: 1):
    def verdict(question):
        return right if question.kind == "outcome" else supports(question.response)

    return TableJudge(verdict, entities=lambda question: names)


def gathered(judge, *rows, **settings):
    built = recipe("carr", settings)
    return built, Gatherer(Models(judge=judge)).gather_sync(built, list(rows))


def bare(text=TEXT, **fields):
    return row(text, entities=None, verdicts=None, **fields)


def test_a_judge_answers_in_rounds():
    judge = judge_of(supports=lambda claim: int("Bergen" in claim))
    built, (informed,) = gathered(judge, bare())
    assert built([informed])[0].components["rubrics"] == 0.5
    kinds = [each.kind if isinstance(each, JudgeQuestion) else "names" for each in judge.requests]
    assert kinds == ["outcome", "names", *["supported"] * 4]
    question = judge.requests[2]
    assert question.response == "Ada was born in Bergen."
    assert question.documents == (
        "Title: Ada\nAda was born in Bergen.",
        "Bergen lies in Norway.",
        "Norway won a medal.",
    )
    names = judge.requests[1]
    assert isinstance(names, EntityQuestion)
    assert names.rubrics[0] == "E0 was born in E1."
    assert names.placeholders == ("E0", "E1", "E2", "E3", "E4")


@pytest.mark.parametrize("settings", [{"normalize": "right_max"}, {"normalize": "none"}])
def test_no_rubric_of_a_wrong_answer_is_judged(settings):
    judge = judge_of(right=0)
    built, (informed,) = gathered(judge, bare(), **settings)
    assert [each.kind for each in judge.requests] == ["outcome"]
    result = built([informed])[0]
    assert result.value == 0.0
    assert [result.components[name] for name in ("rubrics", "identified", "supported")] == [
        None
    ] * 3
    right = judge_of(right=1)
    gathered(right, bare(), **settings)
    assert len(right.requests) == 6


def test_nothing_is_judged_without_a_final_text_or_citations():
    judge = judge_of()
    searches = [{"text": search("ada"), "results": PAGES}]
    built, (informed,) = gathered(judge, bare(turns=searches))
    assert judge.requests == []
    assert built([informed])[0].value == 0.0
    built, (informed,) = gathered(judge, bare("Ada of Bergen, Norway"))
    assert len(judge.requests) == 2
    result = built([informed])[0]
    assert (result.value, result.components["identified"]) == (pytest.approx(0.7), 1.0)


def test_a_rubric_without_a_name_is_not_judged():
    judge = judge_of(names=NAMES | {"E2": None})
    gathered(judge, bare())
    claims = [each.response for each in judge.requests[2:]]
    assert claims == ["Ada was born in Bergen.", "Ada wrote Notes."]


def test_a_failed_judge_leaves_the_rollout_unscored():
    judge = judge_of(supports=lambda claim: BackendError("busy"))
    _, (failed,) = gathered(judge, bare())
    assert isinstance(failed, BackendError)
    assert failed.path == "verdicts.supported:1"


def test_evidence_of_the_row_needs_no_judge():
    judge = judge_of()
    gathered(judge, row(supported={1}))
    assert judge.requests == []


def test_a_row_can_contain_names_and_claims_of_another_reward():
    assert score(row(entities=NAMES | {"C1:5e": "Ada wrote."})) == score(row())


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"rubrics": None}, DataError, r"^rubrics: missing; list statements"),
        ({"rubrics": []}, DataError, r"^rubrics: contains no rubric"),
        ({"rubrics": [" "]}, DataError, r"^rubrics\[0\]: contains no text"),
        ({"rubrics": ["<E1> is old."]}, DataError, r"^rubrics: no rubric contains <E0>"),
        ({"answers": None}, DataError, r"^answers: missing"),
        ({"entities": None}, DataError, r"^entities: missing; add the name .* E0, E1, E2, E3, E4"),
        ({"entities": {"E0": "Ada"}}, DataError, r"^entities: missing"),
        ({"entities": {"<E0>": "Ada"}}, DataError, r"^entities: missing; add the name .* E0, E1"),
        ({"verdicts": {}}, DataError, r"^verdicts.outcome: missing"),
        ({"verdicts": {"outcome": 1, "supported:1": 1}}, DataError, r"^verdicts.supported:2: miss"),
    ],
)
def test_bad_rows(fields, error, message):
    with pytest.raises(error, match=message):
        score(row(**fields))


def test_a_rubric_must_name_the_answer_only_if_it_must_be_connected():
    loose = row(rubrics=["<E1> is old."], supported={1})
    assert score(loose, connect=False).value == pytest.approx(1.0)
    fact = row(rubrics=["<E0> is old.", "Water is wet."], supported={1, 2})
    assert score(fact).components == {
        **{"outcome": 1.0, "rubrics": 0.5, "identified": 1.0, "supported": 1.0},
        **{"connected": 0.5, "malformed": 0.0},
    }


def test_an_error_of_one_member_is_an_error_of_its_group():
    built = recipe("carr")
    good, bad = built.score_each([row(), row(rubrics=[])])
    assert isinstance(bad, DataError)
    assert type(good).__name__ == "GroupError"
    good, bad = recipe("carr", {"normalize": "none"}).score_each([row(), row(rubrics=[])])
    assert good.value == pytest.approx(0.7)


def test_penalties():
    turns = [{"text": "words"}, {"text": search("a"), "results": PAGES}, {"text": answer(TEXT)}]
    result = score(row(turns=turns, supported={1}), malformed_penalty=0.25)
    assert result.turns == (-0.25, None, pytest.approx(1.0))
    assert result.value == pytest.approx(0.75)
    assert result.components["outcome"] == 1.0


_PAGE = "[1](https://a.org/x)"


@pytest.mark.parametrize(
    "text",
    [
        f"Paris. <!-- {_PAGE} -->",
        f"Paris. <span style='display:none'>{_PAGE}</span>",
        f"Paris ~~{_PAGE}~~",
        f"Paris. <details>{_PAGE}</details>",
        f"Paris.\n\n## Sources\n- {_PAGE}",
        f"Paris.\n\nSources:\n- France {_PAGE}",
        f"Paris.\n\nSources: {_PAGE}",
        f"Paris.\n\n**Bibliography**\n{_PAGE} France",
        f"Paris.\n\nQuellen\n- {_PAGE}",
        f"Paris.\n\n参考文献\n{_PAGE}",
        f"Paris.\n\nИсточники:\n1. {_PAGE} France",
        f"Paris.\n\n## Where I looked\n- {_PAGE}\n",
        f"Paris.\n\n<h3>Further reading</h3>\n{_PAGE} France",
        f"Paris.\n\n| Source | Link |\n|---|---|\n| 1 | {_PAGE} |",
        f"Paris.\n\nMy pages:\n* {_PAGE}",
        f"Paris.\n\nBronnen\n- France {_PAGE}",
        f"Paris.\n\n{_PAGE} [2](b)",
        f"Paris.\n{_PAGE}, [2](b) and [3](c)",
        f"{_PAGE} [2](b)\n\nParis.",
        f"Paris.\n\n- {_PAGE}\n- [2](b)",
        f"Paris.\n\nRead more: {_PAGE}[2](b)",
        f"Paris.\n\n<sup>{_PAGE}[2](b)</sup>",
        f"It is Paris {_PAGE}[2](b)[3](c)[4](d)[5](e).",
    ],
)
def test_citations_that_a_reader_does_not_see_beside_a_claim(text):
    assert _cited(text, "shown") == 0
    assert _cited(text, "text") == 1


@pytest.mark.parametrize(
    "text",
    [
        f"It is Paris {_PAGE}.",
        f"## Answer\nIt is Paris {_PAGE}.",
        f"**Answer:** Paris {_PAGE}",
        f"Key facts:\n- It is Paris {_PAGE}\n- It lies there [2](b).",
        f"## Sources of the Nile\nThey are in Paris {_PAGE}.",
        f"Paris\n{_PAGE}",
        f"Paris\n{_PAGE} [2](b)\nIt lies there.",
        f"Paris.\n\n{_PAGE}",
        f"It is Paris {_PAGE}[2](b)[3](c)[4](d).",
        f"{_PAGE}, [2](b) and [3](c) say that it is Paris.",
        f"According to the sources, it is Paris {_PAGE}.",
        f"1. Paris {_PAGE}\n2. Seine [2](b)",
        f"| City | Page |\n|---|---|\n| Paris | {_PAGE} |",
        "Paris [[1]](https://a.org/x) is it.",
        f"答案是巴黎{_PAGE}。",
    ],
)
def test_citations_beside_a_claim_count(text):
    assert _cited(text, "shown") == _cited(text, "text") == 1


def _cited(text, cited_in):
    from rag_rewards.rewards.carr import CarrRubrics
    from rag_rewards.rollout import Document, Rollout

    row = Rollout(response=text, documents=(Document(id="https://a.org/x", text="Paris."),))
    rubrics = CarrRubrics(cited_in=cited_in)
    return len(rubrics._cited(row, row.trajectory(rubrics.reading), text))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("**Ada** [1](p1)", 1), ("Ada", 1), ("~~Ada~~", 0), ("!Ada", 0), ("Ada\b\b\b", 0)],
)
def test_an_exact_match_asserts_the_answer_under_the_hardened_profile(text, outcome):
    by_rules = {"outcome.by": "rules"}
    assert scores(row(text), hardened=True, **by_rules)[0].components["outcome"] == outcome

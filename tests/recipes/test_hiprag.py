"""HiPRAG: worked examples, the form of the steps, a twin of the reward, needs and bad input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError, EvidenceError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.rewards.steps import read_steps
from rag_rewards.testing import TableJudge, TablePolicy

PAGE = {"id": "a", "text": "Ada was born in Bergen."}


def step(conclusion="So.", query=None, reasoning="Hm."):
    text = f"<step><reasoning>{reasoning}</reasoning>"
    text += "" if query is None else f"<search>{query}</search>"
    return f"{text}<conclusion>{conclusion}</conclusion></step>"


def row(*steps, answer="Ada", good=(), **fields):
    """Return a rollout whose turns end after each query. Its judge accepts the steps `good`."""
    text = f"<think>{''.join(steps)}</think><answer>{answer}</answer>"
    texts = re.split("(?<=</search>)", text)
    turns = [{"text": each, "results": [PAGE]} for each in texts[:-1]] + [{"text": texts[-1]}]
    verdicts = {f"step:{i + 1}": int(i in good) for i in range(len(steps))}
    base = {"question": "Who?", "answers": "Ada", "turns": turns, "verdicts": verdicts}
    return decode_row(base | fields)


def score(each, hardened=False, **settings):
    return recipe("hiprag", settings, hardened=hardened)([each])[0]


# --- the reward -----------------------------------------------------------------------------------


def test_worked_examples():
    each = row(step("a", "q"), step("b", "r"), step("c"), step("d"), good={0, 2, 3})
    result = score(each)
    assert result.components == {"outcome": 1, "format": 1, "steps": 0.75, "malformed": 0}
    assert result.value == pytest.approx(1.3)
    assert result.turns == (None, None, pytest.approx(1.3))
    assert [step["good"] for step in result.details["steps"]] == [True, False, True, True]
    assert score(row(step("a", "q"), answer="Ben")).value == pytest.approx(0.2)
    assert score(row("I know it.")).value == pytest.approx(0.8)
    assert score(row("I know it.", answer="Ben")).value == 0
    assert score(row(step("a", "q"), answer="It is Ada.")).correct == 1  # contains the gold answer
    assert score(row(step(), good={0}), **{"weights.process": 0.1}).value == pytest.approx(1.1)


@given(
    searches=st.lists(st.booleans(), max_size=6),
    good=st.sets(st.integers(0, 5)),
    is_right=st.booleans(),
    is_complete=st.booleans(),
)
def test_the_twin(searches, good, is_right, is_complete):
    """The reward of the paper, Eq. 4: A·(1 − λ_f) + λ_f·F + λ_p·A·F·(good steps/steps)."""
    steps = [step(f"c{i}", "q" if searched else None) for i, searched in enumerate(searches)]
    last = "" if is_complete else "<step>"
    each = row(*steps, last, answer="Ada" if is_right else "Ben", good=good)
    a, f = int(is_right), int(is_complete and bool(steps))
    share = len(good & set(range(len(steps)))) / len(steps) if steps else 0
    expected = a * (1 - 0.2) + 0.2 * f + 0.4 * a * f * share
    assert score(each).value == pytest.approx(expected)


def test_repeated_steps():
    each = row(step("So."), step("so"), step("Ada", "q"), good={0, 1, 2})
    assert score(each).components["steps"] == 1
    assert score(each, hardened=True).components["steps"] == pytest.approx(2 / 3)


# --- the form -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (step() + step("b", "q"), 2),
        (f" \n{step()}\n words {step()} ", 2),
        ("", 0),
        ("words", 0),
        (step().replace("</step>", ""), 0),
        (step().replace("<reasoning>Hm.</reasoning>", ""), 0),
        (step(reasoning=" "), 0),
        (step(conclusion=""), 0),
        (step(query=" "), 0),
        (step().replace("</step>", "<answer>Ada</answer></step>"), 0),
        (step().replace("</step>", step() + "</step>"), 0),
        (step("b", "q<search>r</search>"), 0),
        (step("<information>Ada</information>"), 0),
        (step() + "<think>" + step(), 0),
    ],
)
def test_forms(text, count):
    assert len(read_steps(row(text).trajectory())) == count


def test_the_number_of_steps_is_limited():
    assert score(row(*[step()] * 32)).components["format"] == 1
    assert score(row(*[step()] * 33)).components["format"] == 0
    assert score(row(*[step()] * 3), max_steps=2).components["format"] == 0


def test_a_query_without_results_is_no_complete_form():
    turns = [{"text": "<think>" + step("b", "q") + "</think><answer>Ada</answer>"}]
    assert score(row(turns=turns)).components["format"] == 0


def r1_searcher(text):
    """Return a text in the tags of another dialect."""
    for name, tag in (("search", "query"), ("information", "documents")):
        text = text.replace(f"</{name}>", f"<|end_of_{tag}|>")
        text = text.replace(f"<{name}>", f"<|begin_of_{tag}|>")
    return text


def test_the_dialect_r1_searcher():
    forged = "<|begin_of_documents|>Ada<|end_of_documents|>"
    for conclusion, form in (("b", 1), (forged, 0)):
        each = row(step(conclusion, "q"), good={0})
        turns = [{"text": r1_searcher(turn.text), "results": turn.results} for turn in each.turns]
        each = row(turns=turns, verdicts={"step:1": 1})
        for dialect in ("auto", "r1-searcher"):
            assert score(each, dialect=dialect).components["format"] == form


def test_other_forms_of_a_rollout():
    opening, closing = step("b", "q").split("</search>")
    end = closing + "</think><answer>Ada</answer>"
    block = "<information>Doc 1(Title: a) Ada.</information>"
    call = {"id": "c", "function": {"name": "search", "arguments": {"query": "q"}}}
    messages = [
        {"role": "assistant", "content": "<think>" + opening.partition("<search>")[0],
         "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Ada."},
        {"role": "assistant", "content": end},
    ]  # fmt: skip
    for fields in (
        {"response": "<think>" + opening + "</search>" + block + end},
        {"response": messages},
        {"turns": [{"text": "<think>" + opening, "query": "q", "results": []}, {"text": end}]},
        {"response": "<think>" + r1_searcher(opening + "</search>" + block + end)},
        {"response_prefix": "<think>", "response": step() + "</think><answer>Ada</answer>"},
    ):
        each = decode_row({"question": "Who?", "answers": "Ada"} | fields)
        steps = read_steps(each.trajectory())
        assert [each.query for each in steps] == ([None] if "response_prefix" in fields else ["q"])


# --- the judge ------------------------------------------------------------------------------------


def questions(each, hardened=False):
    judge = TableJudge(lambda question: 1)
    built = recipe("hiprag", hardened=hardened)
    [informed] = Gatherer(Models(judge=judge)).gather_sync(built, [each])
    return informed, judge.requests


def test_questions():
    each = row(step("Bergen.", "town of Ada"), step("It is Ada.", reasoning="I know."), verdicts={})
    informed, asked = questions(each)
    assert [(q.kind, q.question, q.response) for q in asked] == [
        ("searched_step", "town of Ada", "Bergen."),
        ("unsearched_step", "Who?", "Reasoning: I know.\nConclusion: It is Ada."),
    ]
    assert all(question.task for question in asked)
    assert informed.verdicts == {"step:1": 1, "step:2": 1}
    assert score(informed).value == pytest.approx(1.4)


@pytest.mark.parametrize(
    "output", ["Bergen", "<think>Oslo?</think>Bergen", "Oslo?</think><answer>Bergen</answer>"]
)
def test_the_generator_answers_the_query_without_a_search(output):
    judge = TableJudge(lambda question: int(question.gold != ("Bergen",)))
    policy = TablePolicy(texts=lambda prompt: output)
    models = Models(generator=policy, judge=judge)
    built = recipe("hiprag", {"unaided.by": "generator"})
    each = row(step("In Bergen.", "town of Ada"), step("Ada."), verdicts={})
    [informed] = Gatherer(models).gather_sync(built, [each])
    assert informed.generated_answers == {"step:1": output.removesuffix("</answer>")}
    asked = {q.kind: (q.question, q.response, q.gold) for q in judge.requests}
    assert asked["searched_step"] == ("town of Ada", "In Bergen.", ("Bergen",))
    assert informed.verdicts == {"step:1": 0, "step:2": 1}
    assert built([informed])[0].value == pytest.approx(1.2)
    cut = row(step("Oslo.", "q"), verdicts={}, generated_answers={"step:1": "<think>Bergen"})
    with pytest.raises(EvidenceError, match=r"generated_answers\.step:1: .* ends in its thinking"):
        built.needs(cut)
    each = row(step("Oslo.", "q"), verdicts={}, generated_answers={"step:1": " "})
    [need] = built.needs(each)[1:]
    assert need.questions[0].gold == ("The model gave no answer.",)
    [need] = built.needs(row(step("In Bergen.", "town of Ada"), verdicts={}))
    assert "town of Ada" in need.messages[0][1]
    assert all(each.is_met(informed) for each in built.needs(informed))


@pytest.mark.parametrize("each", [row(step(), answer="Ben", verdicts={}), row("a", verdicts={})])
def test_steps_without_effect_are_not_judged(each):
    assert questions(each)[1] == []
    assert score(each).components["steps"] is None


def test_a_failed_judge_leaves_the_rollout_unscored():
    judge = TableJudge(lambda question: BackendError("busy"))
    each = row(step(), verdicts={})
    [failed] = Gatherer(Models(judge=judge)).gather_sync(recipe("hiprag"), [each])
    assert isinstance(failed, BackendError)
    with pytest.raises(DataError, match=r"^verdicts.step:1: missing"):
        score(each)
    with pytest.raises(DataError, match=r"^answers: missing"):
        score(row(step(), answers=None))

"""Questions, measures and the page of the trainings on a real language model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from language_model import page, plan
from language_model.forms import FORMS, Target, target
from language_model.measures import MEANINGS, by_question, difference, summary
from language_model.questions import WORDS, Passage, Question, build, digest, questions, split
from language_model.run import Unit, Workplace, identity, units
from language_model.train import RESULTS, collect, estimate, main

GOLD = Passage("Ada", " ".join(["Words."] * 40) + " Ada likes the rose most.")
OTHERS = [Passage(name, f"{name} likes the lily.") for name in ("Ben", "Cleo", "Dan")]
KEPT = next(
    f"Which flower does Ada like{'?' * i}"
    for i in range(99)
    if int(digest(f"Which flower does Ada like{'?' * i}"), 16) // 3 % 4
)
WITHHELD = next(
    f"Which flower does Ada like{'?' * i}"
    for i in range(99)
    if not int(digest(f"Which flower does Ada like{'?' * i}"), 16) // 3 % 4
)


def test_an_answerable_question_keeps_the_window_with_its_answer() -> None:
    question = build(KEPT, "rose", [*OTHERS, GOLD])
    assert question
    assert len(question.documents) == 3
    (position,) = question.supporting
    title, text = question.documents[position - 1]
    assert title == "Ada"
    assert "the rose" in text
    assert len(text.split()) <= WORDS
    assert question == build(KEPT, "rose", [*OTHERS, GOLD])


@pytest.mark.parametrize(("text", "answer"), [(WITHHELD, "rose"), (KEPT, "tulip"), (KEPT, "ros")])
def test_an_unanswerable_question_has_no_document_with_its_answer(text, answer) -> None:
    question = build(text, answer, [*OTHERS, GOLD])
    assert question
    assert question.supporting == ()
    assert question.is_withheld == (text == WITHHELD)
    assert not any(f" {answer} " in f" {each} " for _, each in question.documents)


@pytest.mark.parametrize(
    ("answer", "holder", "is_answerable"),
    [
        ("January 8, 1891", Passage("Ada", "Ada came on 8 January 1891."), True),
        ("rose", Passage("Rose", "Ada likes this flower."), False),
    ],
)
def test_titles_and_both_orders_of_dates_contain_an_answer(answer, holder, is_answerable) -> None:
    question = build(KEPT, answer, [holder, *OTHERS])
    assert question
    assert question.is_answerable == is_answerable
    assert (holder.title in dict(question.documents)) == is_answerable


def test_both_gold_passages_of_two_hops_support() -> None:
    hop = Passage("Garden", "Ada owns a garden.", True)
    known = [Passage(p.title, p.text, False) for p in OTHERS]
    question = build(KEPT, "rose", [*known, Passage("Ada", GOLD.text, True), hop])
    assert question
    titles = {question.documents[i - 1][0] for i in question.supporting}
    assert titles == {"Ada", "Garden"}


@pytest.mark.parametrize(
    ("answer", "passages"),
    [
        ("yes", [*OTHERS, GOLD]),
        ("rose", OTHERS[:2]),
        ("fern", [Passage("Ada", "A", True), *OTHERS]),
    ],
)
def test_a_question_without_a_reliable_label_is_left_out(answer, passages) -> None:
    assert build(KEPT, answer, passages) is None


def test_the_files_are_read_and_split_by_question(tmp_path) -> None:
    lines = "\n".join(
        f"({i})Title: {p.title} Text:  {p.text}" for i, p in enumerate([GOLD, *OTHERS], 1)
    )
    block = f"<|begin_of_documents|>\n{lines}\n<|end_of_documents|>"
    rows = [
        {"question": f"Which flower, {i}?", "answer": "rose", "gen_text_store": f"I search.{block}"}
        for i in range(30)
    ]
    folder = tmp_path / "data" / "r1_searcher"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "b.jsonl").write_text(json.dumps(rows[0]) + "\n")
    every = questions(tmp_path)
    training, held_out = split(every)
    assert len(every) == 30
    assert {q.digest for q in training}.isdisjoint(q.digest for q in held_out)
    assert len(held_out) == sum(int(digest(row["question"]), 16) % 3 == 0 for row in rows) > 0
    with pytest.raises(SystemExit, match="--shared"):
        questions(tmp_path / "data")
    with pytest.raises(SystemExit, match=r"not that of plan\.py"):
        _ = Workplace(tmp_path, tmp_path).split


# --- forms and measures --------------------------------------------------------------------------

DOCUMENTS = (("Ada", "Ada likes the rose."), ("Ben", "Ben likes the lily."), ("Cleo", "Cleo."))
CAN, CANNOT = Question("Q1?", "rose", DOCUMENTS, (1,)), Question("Q2?", "fern", DOCUMENTS, ())


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.name)
def test_a_target_of_each_form_is_measured_as_what_it_is(form) -> None:
    """A right answer with its citation, a wrong one, and an abstention, if the form has one."""
    right, wrong = Target("rose", (1,), "Ada", "0.9"), Target("lily", (2,), "Ben", "0.7")
    texts = [form.write(each) for each in (right, wrong, wrong, Target(None, (), "Ben"))]
    rows = [form.row(question) for question in (CAN, CANNOT)]
    values = by_question(form, rows, [(text, 5) for text in texts])
    abstained = 0.0 if form.name == "rlcr" else 0.5
    assert values["accuracy"] == [0.5, None]
    assert values["hallucination"] == [0.5, 1 - abstained]
    assert values["abstention"] == [None, abstained]
    assert values["citation precision"] == values["citation recall"] == [0.5, None]
    assert values["length"] == [5, 5]
    assert set(values) <= set(MEANINGS)
    assert values.get("format", [1, 1]) == [1, 1]
    for name in ("relevance", "cited right"):
        assert values.get(name, [0.5, None]) == [0.5, None]
    if form.name == "rlcr":
        assert values["brier"] == pytest.approx([(0.01 + 0.49) / 2, (0.49 + 0.25) / 2])


def test_each_right_statement_needs_its_citation() -> None:
    texts = [
        f"<think>Ada</think> <answer>Ada likes the rose {first}. The flower is the rose {second}."
        "</answer>"
        for first, second in (("[1]", "[1]"), ("[1]", ""), ("[2]", "[2]"))
    ]
    values = [by_question(FORMS["ground"], [FORMS["ground"].row(CAN)], [(t, 5)]) for t in texts]
    assert [each["cited right"] for each in values] == [[1], [0], [0]]


def test_a_wrong_target_is_not_the_answer() -> None:
    import random

    question = Question("Who?", "Ada", DOCUMENTS, (1,))
    rng = random.Random(0)
    wrong = [t for t in (target(question, rng) for _ in range(200)) if t.answer != "Ada"]
    assert {t.answer for t in wrong} == {None, "Ben", "Cleo"}
    assert all(t.answer or t.title != "Ada" for t in wrong)


def test_targets_contain_right_answers_mistakes_and_abstentions() -> None:
    import random

    rng = random.Random(0)
    targets = {question: [target(question, rng) for _ in range(300)] for question in (CAN, CANNOT)}
    shares = {
        question: [sum(t.answer == answer for t in each) / 300 for answer in ("rose", None)]
        for question, each in targets.items()
    }
    assert shares[CAN] == pytest.approx([0.75, 0.15], abs=0.06)
    assert shares[CANNOT] == pytest.approx([0, 0.5], abs=0.06)


def test_a_difference_is_paired_by_question() -> None:
    before = [[0.1 * i for i in range(10)]]
    after = [[0.1 * i + 0.1 for i in range(10)], [0.1 * i + 0.3 for i in range(10)]]
    assert difference(after, before) == pytest.approx([0.2, 0.2, 0.2])
    assert summary([None, None]) is None
    assert summary([0.0, 1.0, None])[0] == 0.5


# --- the page ------------------------------------------------------------------------------------


def result(unit: Unit, value: float) -> dict:
    """Return a made-up result whose measures all have one value."""
    names = {*unit.primary, "accuracy", "length"}
    figures = {name: [value, value, value] for name in sorted(names)}
    course = {"points": [[10, value]], "rewards": [0.0, value], "groups without signal": 0.25}
    return {
        "plan": identity(unit),
        "greedy": figures,
        "sampled": figures,
        "primary": {name: [value] * 8 for name in unit.primary},
        "measuring seconds": 60,
        "versions": {"trl": "1"},
        "machine": "processor, 2 cores, 1 threads",
        **(course | {"training seconds": 100} if unit.arm else {}),
        **({"warm-up": {"seconds": 30, "loss": 0.3}} if unit.kind == "before" else {}),
    }


def stored(values: dict[str, float]) -> dict:
    by_name = {unit.name: unit for unit in units()}
    count = {"all": 3, "answerable": 2, "withheld": 1}
    return {
        "questions": {"training": count, "held-out": count},
        "versions": {"trl": "1"},
        "units": {name: result(by_name[name], value) for name, value in values.items()},
    }


def test_the_page_states_the_verdicts_of_the_intervals_and_what_is_missing() -> None:
    values = {"truthrl: before training": 0.5, "truthrl ternary, seed 0": 0.2}
    text = page.page(stored(values))
    assert "1 of 2 seeds is finished" in text
    assert f"Finished: 2 of {len(units())} planned runs" in text
    assert "Missing: truthrl binary, seed 0" in text
    assert "- `truthrl ternary`: hallucination moved as expected from before" in text
    assert "its comparison with `truthrl binary` is not finished" in text
    values |= {"truthrl ternary, seed 0": 0.6, "truthrl binary, seed 1": 0.6}
    text = page.page(stored(values))
    assert "hallucination moved against the expectation from before" in text
    assert "against `truthrl binary`, it does not differ" in text
    assert "| truthrl ternary | hallucination (down) | 0.500 [0.500, 0.500] | 0.600" in text
    values |= {"truthrl ternary, seed 1": 0.45}
    assert "hallucination has no clear change (the seeds disagree)" in page.page(stored(values))


def test_a_page_without_results_lists_all_runs_as_missing() -> None:
    text = page.page({"units": {}})
    assert f"Finished: 0 of {len(units())}" in text
    assert all(unit.name in text for unit in units())


def test_every_arm_has_a_warm_up_before_it_and_a_primary_measure() -> None:
    every = units()
    trainings = [unit for unit in every if unit.kind == "arm"]
    assert len(trainings) == len(plan.ARMS) * len(plan.SEEDS)
    assert all(unit.arm is None for unit in every if unit.kind != "arm")
    for unit in trainings:
        assert every.index(Unit("before", unit.form.name)) < every.index(unit)
        assert unit.arm.primary in unit.primary
    assert len({unit.name for unit in every}) == len({unit.file_name for unit in every})


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    values = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"units": {}}
    picture = RESULTS.with_suffix(".svg")
    text = page.page(values, picture.name if picture.exists() else None)
    assert RESULTS.with_suffix(".md").read_text("utf-8") == text, "run train.py --page"


def test_results_of_another_plan_are_missing(tmp_path, monkeypatch) -> None:
    place = Workplace(tmp_path, tmp_path)
    vars(place)["split"] = ([CAN, CANNOT], [CAN])
    unit = units()[1]
    monkeypatch.setattr("language_model.train.RESULTS", tmp_path / "results.json")
    place.result(unit).write_text(json.dumps(result(unit, 0.5)))
    assert list(collect(place)["units"]) == [unit.name]
    assert "Of the 1 unanswerable training questions, 0 had" in page.page(collect(place))
    assert f"for {len(units()) - 1} of {len(units())} units" in estimate(units()[1:], {})
    for name, value in (("plan.STEPS", plan.STEPS + 1), ("forms.RIGHT", 0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"language_model.{name}", value)
            assert collect(place)["units"] == {}, name
    for each in units():
        before = identity(each)
        with monkeypatch.context() as patch:
            patch.setitem(FORMS, each.form.name, replace(each.form, instruction="Answer."))
            assert identity(each) != before


def test_unknown_units_are_an_error(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--only", "truthrl"])
    with pytest.raises(SystemExit):
        main()
    assert "truthrl: before training" in capsys.readouterr().err

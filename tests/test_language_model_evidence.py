"""The measurement of evidence of a language model, with the tiny checkpoint and own questions."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

import rag_rewards as rr
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.tiny_world.model import CHECKPOINT

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from language_model import evidence, evidence_figures, evidence_page, rows

TOWNS = (("Arden", "Bly"), ("Corby", "Dunn"), ("Elgin", "Fenn"))


@pytest.fixture
def shared(tmp_path) -> Path:
    """A folder with three questions in the form of the data sets."""
    lines = [
        {
            "question": f"Which river passes the town of {town}?",
            "cot_answer": f"{town} lies on the {river}. So the answer is: {river}.",
            "answer": river,
            "paragraphs": [
                {"title": "Hills", "paragraph_text": f"The hills of {town} are low and old here."},
                {
                    "title": town,
                    "paragraph_text": f"The town of {town} was founded by John Smith long ago. "
                    f"It lies on the {river}.",
                },
            ],
            "is_supporting": [False, True],
        }
        for town, river in TOWNS
    ]
    folder = tmp_path / "data" / "ircot_multihop"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"{rows.MULTIHOP['HotpotQA']}.jsonl").write_text(text, "utf-8")
    return tmp_path


def test_each_kind_of_response(shared) -> None:
    items = rows.contrastive_items(shared, "HotpotQA", "chat")
    by_kind = {(item.kind, item.form): item.rollout for item in items if item.question == 0}
    texts = {kind: rollout.response for kind, rollout in by_kind.items()}
    assert texts[("supported", "short")] == "The answer is: Bly."
    assert texts[("memory", "short")] == texts[("supported", "short")]
    assert texts[("wrong", "reasoned")] == "Arden lies on the Dunn. So the answer is: Dunn."
    assert texts[("misread", "short")] == "The answer is: John Smith."
    assert texts[("copied distractor", "short")] == "The hills of Arden are low and old here."
    assert texts[("copied gold", "short")].startswith("The town of Arden was founded")
    shown = {kind: " ".join(doc.text for doc in r.documents) for (kind, _), r in by_kind.items()}
    assert "Bly" in shown["supported"]
    assert "Bly" not in shown["memory"]
    assert {rollout.supporting for rollout in by_kind.values()} == {("2",)}


def test_the_evidence_is_stored_once_and_scored_again(shared, monkeypatch) -> None:
    monkeypatch.setattr(evidence, "STORE", shared / "store")
    task = evidence.Task("contrastive", "HotpotQA", "plain", "float32")
    monkeypatch.setattr(evidence, "TASKS", [task])
    monkeypatch.setattr(evidence, "PRECISION", task)
    monkeypatch.setattr(evidence_figures, "RESAMPLING", evidence_figures.Resampling(5))
    monkeypatch.setitem(evidence.PART, "contrastive", 20)
    models = ModelOptions(model=str(CHECKPOINT), device="cpu").load()
    evidence.measure(task, rr.Scorer(task.recipe(), models), shared, most=1)
    files = [file for file, _ in evidence.parts(task, shared) if file.exists()]
    assert len(files) == 1
    evidence.measure(task, rr.Scorer(task.recipe(), models), shared)
    items, spent = evidence.stored(task, shared)
    assert len(items) == len(task.items(shared))
    assert not spent["errors"]
    scorer = rr.Scorer(rr.recipe("ctrl-rag-clr"), models)
    direct = scorer.score_each([item.rollout for item in task.items(shared)[:4]])
    again = rr.recipe("ctrl-rag-clr").score_each([item.rollout for item in items[:4]])
    for stored_score, score in zip(again, direct, strict=True):
        assert stored_score.components == pytest.approx(score.components, abs=1e-4)
    figures = evidence_figures.contrastive(items)
    assert figures["short"]["E"]["supported"]["rows"] == 3
    stored = {"contrastive": {"plain": figures}, "search": {}, "lear": {}, "precision": {}}
    frame = {"versions": {}, "machine": "", "spent": {"plain": spent}}
    assert "AUC of E" in evidence_page.page({**frame, **stored})


def test_stored_evidence_of_other_rows_is_an_error(shared, monkeypatch) -> None:
    monkeypatch.setattr(evidence, "STORE", shared)
    task = evidence.Task("contrastive", "HotpotQA", "chat")
    task.file(0).write_text(json.dumps({"digest": "other", "rows": []}), "utf-8")
    with pytest.raises(SystemExit, match="belongs to other rows: delete it"):
        evidence.stored(task, shared)


def test_the_auc_is_that_of_all_pairs() -> None:
    scores = [3.0, 1.0, 2.0, 2.0, -1.0, 3.0, 0.5]
    labels = [True, False, True, False, True, False, False]
    figure = evidence_figures.auc(zip("aabbccd", scores, labels, strict=True))
    rows_of_scores = list(zip(scores, labels, strict=True))
    pairs = [
        (yes > no) + (yes == no) / 2
        for (yes, first), (no, second) in itertools.product(rows_of_scores, repeat=2)
        if first and not second
    ]
    assert figure["value"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-4)
    assert figure["low"] < figure["value"] < figure["high"]
    assert (figure["yes"], figure["no"], figure["questions"]) == (3, 4, 4)


def test_a_difference_of_aucs_is_paired() -> None:
    labels = [True, False, True, False, True, False, False]
    columns = ([3.0, 1.0, 2.0, 2.0, -1.0, 3.0, 0.5], [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    first, second = (list(zip("aabbccd", each, labels, strict=True)) for each in columns)
    figure = evidence_figures.difference(first, second)
    one, other = evidence_figures.auc(first), evidence_figures.auc(second)
    assert figure["value"] == pytest.approx(one["value"] - other["value"], abs=2e-4)
    assert figure["low"] <= figure["value"] <= figure["high"]
    same = evidence_figures.difference(first, first)
    assert same["value"] == same["low"] == same["high"] == 0
    assert one["low"] < one["high"]


def test_a_wrong_response_with_the_right_answer_is_left_out(shared) -> None:
    items = rows.contrastive_items(shared, "HotpotQA", "chat")
    wrong = next(item for item in items if item.kind == "wrong")
    assert evidence_figures.is_left_out(wrong, 1.0)
    assert not evidence_figures.is_left_out(wrong, 0.0)
    right = next(item for item in items if item.kind == "supported")
    assert not evidence_figures.is_left_out(right, 1.0)


def test_a_mean_counts_rows_and_resamples_questions() -> None:
    one = evidence_figures.mean([("a", 1.0), ("a", 0.0), ("a", 1.0)])
    assert one["value"] == one["low"] == one["high"] == pytest.approx(2 / 3, abs=1e-4)


def test_the_page_follows_from_the_figures() -> None:
    file = evidence.FILE
    page = file.with_suffix(".md").read_text("utf-8")
    assert page == evidence_page.page(json.loads(file.read_text("utf-8")))
